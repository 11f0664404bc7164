"""Between runs: reviews, edits and rollbacks. The records always match the sandbox."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cleveragents.api.plans.available_actions import needs_of, possible_actions
from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.status_text import obstacle_of, status_text_of
from cleveragents.changes.model.review import ReviewKind
from cleveragents.core.change import Difference
from cleveragents.core.errors import (
    ApplyConflict,
    NeedsHuman,
    PlanError,
    StalePlan,
    StoreBusy,
    UnknownCheckpoint,
)
from cleveragents.core.tool import CallState
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.plans.model.strategy import StrategyStep
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.testing.clock import RaiseAt
from tests.plan_bench import PlanBench, command, edit, new_repository, plan_bench, step, write


def reject(plans: PlanBench, plan: Plan, kind: ReviewKind, subject: str, *, accepted: bool = False) -> None:
    plans.parts.result.review(plan, kind, subject, accepted=accepted)


def test_a_rejected_file_is_neither_shown_nor_applied(plans: PlanBench) -> None:
    plan = plans.done(write("wanted.txt", "1\n"), write("not.txt", "2\n"), edit("b.txt", "alpha", "beta"))
    reject(plans, plan, ReviewKind.PATH, "not.txt")
    reject(plans, plan, ReviewKind.PATH, "b.txt")
    assert plans.diff(plan, "--name-only").split() == ["wanted.txt"]
    reject(plans, plan, ReviewKind.PATH, "b.txt", accepted=True)
    plans.apply(plan)
    assert not (plans.repository / "not.txt").exists()
    assert plans.text("b.txt") == "beta\n"


def test_a_rejected_changeset_is_removed_from_shared_files(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "one", "1"), edit("a.txt", "seven", "7"))
    first = str(plans.calls(plan)[0].changeset_id)
    reject(plans, plan, ReviewKind.CHANGESET, first)
    assert "-seven" in plans.diff(plan)
    assert "-one" not in plans.diff(plan)
    plans.apply(plan)
    assert plans.text("a.txt") == "one\ntwo\nthree\nfour\nfive\nsix\n7\n"


def test_a_change_on_top_of_a_rejected_one_is_a_conflict(plans: PlanBench) -> None:
    plan = plans.done(edit("b.txt", "alpha", "beta"), edit("b.txt", "beta", "gamma"))
    reject(plans, plan, ReviewKind.CHANGESET, str(plans.calls(plan)[0].changeset_id))
    with pytest.raises(PlanError, match="builds on a rejected one"):
        plans.diff(plan)
    with pytest.raises(PlanError, match="builds on a rejected one"):
        plans.apply(plan)
    assert plans.text("b.txt") == "alpha\n"


@pytest.mark.parametrize("kind", ReviewKind)
def test_refuses_a_review_of_unchanged_files(plans: PlanBench, kind: ReviewKind) -> None:
    plan = plans.done(write("x.txt", ""))
    with pytest.raises(PlanError, match="among the changes of the plan"):
        reject(plans, plan, kind, "b.txt")


def test_a_review_during_an_apply_stops_it(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""), write("y.txt", ""))

    applier = plans.parts.applier
    prepare = applier.prepare

    def while_it_waits(*given: object, **more: object) -> object:
        reject(plans, plan, ReviewKind.PATH, "y.txt")
        return prepare(*given, **more)

    applier.prepare = while_it_waits
    with pytest.raises(StalePlan):
        replace(plans.parts.apply, applier=applier).apply(plan, CancellationToken())
    assert plans.now(plan).state is PlanState.CONSTRAINED
    assert not (plans.repository / "x.txt").exists()


def test_records_edits_as_a_separate_call(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    root = plans.sandbox(plan).root
    (root / "x.txt").write_text("mine\n")
    (root / "b.txt").unlink()
    call = plans.parts.sandbox_edits.reread(plan)
    assert call is not None
    assert (call.tool, call.state.value, call.step) == ("reread", "ended", None)
    changes = plans.parts.history.changes(plan.id)
    assert [change.entry.path for change in changes] == ["x.txt", "b.txt", "x.txt"]
    plans.ensure_consistent(plan)
    assert plans.parts.sandbox_edits.reread(plan) is None
    plans.apply(plan)
    assert plans.text("x.txt") == "mine\n"
    assert not (plans.repository / "b.txt").exists()


def test_a_rollback_restores_files_and_a_resume_repeats_the_calls(plans: PlanBench) -> None:
    plan = plans.done(
        write("x.txt", "1\n"), edit("x.txt", "1", "2"), command("echo 3 >> x.txt; echo ran >> count.log")
    )
    root = plans.sandbox(plan).root
    call = plans.parts.sandbox_edits.rollback(plan, 2)
    assert (root / "x.txt").read_text() == "1\n"
    assert plans.states_of(plan) == ["ended", "reverted", "reverted", "ended"]
    assert (call.number, call.tool) == (4, "rollback")
    plans.ensure_consistent(plan)
    assert plans.resume(plan).state is PlanState.COMPLETE
    assert (root / "x.txt").read_text() == "2\n3\n"
    assert (root / "count.log").read_text() == "ran\nran\n"
    plans.ensure_consistent(plan)
    assert [call.step for call in plans.calls(plan)] == ["1", "2", "3", None, "2", "3"]


def test_a_rollback_restores_a_temporary_file(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"), step("delete", path="x.txt"))
    plans.parts.sandbox_edits.rollback(plan, 2)
    assert plans.diff(plan, "--name-only").split() == ["x.txt"]
    plans.ensure_consistent(plan)


def test_a_rollback_of_a_rollback_restores_the_calls(plans: PlanBench) -> None:
    """Otherwise a resumed plan would repeat a call whose changes exist."""
    plan = plans.done(write("1.txt", ""), write("2.txt", ""), write("3.txt", ""))
    plans.parts.sandbox_edits.rollback(plan, 2)
    plans.parts.sandbox_edits.rollback(plan, 3)
    assert plans.states_of(plan) == ["ended", "ended", "reverted", "reverted", "ended"]
    assert plans.diff(plan, "--name-only").split() == ["1.txt", "2.txt"]
    assert plans.resume(plan).state is PlanState.COMPLETE
    assert [call.step for call in plans.calls(plan)] == ["1", "2", "3", None, None, "3"]
    plans.ensure_consistent(plan)


def blocked(plans: PlanBench, plan: Plan) -> Plan:
    """Return the plan after an apply that a file of the user prevented."""
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(ApplyConflict):
        plans.apply(plan)
    return plans.now(plan)


def test_a_rollback_makes_a_blocked_result_ready_again(plans: PlanBench) -> None:
    plan = blocked(plans, plans.done(write("x.txt", "1\n"), edit("b.txt", "alpha", "beta")))
    assert status_text_of(plans.parts, plan) == "blocked: the result could not be applied"
    plans.parts.sandbox_edits.rollback(plan, 2)
    assert status_text_of(plans.parts, plan) == "ready: the result is ready for review"
    assert (needs_of(plans.parts, plan), obstacle_of(plans.parts, plan)) == ("review", None)
    actions = [step.action for step in steps_from(plans.parts, plan)]
    assert actions == ["plan.diff", "plan.resume", "plan.apply", "plan.reject"]
    assert plans.apply(plan).state is PlanState.APPLIED
    assert (plans.text("x.txt"), plans.text("b.txt")) == ("1\n", "the user's\n")


def test_a_result_without_changes_after_a_rollback_is_not_offered_to_apply(plans: PlanBench) -> None:
    plan = plans.done(edit("b.txt", "alpha", "beta"))
    plans.parts.sandbox_edits.rollback(plan, 1)
    assert status_text_of(plans.parts, plan) == "unchanged: all changes were rolled back"
    actions = [step.action for step in steps_from(plans.parts, plan)]
    assert actions == ["plan.resume", "plan.log", "plan.delete"]
    assert {"apply", "review", "rebase"}.isdisjoint(possible_actions(plans.parts, plan))


def test_a_result_that_is_blocked_after_a_rollback_stays_blocked(plans: PlanBench) -> None:
    plan = plans.done(edit("b.txt", "alpha", "beta"), write("x.txt", ""))
    plans.parts.sandbox_edits.rollback(plan, 2)
    plan = blocked(plans, plan)
    assert status_text_of(plans.parts, plan) == "blocked: the result could not be applied"
    assert {"plan.rebase", "plan.resume"} <= {step.action for step in steps_from(plans.parts, plan)}


def test_a_reverted_request_is_not_pending(plans: PlanBench) -> None:
    plan = plans.done(command("true", granted=True), write("x.txt", ""), profile="manual")
    assert plan.state is PlanState.WAITING
    plans.parts.sandbox_edits.rollback(plan, 2)
    assert plans.parts.lifecycle.asking(plan) is None
    plan = plans.resume(plan)
    assert plan.state is PlanState.WAITING
    assert plans.states_of(plan) == ["ended", "reverted", "ended", "asked"]
    assert plans.answer(plan, True).state is PlanState.COMPLETE


def test_an_unknown_checkpoint_changes_nothing(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    with pytest.raises(UnknownCheckpoint):
        plans.parts.sandbox_edits.rollback(plan, 7)
    assert plans.states_of(plan) == ["ended"]


def test_refuses_to_rewrite_a_running_or_ended_plan(plans: PlanBench) -> None:
    running = plans.plan(write("x.txt", ""))
    plans.parts.sandboxes.create(_request(plans, running))
    for rewrite in (
        plans.parts.sandbox_edits.reread,
        lambda plan: plans.parts.sandbox_edits.rollback(plan, 1),
    ):
        with pytest.raises((PlanError, UnknownCheckpoint)):
            rewrite(running)
    applied = plans.apply(plans.done(write("x.txt", "")))
    with pytest.raises(PlanError, match="already applied"):
        plans.parts.sandbox_edits.rollback(applied, 1)


def test_refuses_a_rollback_of_a_resumed_plan(plans: PlanBench) -> None:
    """The snapshot said that the plan rests; by now it runs, or has run."""
    plan = plans.done(write("x.txt", ""), command("exit 1"))
    plans.resume(plan)
    with pytest.raises(StalePlan):
        plans.parts.sandbox_edits.rollback(plan, 1)
    plans.parts.lifecycle.resume(plans.now(plan))
    with pytest.raises(PlanError, match="still running"):
        plans.parts.sandbox_edits.rollback(plans.now(plan), 1)


@pytest.mark.parametrize("nth", range(1, 7))
def test_the_next_process_finishes_an_interrupted_rollback(tmp_path: Path, nth: int) -> None:
    """At each of its commits; `tests/crash` does the same with a kill."""
    faults = Switch()
    with plan_bench(tmp_path, faults=faults) as plans:
        plan = plans.done(write("x.txt", "1\n"), edit("x.txt", "1", "2"))
        faults.inner = RaiseAt("store.write.after_commit", lambda: StoreBusy(1.0), nth)
        try:
            plans.parts.sandbox_edits.rollback(plan, 2)
        except StoreBusy:
            faults.inner = None
        faults.inner = None
        assert plans.resume(plan).state is PlanState.COMPLETE
        plans.ensure_consistent(plan)
        assert plans.diff(plan).count("+2") == 1
        assert "started" not in plans.states_of(plan)
        rolled_back = [call for call in plans.calls(plan) if call.tool == "rollback"]
        made = [call for call in plans.calls(plan) if call.step == "2"]
        assert len(made) == 1 + len(rolled_back)


class Switch:
    """Fault points that can be changed."""

    inner: RaiseAt | None = None

    def reach(self, name: str) -> None:
        if self.inner is not None:
            self.inner.reach(name)


def test_a_resume_refuses_unrecorded_edits(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"), command("test -e mended.txt"))
    assert plan.state is PlanState.ERRORED
    (plans.sandbox(plan).root / "mended.txt").touch()
    with pytest.raises(NeedsHuman, match=r"unrecorded edits in the sandbox: mended\.txt"):
        plans.parts.lifecycle.resume(plan)
    assert plans.parts.sandbox_edits.reread(plan) is not None
    assert plans.resume(plan).state is PlanState.COMPLETE
    assert plans.diff(plan, "--name-only").split() == ["mended.txt", "x.txt"]


NAMES = st.sampled_from(["a.txt", "b.txt", "folder/c.txt", "new.txt", "deep/er/new.txt", "run.sh"])
TEXTS = st.sampled_from(["", "x\n", "two\nthree\n", "no newline", "\x00binary\x01"])


def shell(action: str) -> StrategyStep:
    return command(action, continue_on_failure=True)


def appended(path: str, text: str) -> StrategyStep:
    return shell(f"mkdir -p $(dirname {path}); printf {text.encode('unicode_escape').decode()!r} >> {path}")


def leniently(made: StrategyStep) -> StrategyStep:
    return replace(made, continue_on_failure=True)


STEPS = st.one_of(
    st.builds(write, NAMES, TEXTS.filter(lambda text: "\x00" not in text)),
    st.builds(lambda path: edit(path, "two", "2"), NAMES),
    st.builds(lambda path: step("delete", path=path), NAMES),
    st.builds(lambda source, target: step("move", source=source, target=target), NAMES, NAMES),
    st.builds(
        lambda path, text: shell(f"mkdir -p $(dirname {path}); printf '{text!r}' >> {path}"), NAMES, TEXTS
    ),
    st.builds(lambda path: shell(f"rm -rf {path}; mkdir -p {path}; echo inside > {path}/file"), NAMES),
    st.builds(lambda path: shell(f"chmod a+x {path}; ln -sf {path} link"), NAMES),
    st.builds(
        lambda one, two: shell(f"mkdir -p $(dirname {two}); cp {one} {two}; mv {two} moved"), NAMES, NAMES
    ),
).map(leniently)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(STEPS, min_size=2, max_size=6), st.lists(st.integers(1, 99), max_size=3))
def test_the_records_always_match_the_sandbox_and_every_checkpoint(
    engine: PlanBench, steps: list[StrategyStep], checkpoints: list[int]
) -> None:
    """RooCodeInc/Roo-Code#6209: a restored checkpoint deleted most of a codebase."""
    home = Path(tempfile.mkdtemp())
    try:
        engine.repository = new_repository(home / "repository")
        engine.adapt = lambda run: run
        plan = engine.done()
        _made_one_by_one(engine, plan, steps, checkpoints)
    finally:
        shutil.rmtree(home)


def test_a_running_plan_records_on_top_of_other_records(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"), write("y.txt", "1\n"))
    execution = _execution(plans, plan)
    execution.settle()
    plans.parts.sandbox_edits.rollback(plans.now(plan), 2)
    (plans.sandbox(plan).root / "b.txt").write_text("by hand\n")
    plans.parts.sandbox_edits.reread(plans.now(plan))
    call = execution.call(CallRequest("3", "command", {"script": "echo 2 >> x.txt"}))
    changes = [change for change in plans.parts.history.changes(plan.id) if change.entry.tool_call_id]
    assert [one.entry.path for one in changes if one.changeset_id == call.changeset_id] == ["x.txt"]
    plans.ensure_consistent(plan)
    _ensure_found(plans, plan, execution)


def test_a_package_tool_may_be_named_rollback(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    now = plans.container.clock.now()
    plans.parts.calls.add(plan.id, "rollback", {"to": 7}, step="2", state=CallState.ENDED, now=now)
    assert plans.states_of(plan) == ["ended", "ended"]


def _made_one_by_one(bench: PlanBench, plan: Plan, steps: list[StrategyStep], checkpoints: list[int]) -> None:
    """Note every state before a call; a rollback must restore it exactly."""
    sandbox = bench.sandbox(plan)
    before: dict[int, dict[str, Difference]] = {}
    execution = _execution(bench, plan)
    for number, one in enumerate(steps, start=1):
        before[number] = dict(sandbox.scan())
        execution.call(CallRequest(str(number), one.tool, one.arguments))
        bench.ensure_consistent(plan)
    for wish in checkpoints:
        count = len(bench.calls(plan))
        checkpoint = 1 + wish % count
        before[count + 1] = dict(sandbox.scan())
        bench.parts.sandbox_edits.rollback(bench.now(plan), checkpoint)
        assert sandbox.scan() == before[checkpoint]
        bench.ensure_consistent(plan)
        _ensure_found(bench, plan, execution)


def _ensure_found(bench: PlanBench, plan: Plan, execution: ToolExecution) -> None:
    """The valid call of a step is the last one that no rollback reverted."""
    calls = bench.calls(plan)
    for step_name in {str(call.step) for call in calls} | {"no such step"}:
        counting = [call for call in calls if call.step == step_name and call.state.value != "reverted"]
        assert execution.earlier(step_name) == (counting[-1] if counting else None)


def _execution(bench: PlanBench, plan: Plan) -> ToolExecution:
    strategy = bench.strategies[plan.id]
    job = bench.owned_job(plan)
    return bench.handler().open_execution(plan, strategy, bench.sandbox(plan), job)


def _request(plans: PlanBench, plan: Plan) -> SandboxRequest:
    return SandboxRequest(plan.id, plans.repository)
