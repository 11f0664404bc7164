"""Actions of people on plans: resume, discard, cancel, delete, clean up; and refusals."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from cleveragents.api.plans.budget import more_time
from cleveragents.changes.model.review import ReviewKind
from cleveragents.core.actions.model import CheckRun
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import (
    IllegalPlanMove,
    NeedsHuman,
    PlanError,
    PolicyDenied,
    SandboxBusy,
    SandboxMissing,
    StalePlan,
    StoreBusy,
    UnknownPlan,
)
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.tool import CallState
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.checks import CheckEnvironment
from cleveragents.plans.history import restore_states
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.output_recorder import PlanWatch
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts
from cleveragents.plans.run import kind_of_plan
from cleveragents.sandboxes.git_sandbox import Sandbox
from tests.plan_bench import PlanBench, command, write

DEAD = WorkerIdentity("dead", "", 999_999_999, 1)


def claimed_by_the_dead(plans: PlanBench, plan: Plan) -> None:
    """The store says that the job runs, but its owner is gone."""
    owner = changed(DEAD, host=plans.container.processes.identity("me").host)
    job = plans.container.jobs.claim(owner, [kind_of_plan(plan.id)], now=SystemClock().now())
    assert job is not None


def move(plans: PlanBench, plan: Plan, phase: Phase, state: PlanState) -> Plan:
    return plans.parts.plans.move(plans.now(plan), (phase, state), now=SystemClock().now())


def test_resume_repeats_only_the_failed_call(plans: PlanBench) -> None:
    plan = plans.done(
        command("echo 1 >> runs.log"), command("echo half > half.txt; echo 2 >> runs.log; test -e ready.log")
    )
    assert plan.state is PlanState.ERRORED
    assert plans.resume(plan).state is PlanState.ERRORED
    (plans.sandbox(plan).root / "ready.log").touch()
    plan = plans.resume(plan)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert plan.error is None
    assert (plans.sandbox(plan).root / "runs.log").read_text() == "1\n2\n2\n2\n"
    plans.ensure_consistent(plan)


def test_resume_after_another_failure_repeats_nothing(plans: PlanBench) -> None:
    # Its budget ends it, and must be long enough for it to start.
    slow = command("echo 1 >> runs.log; sleep 60", continue_on_failure=True)
    for seconds in (2.0, 10.0, 50.0):
        plan = plans.done(slow, write("x.txt", ""), limit_seconds=seconds)
        assert plan.state is PlanState.ERRORED
        if plans.calls(plan) and (plans.sandbox(plan).root / "runs.log").exists():
            break
    assert plans.resume(plan).state is PlanState.ERRORED
    assert (plans.sandbox(plan).root / "runs.log").read_text() == "1\n"


def test_resume_creates_a_missing_sandbox(plans: PlanBench) -> None:
    plan = plans.done(command("exit 1"))
    plans.parts.sandboxes.remove(plan.id)
    plan = plans.resume(plan)
    assert plan.state is PlanState.ERRORED
    assert plans.sandbox(plan).root.is_dir()


def test_a_plan_that_failed_early_can_be_resumed(plans: PlanBench) -> None:
    plan = plans.plan(write("x.txt", ""))
    kept = plans.strategies.pop(plan.id)
    plan = plans.work(plan)
    assert plan.phase_state == (Phase.STRATEGIZE, PlanState.ERRORED)
    plans.strategies[plan.id] = kept
    assert plans.resume(plan).state is PlanState.COMPLETE


def test_a_plan_that_was_never_queued_can_be_resumed(plans: PlanBench) -> None:
    """Its creator died before it had a job (langwatch/langwatch#3195: stuck in STARTING for good)."""
    new = PlanDraft("a goal", "tests/steps", str(plans.repository))
    plan = plans.parts.plans.create(new, now=SystemClock().now())
    plans.strategies[plan.id] = Strategy((write("x.txt", ""),), profile="full-auto")
    assert plans.resume(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)


def test_resume_reuses_an_unowned_job(plans: PlanBench) -> None:
    plan = plans.plan(write("x.txt", ""))
    assert plans.parts.lifecycle.resume(plan) == plan
    assert plans.work(plan).state is PlanState.COMPLETE


def test_resumes_a_plan_between_two_phases(plans: PlanBench) -> None:
    """A worker died after Strategize was complete and before Execute was queued."""
    plan = plans.plan(write("x.txt", ""))
    move(plans, plan, Phase.STRATEGIZE, PlanState.PROCESSING)
    facts = PlanFacts(strategy=plans.strategies[plan.id].to_json())
    complete = (Phase.STRATEGIZE, PlanState.COMPLETE)
    plans.parts.plans.move(plans.now(plan), complete, facts, now=SystemClock().now())
    assert plans.work(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)


def test_resumes_the_plan_of_a_dead_worker_at_once(plans: PlanBench) -> None:
    """bytedance/deer-flow#1087: after a crash it counted as running for good, and blocked the queue."""
    plan = plans.plan(write("x.txt", ""))
    claimed_by_the_dead(plans, plan)
    assert not plans.parts.lifecycle.has_worker(plan)
    assert plans.resume(plan).state is PlanState.COMPLETE
    job = plans.container.jobs.get(str(plan.job_id))
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)


def test_a_plan_without_attempts_left_gets_a_new_job(plans: PlanBench) -> None:
    plan = plans.plan(write("x.txt", ""))
    for _ in range(2):
        claimed_by_the_dead(plans, plan)
        plan = plans.parts.lifecycle.resume(plans.now(plan))
    claimed_by_the_dead(plans, plan)
    job = plans.container.jobs.get(str(plan.job_id))
    plans.container.jobs.reclaim(
        job.id, job.fence, job.beat, error="its worker died", now=SystemClock().now()
    )
    plan = plans.parts.lifecycle.reconciled(plan)
    assert plan.state is PlanState.ERRORED
    assert "its worker died" in str(plan.error)
    again = plans.parts.lifecycle.resume(plan)
    assert again.job_id != job.id
    assert plans.work(again).state is PlanState.COMPLETE


def test_refuses_to_resume_a_running_plan(plans: PlanBench) -> None:
    plan = plans.plan(write("x.txt", ""))
    me = plans.container.processes.identity("me")
    plans.container.jobs.claim(me, [kind_of_plan(plan.id)], now=SystemClock().now())
    assert plans.parts.lifecycle.has_worker(plan)
    with pytest.raises(PlanError, match="already running"):
        plans.parts.lifecycle.resume(plan)


def test_refuses_to_resume_an_ended_or_applying_plan(plans: PlanBench) -> None:
    rejected = plans.parts.lifecycle.reject(plans.done(write("x.txt", "")))
    with pytest.raises(PlanError, match="final"):
        plans.parts.lifecycle.resume(rejected)
    constrained = plans.done(write("x.txt", ""))
    for state in (PlanState.QUEUED, PlanState.PROCESSING, PlanState.CONSTRAINED):
        move(plans, constrained, Phase.APPLY, state)
        with pytest.raises(PlanError, match="an apply cannot be resumed"):
            plans.parts.lifecycle.resume(plans.now(constrained))


def test_a_discarded_result_changes_no_files(plans: PlanBench) -> None:
    plan = plans.parts.lifecycle.reject(plans.done(write("x.txt", "")))
    assert plan.phase_state == (Phase.APPLY, PlanState.REJECTED)
    with pytest.raises(IllegalPlanMove):
        plans.apply(plan)
    assert not (plans.repository / "x.txt").exists()
    with pytest.raises(IllegalPlanMove):
        plans.parts.lifecycle.reject(plan)


@pytest.mark.parametrize("where", ["queued", "waiting", "complete", "errored", "constrained"])
def test_cancels_an_idle_plan_at_once_and_only_once(plans: PlanBench, where: str) -> None:
    steps = [command("exit 1")] if where == "errored" else [write("x.txt", "")]
    plan = plans.plan(*steps, profile="manual" if where == "waiting" else "full-auto")
    if where != "queued":
        plan = plans.work(plan)
    if where == "constrained":
        for state in (PlanState.QUEUED, PlanState.PROCESSING, PlanState.CONSTRAINED):
            move(plans, plan, Phase.APPLY, state)
    assert plans.now(plan).state.value == where
    cancelled = plans.cancel(plan, "first")
    assert cancelled.state is PlanState.CANCELLED
    assert cancelled.error == "cancelled: first"
    assert plans.cancel(plan, "second") == cancelled
    assert plans.work(plan) == cancelled
    with pytest.raises((PlanError, IllegalPlanMove)):
        plans.apply(plan)
    with pytest.raises(PlanError, match="no approval is pending"):
        plans.parts.lifecycle.answer(cancelled, True)


def test_cancels_the_plan_of_a_dead_worker(plans: PlanBench) -> None:
    plan = plans.plan(write("x.txt", ""))
    claimed_by_the_dead(plans, plan)
    assert plans.cancel(plan, "gone").error == "cancelled: gone"
    assert plans.container.jobs.get(str(plan.job_id)).state is JobState.CANCELLED


def test_cancels_a_plan_that_was_read_earlier(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    plans.resume(plan)
    assert plans.now(plan).version > plan.version
    assert plans.parts.lifecycle.cancel(plan, "late").state is PlanState.CANCELLED


def test_a_stale_read_does_not_move_a_plan_back(plans: PlanBench) -> None:
    queued = plans.plan(write("x.txt", ""))
    cancelled = plans.cancel(queued)
    assert plans.parts.lifecycle.reconciled(queued) == cancelled


def test_a_plan_with_an_unknown_job_has_no_worker(plans: PlanBench) -> None:
    plan = plans.plan(write("x.txt", ""))
    assert not plans.parts.lifecycle.has_worker(changed(plan, job_id="no such job"))
    assert plans.parts.lifecycle.asking(plan) is None


def test_ends_the_orphaned_job_of_a_finished_plan(plans: PlanBench) -> None:
    """bytedance/deer-flow#1087: jobs counted as running without a worker."""
    plan = plans.plan(write("x.txt", ""))
    claimed_by_the_dead(plans, plan)
    for standing in (
        (Phase.STRATEGIZE, PlanState.PROCESSING),
        (Phase.STRATEGIZE, PlanState.COMPLETE),
        (Phase.EXECUTE, PlanState.QUEUED),
        (Phase.EXECUTE, PlanState.PROCESSING),
        (Phase.EXECUTE, PlanState.COMPLETE),
    ):
        move(plans, plan, *standing)
    done = plans.now(plan)
    assert plans.parts.lifecycle.reconciled(done) == done
    assert plans.container.jobs.get(str(plan.job_id)).state is JobState.CANCELLED


def test_refuses_to_cancel_an_ended_plan(plans: PlanBench) -> None:
    plan = plans.apply(plans.done(write("x.txt", "")))
    with pytest.raises(PlanError, match="already applied"):
        plans.cancel(plan)
    assert plans.now(plan).state is PlanState.APPLIED


def test_refuses_to_cancel_an_applying_plan(plans: PlanBench) -> None:
    """Its files would be in the user's tree, and its state would deny it."""
    plan = plans.done(write("x.txt", ""))
    for state in (PlanState.QUEUED, PlanState.PROCESSING):
        move(plans, plan, Phase.APPLY, state)
        with pytest.raises(PlanError, match="an apply is running"):
            plans.cancel(plan)


def test_a_cancel_at_the_end_of_the_run_wins(plans: PlanBench) -> None:
    """strands-agents/harness-sdk#4419: a cancelled child was reported as completed."""
    cancelled: list[Plan] = []

    def meanwhile(what: str) -> None:
        if what.startswith("step 2"):
            cancelled.append(plans.cancel(plan, "at the last moment"))

    plans.adapt = lambda run: replace(run, watch=lambda plan: PlanWatch(meanwhile))
    # The last call only reads, so the run does not look at its token again.
    plan = plans.plan(write("x.txt", ""), write("y.txt", ""))
    plan = plans.work(plan)
    assert cancelled[0].state is PlanState.PROCESSING
    assert plan.state is PlanState.CANCELLED
    assert plan.error == "cancelled: at the last moment"


def test_a_cancel_before_the_job_report_wins(plans: PlanBench) -> None:
    plan = plans.plan(write("x.txt", ""))
    handler = plans.handler()
    cancelled: list[Plan] = []

    def then_cancel(run: object) -> object:
        return lambda job: (handler(job), cancelled.append(plans.cancel(plan)))[0]

    plans.adapt = then_cancel
    plans.work(plan)
    assert cancelled[0].state is PlanState.CANCELLED
    assert plans.now(plan).state is PlanState.CANCELLED


def test_a_cancel_records_unfinished_changes(plans: PlanBench) -> None:
    """The call says that it was cancelled, so the diff shows what the sandbox holds."""

    def on_output(chunk: bytes) -> None:
        plans.cancel(plan, "enough")
        tokens[0].cancel("enough")

    tokens: list[CancellationToken] = []
    handler = plans.handler()

    def listening(*given: object) -> object:
        tokens.append(given[3].token)
        return replace(handler.open_execution(*given), on_output=on_output)

    plans.adapt = lambda run: replace(handler, open_execution=listening)
    plan = plans.plan(command("echo x > half.txt; echo done; sleep 60"))
    plan = plans.work(plan)
    assert plan.state is PlanState.CANCELLED
    [call] = plans.calls(plan)
    assert (call.state.value, call.error) == ("failed", "cancelled: enough")
    assert plans.diff(plan, "--name-only").split() == ["half.txt"]
    plans.ensure_consistent(plan)


def test_deletes_a_plan_with_its_sandbox(plans: PlanBench) -> None:
    """langchain-ai/langgraph#7206: late writes brought a deleted thread back."""
    plan = plans.done(write("x.txt", ""))
    root = plans.sandbox(plan).root
    with pytest.raises(PlanError, match="still running"):
        plans.parts.cleanup.delete(plans.plan(write("x.txt", "")))
    plans.parts.cleanup.delete(plan)
    assert not root.exists()
    now = SystemClock().now()
    with pytest.raises(UnknownPlan):
        plans.parts.calls.add(plan.id, "late", {}, step=None, state=CallState.STARTED, now=now)
    with pytest.raises(UnknownPlan):
        plans.now(plan)
    with pytest.raises(SandboxMissing):
        plans.sandbox(plan)


def test_refuses_to_delete_a_resumed_plan(plans: PlanBench) -> None:
    plan = plans.done(command("exit 1"))
    plans.parts.lifecycle.resume(plan)
    with pytest.raises(StalePlan):
        plans.parts.cleanup.delete(plan)
    assert plans.sandbox(plan).root.is_dir()


def test_collects_only_unneeded_sandboxes(plans: PlanBench) -> None:
    applied = plans.apply(plans.done(write("x.txt", "")))
    cancelled = plans.cancel(plans.done(write("y.txt", "")))
    nothing = plans.done(command("exit 1"))
    kept = [
        plans.done(write("undecided.txt", "")),
        plans.done(command("true"), profile="manual"),
        plans.done(command("echo x > half.txt; exit 1")),
    ]
    edited = plans.done(command("exit 1"))
    (plans.sandbox(edited).root / "mine.txt").write_text("by hand")
    mine = {plan.id for plan in (applied, cancelled, nothing, edited, *kept)}
    wanted = {applied.id, cancelled.id, nothing.id}
    collect = plans.parts.cleanup.collect
    assert not mine & {freed.plan_id for freed in collect(timedelta(days=30))}
    assert mine & {freed.plan_id for freed in collect(timedelta(0), dry_run=True)} == wanted
    assert plans.sandbox(applied).root.is_dir()
    with plans.sandbox(cancelled).writing():
        assert mine & {freed.plan_id for freed in collect(timedelta(0))} == wanted - {cancelled.id}
    assert mine & {freed.plan_id for freed in collect(timedelta(0))} == {cancelled.id}
    for plan in (*kept, edited):
        assert plans.sandbox(plan).root.is_dir()
    is_past, now = plans.parts.cleanup.is_past, plans.container.clock.now()
    assert {plan_id for plan_id in mine if is_past(plan_id, now)} == {applied.id, cancelled.id}
    assert not is_past(applied.id, now - timedelta(days=1))
    assert is_past("nobody", now)


def test_the_threads_of_sessions_outlive_a_cleanup_of_plans(plans: PlanBench) -> None:
    """A turn that was stopped continues after its last finished call, which its thread holds."""
    applied = plans.apply(plans.done(write("a.txt", "")))
    deleted: list[str] = []
    names = [f"{applied.id}/1", "SESSION/turn/1", "SESSION/compact/2", "GONE/execute"]
    checkpoints: Any = SimpleNamespace(threads=lambda: names, delete_threads=deleted.append)
    cleanup = replace(plans.parts.cleanup, checkpoints=checkpoints)
    assert set(cleanup.forget_conversations(timedelta(0))) == set(deleted) == {applied.id, "GONE"}


def test_a_raised_time_limit_doubles_the_default(plans: PlanBench) -> None:
    plan = plans.done(command("true"))
    hour = changed(Strategy.from_json(plan.strategy), limit_seconds=3600.0)
    assert more_time(plans.parts, changed(plan, strategy=hour.to_json())) == 7200
    assert more_time(plans.parts, changed(plan, strategy=None)) == 7200


def test_a_quota_removes_the_oldest_ended_sandboxes(plans: PlanBench) -> None:
    plans.parts.cleanup.collect(timedelta(0))
    ended = [plans.cancel(plans.done(write("x.txt", ""))) for _ in range(3)]
    sizes = plans.parts.sandboxes.sizes()
    quota = sum(sizes.values()) - sizes[ended[0].id] - 1
    freed = plans.parts.cleanup.collect(timedelta(days=30), quota_bytes=quota)
    assert [(one.plan_id, one.state, one.bytes) for one in freed] == [
        (plan.id, "cancelled", sizes[plan.id]) for plan in ended[:2]
    ]
    assert plans.parts.cleanup.collect(timedelta(days=30), quota_bytes=quota) == []


def test_collects_the_sandbox_of_a_deleted_plan(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    with plans.sandbox(plan).writing():
        plans.parts.cleanup.delete(plan)
    assert plans.sandbox(plan).root.is_dir()
    freed = plans.parts.cleanup.collect(timedelta(days=30))
    assert [one.state for one in freed if one.plan_id == plan.id] == ["deleted"]
    with pytest.raises(SandboxMissing):
        plans.sandbox(plan)


def test_refuses_to_apply_a_plan_without_a_result(plans: PlanBench) -> None:
    with pytest.raises(PlanError, match="no result yet"):
        plans.apply(plans.plan(write("x.txt", "")))
    failed = plans.done(write("x.txt", ""), command("exit 1"))
    with pytest.raises(IllegalPlanMove):
        plans.apply(failed)
    assert plans.now(failed) == failed


def test_a_policy_can_deny_the_apply(plans: PlanBench) -> None:
    plan = plans.done(profile="ci", action_profile="review")
    with pytest.raises(PolicyDenied):
        plans.apply(plan)


def test_an_applied_plan_is_undone_once(plans: PlanBench) -> None:
    plan = plans.apply(plans.done(write("x.txt", "")))
    undone, _ = plans.parts.apply.undo(plan)
    assert undone.phase_state == (Phase.APPLY, PlanState.UNDONE)
    assert not (plans.repository / "x.txt").exists()
    with pytest.raises(PlanError, match="only an applied plan"):
        plans.parts.apply.undo(undone)


def test_the_journal_decides_after_a_store_failure_in_an_apply(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    apply = plans.parts.apply

    def unavailable(*given: object) -> object:
        raise StoreBusy(1.0)

    broken = changed(apply, checks=unavailable)
    with pytest.raises(StoreBusy):
        broken.apply(plan, CancellationToken())
    assert plans.now(plan).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    apply.settle()
    assert plans.now(plan).state is PlanState.ERRORED
    assert "apply it again" in str(plans.now(plan).error)
    assert plans.apply(plan).state is PlanState.APPLIED


def test_settle_leaves_a_running_apply_alone(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    sandbox = plans.sandbox(plan)
    tree = plans.parts.result.tree(plan, sandbox)
    with plans.parts.applier.prepare(plan.id, sandbox, tree):
        move(plans, plan, Phase.APPLY, PlanState.QUEUED)
        plans.parts.apply.settle()
        assert plans.now(plan).state is PlanState.QUEUED
    plans.parts.apply.settle()
    assert plans.now(plan).state is PlanState.ERRORED


class DyingChecks:
    """Stands for a process that is killed while a check runs on the merged result."""

    def run(self, checks: object, ground: CheckEnvironment, **_: object) -> Sequence[CheckRun]:
        restore_states(ground.sandbox, ground.states)
        raise StoreBusy(1.0)


def test_settle_restores_files_of_a_killed_check(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"), write("y.txt", "1\n"))
    plans.parts.result.review(plan, ReviewKind.PATH, "y.txt", accepted=False)
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(StoreBusy):
        changed(plans.parts.apply, checks=lambda resource: DyingChecks()).apply(plan, CancellationToken())
    root = plans.sandbox(plan).root
    assert ((root / "b.txt").read_text(), (root / "y.txt").exists()) == ("the user's\n", False)
    under_way = plans.now(plan).waiting_for
    assert isinstance(under_way, Mapping)
    assert (under_way["what"], set(under_way)) == ("the apply that is running", {"what", "merged_tree"})
    plans.parts.apply.settle()
    assert plans.now(plan).waiting_for is None
    assert plans.parts.history.unrecorded(plan.id, plans.sandbox(plan)) == {}
    assert (root / "y.txt").read_text() == "1\n"


def test_settle_waits_for_a_busy_sandbox_and_restores_it(
    plans: PlanBench,
) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(StoreBusy):
        changed(plans.parts.apply, checks=lambda resource: DyingChecks()).apply(plan, CancellationToken())
    sandbox = plans.sandbox(plan)
    settling = threading.Thread(target=plans.parts.apply.settle)
    with sandbox.writing():
        settling.start()
        settling.join(0.2)  # a settle that does not wait has ended by then
        assert plans.now(plan).state is PlanState.PROCESSING
    settling.join(60)
    assert plans.now(plan).state is PlanState.ERRORED
    assert plans.parts.history.unrecorded(plan.id, sandbox) == {}


@pytest.mark.parametrize("fenced", [False, True], ids=["settled", "taken up"])
def test_restores_merged_files_before_the_plan_moves(plans: PlanBench, fenced: bool) -> None:
    plans.parts.apply.settle()  # or the next move may belong to a plan of another test
    plan = plans.done(write("x.txt", "1\n"))
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(StoreBusy):
        changed(plans.parts.apply, checks=lambda resource: DyingChecks()).apply(plan, CancellationToken())

    class Dying:
        """A store whose process is killed at the next move, before or after the move is stored."""

        def __init__(self, kept: bool) -> None:
            self._kept = kept

        def __getattr__(self, name: str) -> object:
            return getattr(plans.parts.plans, name)

        def move(self, *given: object, **named: object) -> Plan:
            if self._kept:
                plans.parts.plans.move(*given, **named)
            raise SystemExit

    for kept in (False, True):
        dying = changed(plans.parts.apply, plans=Dying(kept))
        with pytest.raises(SystemExit):
            dying.taken_up(plans.now(plan), None) if fenced else dying.settle()
    assert plans.now(plan).state is PlanState.ERRORED
    assert plans.parts.history.unrecorded(plan.id, plans.sandbox(plan)) == {}
    assert plans.apply(plan).state is PlanState.APPLIED


def test_a_stale_settle_restores_nothing(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(StoreBusy):
        changed(plans.parts.apply, checks=lambda resource: DyingChecks()).apply(plan, CancellationToken())
    before = plans.now(plan)
    plans.parts.apply.settle()
    # An edit of a person that equals the merged file.
    (plans.sandbox(plan).root / "b.txt").write_text("the user's\n")

    class Slow:
        """A store whose process read the plan a while ago."""

        def __getattr__(self, name: str) -> object:
            return getattr(plans.parts.plans, name)

        def list(self, **_: object) -> Sequence[Plan]:
            return [before]

    changed(plans.parts.apply, plans=Slow()).settle()
    assert (plans.sandbox(plan).root / "b.txt").read_text() == "the user's\n"
    assert plans.now(plan).state is PlanState.ERRORED


@pytest.mark.parametrize("what", ["gone", "damaged", "out of reach"])
def test_settles_an_interrupted_apply_without_a_usable_sandbox(plans: PlanBench, what: str) -> None:
    """Otherwise it could never be applied again, cancelled or deleted."""
    plan = plans.done(write("x.txt", "1\n"))
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(StoreBusy):
        changed(plans.parts.apply, checks=lambda resource: DyingChecks()).apply(plan, CancellationToken())
    applying = plans.parts.apply
    if what == "gone":
        plans.parts.sandboxes.remove(plan.id)
    elif what == "damaged":
        (plans.sandbox(plan).repository.directory / "HEAD").unlink()
    else:
        applying = changed(applying, sandboxes=Unreadable())
    applying.settle()
    assert plans.now(plan).state is PlanState.ERRORED


class Unreadable:
    """Sandboxes on a disk with read errors."""

    def open(self, plan_id: str) -> Sandbox:
        raise OSError(errno.EIO, "Input/output error")


def test_settle_keeps_edits_in_the_sandbox(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(StoreBusy):
        changed(plans.parts.apply, checks=lambda resource: DyingChecks()).apply(plan, CancellationToken())
    root = plans.sandbox(plan).root
    (root / "a.txt").write_text("by hand\n")
    (root / "x.txt").write_text("by hand\n")
    plans.parts.apply.settle()
    assert plans.now(plan).state is PlanState.ERRORED
    assert [(root / name).read_text() for name in ("a.txt", "x.txt", "b.txt")] == [
        "by hand\n",
        "by hand\n",
        "alpha\n",
    ]
    with pytest.raises(NeedsHuman, match=r"a\.txt, x\.txt"):
        plans.apply(plan)


def test_a_busy_sandbox_blocks_the_apply_until_retried(
    plans: PlanBench,
) -> None:
    plan = plans.done(write("x.txt", "1\n"))

    def busy(*given: object) -> object:
        raise SandboxBusy(plan.id)

    with pytest.raises(SandboxBusy):
        changed(plans.parts.apply, checks=busy).apply(plan, CancellationToken())
    assert plans.now(plan).phase_state == (Phase.APPLY, PlanState.CONSTRAINED)
    assert plans.apply(plan).state is PlanState.APPLIED


def test_a_failed_settle_does_not_stop_the_others(plans: PlanBench) -> None:
    broken, other = (plans.done(write(f"{n}.txt", "1\n")) for n in range(2))
    for plan in (broken, other):
        for state in (PlanState.QUEUED, PlanState.PROCESSING):
            facts = PlanFacts(waiting_for={"merged_tree": "no such tree"})
            plans.parts.plans.move(plans.now(plan), (Phase.APPLY, state), facts, now=SystemClock().now())
    plans.parts.apply.settle()
    assert [plans.now(plan).state for plan in (broken, other)] == [PlanState.ERRORED] * 2
