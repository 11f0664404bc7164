"""A plan's run: the order of its steps, its ends, its requests, and what it never repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.core.actions.model import Check, Setup
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import Cancelled, PlanError, StalePlan, StoreBusy
from cleveragents.core.policy import PROFILES
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken
from cleveragents.plans.calls.tool_execution import CallRequest
from cleveragents.plans.history import PlanHistory
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy, StrategyStep
from cleveragents.testing.clock import RaiseAt
from tests.plan_bench import PlanBench, command, edit, step, write

words = st.text(min_size=1, max_size=8)
steps = st.builds(
    lambda **facts: StrategyStep(**facts),
    name=words,
    tool=words,
    arguments=st.dictionaries(words, st.one_of(words, st.booleans(), st.lists(words)), max_size=3),
    continue_on_failure=st.booleans(),
    expect_exit=st.lists(st.integers(0, 255), max_size=3).map(tuple),
    granted=st.booleans(),
)
strategies = st.builds(
    lambda **facts: Strategy(**facts),
    steps=st.lists(steps, max_size=3).map(tuple),
    checks=st.lists(st.builds(Check, words, words, st.booleans(), st.floats(1, 9)), max_size=2).map(tuple),
    profile=st.sampled_from(sorted(PROFILES)),
    action_profile=st.sampled_from([None, *PROFILES]),
    setup=st.none()
    | st.builds(Setup, words, st.lists(words).map(tuple), st.lists(words, max_size=2).map(tuple)),
    include=st.lists(words, max_size=2).map(tuple),
    limit_seconds=st.floats(0.1, 9999),
    limit_steps=st.integers(1, 99),
    invariants=st.lists(words, max_size=2).map(tuple),
    directory=words,
)


@given(strategies)
def test_a_strategy_survives_storage(strategy: Strategy) -> None:
    back = Strategy.from_json(strategy.to_json())
    assert back.to_json() == strategy.to_json()
    assert [dict(one.arguments).keys() for one in back.steps] == [
        one.arguments.keys() for one in strategy.steps
    ]
    changes = {"steps": (), "checks": strategy.checks}
    assert changed(back, **changes) == changed(strategy, **changes)
    assert [changed(one, arguments={}) for one in back.steps] == [
        changed(one, arguments={}) for one in strategy.steps
    ]


def test_an_actions_profile_tightens_the_users_and_never_loosens_it() -> None:
    strict = Strategy((), profile="full-auto", action_profile="manual").policy
    assert strict.verdicts == Strategy((), profile="manual", action_profile="full-auto").policy.verdicts


def test_steps_run_in_order_on_each_others_changes(plans: PlanBench) -> None:
    plan = plans.done(
        write("new.txt", "1\n"),
        edit("new.txt", "1", "2"),
        command("echo 3 >> new.txt"),
        step("read", path="new.txt"),
    )
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    calls = plans.calls(plan)
    assert [(call.number, call.step, call.tool) for call in calls] == [
        (1, "1", "write"),
        (2, "2", "edit"),
        (3, "3", "command"),
        (4, "4", "read"),
    ]
    assert isinstance(calls[3].result, Mapping)
    assert "3" in str(calls[3].result["content"])
    changes = plans.parts.history.changes(plan.id)
    assert [(change.entry.kind.value, change.entry.tool_call_id) for change in changes] == [
        ("create", calls[0].call_id),
        ("modify", calls[1].call_id),
        ("modify", calls[2].call_id),
    ]
    assert [change.changeset_id for change in changes] == [call.changeset_id for call in calls[:3]]
    plans.ensure_consistent(plan)
    assert not (plans.repository / "new.txt").exists()


def test_a_failed_step_fails_the_plan_with_its_last_output(plans: PlanBench) -> None:
    plan = plans.done(command("echo start; seq 900; echo the end; exit 4"), write("never.txt", ""))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.ERRORED)
    assert plan.error is not None
    assert "exit code 4" in plan.error
    assert plan.error.endswith("the end")
    assert "start" not in plan.error
    assert plans.states_of(plan) == ["ended"]


def test_an_internal_error_names_the_log_with_its_traceback(plans: PlanBench) -> None:
    def broken(plan: Plan) -> Strategy:
        raise ZeroDivisionError("token sk-abcdefghijklmnopqrstuvwxyz0123")

    plan = plans.plan(write("never.txt", ""))
    with pytest.raises(ZeroDivisionError):
        replace(plans.handler(), make_strategy=broken)(plans.owned_job(plan))
    log = plans.container.state_directory / "errors.log"
    error = str(plans.now(plan).error)
    assert error.startswith("internal error (ZeroDivisionError: ")
    assert error.endswith(f"); the details are in {log}")
    kept = log.read_text()
    assert f"plan: {plan.id}" in kept
    assert "in broken" in kept
    assert "sk-abc" not in kept + error


def test_a_refusal_of_a_tool_fails_the_plan(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "no such text", ""))
    assert plan.state is PlanState.ERRORED
    assert plans.states_of(plan) == ["failed"]
    assert str(plans.calls(plan)[0].error) in str(plan.error)


@pytest.mark.parametrize(
    "refused",
    [step("write", path="../out.txt", content=""), step("no-such-tool"), step("write", pth="x")],
    ids=["outside", "unknown", "invalid"],
)
def test_a_call_that_cannot_be_made_is_recorded_as_failed(plans: PlanBench, refused: StrategyStep) -> None:
    plan = plans.done(changed(refused, continue_on_failure=True), write("after.txt", ""))
    assert plan.state is PlanState.COMPLETE
    assert plans.states_of(plan) == ["failed", "ended"]
    assert plans.done(refused, write("after.txt", "")).state is PlanState.ERRORED


def test_a_step_may_continue_on_failure(plans: PlanBench) -> None:
    plan = plans.done(
        command("echo x > half.txt; exit 1", continue_on_failure=True), command("exit 3", expect_exit=(0, 3))
    )
    assert plan.state is PlanState.COMPLETE
    assert list(plans.parts.history.differences(plan.id)) == ["half.txt"]


def test_a_plan_stops_at_its_time_limit(plans: PlanBench) -> None:
    for seconds in (2.0, 10.0, 50.0):  # the plan may end before anything starts
        plan = plans.done(command("echo begun; sleep 60"), write("never.txt", ""), limit_seconds=seconds)
        assert plan.state is PlanState.ERRORED
        if "begun" in str(plan.error):
            break
    assert "timed out: begun" in str(plan.error)
    waiting = command("sleep 60", continue_on_failure=True)
    for seconds in (2.0, 10.0, 50.0):
        late = plans.done(waiting, write("never.txt", ""), limit_seconds=seconds)
        assert f"time limit of {seconds:g} s" in str(late.error)
        if plans.states_of(late):
            break
    assert plans.states_of(late) == ["ended"]
    # Time of earlier attempts counts, otherwise every attempt would get a full budget.
    assert f"time limit of {seconds:g} s" in str(plans.resume(late).error)
    assert plans.states_of(late) == ["ended"]


def test_a_plan_beyond_the_step_limit_runs_no_step(plans: PlanBench) -> None:
    plan = plans.done(write("1.txt", ""), write("2.txt", ""), limit_steps=1)
    assert "the plan exceeded its limit of 1 steps" in str(plan.error)
    assert plans.states_of(plan) == []


def test_waits_for_approval_and_continues_without_repeating_calls(
    plans: PlanBench,
) -> None:
    """The first run counts in an unrecorded file, which would show a repetition."""
    counted = command("echo once >> count.log; echo x > made.txt", granted=True)
    plan = plans.done(counted, command("echo twice >> count.log"), profile="manual")
    assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    assert "call 2 needs approval for command: run" in str(plan.waiting_for)
    job = plans.container.jobs.get(str(plan.job_id))
    assert job.state.ended
    with pytest.raises(PlanError, match="waiting for your approval"):
        plans.parts.lifecycle.resume(plan)
    plan = plans.answer(plan, True)
    assert plan.state is PlanState.COMPLETE
    assert (plans.sandbox(plan).root / "count.log").read_text() == "once\ntwice\n"
    assert plans.states_of(plan) == ["ended", "ended"]


@pytest.mark.parametrize(
    ("asked", "request_"),
    [
        (step("command", argv=["pytest", "-q", "a b"]), "command: run `pytest -q 'a b'`"),
        (step("command", argv=["/bin/sh", "-c", "make\n all"]), "command: run `make all`"),
        (command("x" * 400), f"command: run `{'x' * 300}…`"),
        (write("new.txt", ""), "create: write new.txt"),
        (write("a.txt", ""), "edit: write a.txt"),
        (step("replace", pattern="a", replacement="b", glob="*.txt"), "edit: replace *.txt"),
    ],
)
def test_a_request_for_approval_names_its_subject(
    plans: PlanBench, asked: StrategyStep, request_: str
) -> None:
    plan = plans.done(asked, profile="manual")
    assert isinstance(plan.waiting_for, Mapping)
    assert str(plan.waiting_for["what"]).startswith(f"call 1 needs approval for {request_}")


def test_a_typed_command_needs_no_approval_but_can_be_denied(plans: PlanBench) -> None:
    asked_for = command("echo x > x.txt", granted=True)
    assert plans.done(asked_for, profile="manual").state is PlanState.COMPLETE
    denied = plans.done(asked_for, profile="ci", action_profile="manual")
    assert denied.state is PlanState.ERRORED
    assert plans.calls(denied) == []


def test_a_resumed_plan_reports_only_new_steps(plans: PlanBench) -> None:
    plan = plans.done(command("true"), command("test -e ready.log"))
    (plans.sandbox(plan).root / "ready.log").touch()
    plans.said.clear()
    assert plans.resume(plan).state is PlanState.COMPLETE
    assert [line for line in plans.said if line.startswith("step")] == ["step 2 of 2: command"]


def test_a_denied_call_fails_the_plan(plans: PlanBench) -> None:
    plan = plans.done(step("delete", path="a.txt"), profile="manual")
    plan = plans.answer(plan, False)
    assert plan.state is PlanState.ERRORED
    assert "denied by a person" in str(plan.error)
    assert plans.states_of(plan) == ["failed"]
    assert (plans.sandbox(plan).root / "a.txt").exists()
    with pytest.raises(PlanError, match="no approval is pending"):
        plans.answer(plan, True)


def test_a_policy_denial_fails_the_plan(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""), command("true"), profile="ci", action_profile="manual")
    assert plan.state is PlanState.ERRORED
    assert "ci" in str(plan.error)
    assert plans.states_of(plan) == []


def test_an_ignored_file_is_not_a_change(plans: PlanBench) -> None:
    """Otherwise the next command would seem to delete it: no scan sees it."""
    plan = plans.done(write("debug.log", "x"), command("echo y > seen.txt"))
    assert [change.entry.path for change in plans.parts.history.changes(plan.id)] == ["seen.txt"]
    plans.ensure_consistent(plan)


def test_a_recorded_file_stays_after_it_is_ignored(plans: PlanBench) -> None:
    hidden = write(".gitignore", "*.out\n")
    plan = plans.done(write("x.out", "1"), hidden, command("echo 2 > x.out"), command("true"))
    changes = plans.parts.history.changes(plan.id)
    assert [(change.entry.kind.value, change.entry.path) for change in changes] == [
        ("create", "x.out"),
        ("modify", ".gitignore"),
        ("modify", "x.out"),
    ]


def test_another_job_leaves_the_plan_alone(plans: PlanBench) -> None:
    """A job of a process that died before the plan knew the job."""
    plan = plans.plan(write("x.txt", ""))
    foreign = _job(plans, "another job", {"plan_id": plan.id})
    plans.handler()(foreign)
    assert plans.now(plan) == plan


def test_a_repeated_run_of_a_finished_plan_changes_nothing(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    job = plans.owned_job(plan)
    plans.handler()(job)
    assert plans.now(plan) == plan
    applied = plans.apply(plan)
    plans.handler()(job)
    assert plans.now(plan) == applied


@pytest.mark.parametrize("fails", [True, False])
def test_a_worker_that_lost_the_plan_cannot_move_it(plans: PlanBench, fails: bool) -> None:
    """Its error stays its own: the plan is at another version, moved by the next worker."""

    def overtaken(plan: object) -> Strategy:
        held = plans.parts.plans.get(first.id)
        plans.parts.plans.move(held, held.phase_state, now=SystemClock().now())
        if error is not None:
            raise error
        return Strategy((), profile="full-auto")

    first = plans.plan(write("x.txt", ""))
    error = PlanError(first.id, "the loser's error") if fails else None
    run = replace(plans.handler(), make_strategy=overtaken)
    with pytest.raises(StalePlan):
        run(plans.owned_job(first))
    assert plans.now(first).state is PlanState.PROCESSING
    assert plans.now(first).error is None


def test_a_transient_error_is_retried_then_reported(plans: PlanBench) -> None:
    def busy(plan: object) -> Strategy:
        raise StoreBusy(1.0)

    plans.adapt = lambda run: replace(run, make_strategy=busy)
    plan = plans.plan()
    job = plans.owned_job(plan)
    with pytest.raises(StoreBusy):
        plans.handler()(job)
    assert plans.now(plan).state is PlanState.PROCESSING
    plans.handler()(replace(job, attempt=3))
    assert plans.now(plan).state is PlanState.ERRORED


def test_an_unexpected_error_is_stored_and_raised(plans: PlanBench) -> None:
    def broken(plan: object) -> Strategy:
        raise ZeroDivisionError("by zero")

    plans.adapt = lambda run: replace(run, make_strategy=broken)
    plan = plans.work(plans.plan())
    assert plan.error is not None
    assert plan.error.startswith("internal error (ZeroDivisionError: by zero)")
    assert "ZeroDivisionError" in str(plans.container.jobs.get(str(plan.job_id)).error)


def test_a_worker_that_shuts_down_leaves_the_plan_to_another(plans: PlanBench) -> None:
    plan = plans.plan(command("true"))
    job = plans.owned_job(plan)
    job.token.cancel("the worker shuts down")
    with pytest.raises(Cancelled):
        plans.handler()(job)
    assert plans.now(plan).phase_state == (Phase.EXECUTE, PlanState.PROCESSING)
    plans.give_back(job)
    assert plans.work(plan).state is PlanState.COMPLETE


@pytest.mark.parametrize(
    "point", ["tool.work.before", "tool.work.after", "tool.ending.after", "tool.record.after"]
)
def test_a_call_that_was_interrupted_is_recorded_once(plans: PlanBench, point: str) -> None:
    """Interrupted by an error that is not the tool's; `tests/crash` does the same with a kill."""
    interrupted = RaiseAt(point, lambda: StoreBusy(1.0))
    plan = plans.plan(command("echo x >> count.log; echo y >> made.txt"))
    opened = plans.handler()

    def open_execution(*given: object) -> object:
        return replace(opened.open_execution(*given), faults=interrupted)

    job = plans.owned_job(plan)
    with pytest.raises(StoreBusy):
        replace(opened, open_execution=open_execution)(job)
    plans.give_back(job)
    assert plans.work(plan).state is PlanState.COMPLETE
    plans.ensure_consistent(plan)
    assert [change.entry.path for change in plans.parts.history.changes(plan.id)] == ["made.txt"]
    # The unfinished change is reverted, so the file says "y" once; the ignored file counts the runs.
    assert (plans.sandbox(plan).root / "made.txt").read_text() == "y\n"
    ran = 2 if point == "tool.work.after" else 1
    assert (plans.sandbox(plan).root / "count.log").read_text() == "x\n" * ran


def test_a_step_is_done_or_names_its_problem() -> None:
    at = SystemClock().now()
    call = ToolCall(
        "plan", 1, "id", "command", {}, CallState.ENDED, at, result={"exit_code": 2, "output": ""}
    )
    assert step("command").problem_with(call) == "step 'command' ended with exit code 2"
    assert step("command", more={"expect_exit": (2,)}).problem_with(call) is None
    assert step("write").problem_with(changed(call, result=None)) is None
    failed = changed(call, state=CallState.FAILED, error="no")
    assert step("write").problem_with(failed) == "step 'write': no"
    assert step("write", more={"continue_on_failure": True}).problem_with(failed) is None


def test_a_nested_call_does_not_end_its_step() -> None:
    at = SystemClock().now()
    strategy = Strategy((step("write"), step("command")))

    def call(name: str | None) -> ToolCall:
        return ToolCall("plan", 1, "id", "command", {}, CallState.FAILED, at, error="no", step=name)

    found = {name: strategy.step_of(call(name)) for name in ("1", "2", "2.call_a", "2.3.x", "2.")}
    assert found == {"1": strategy.steps[0]} | dict.fromkeys(
        ("2", "2.call_a", "2.3.x", "2."), strategy.steps[1]
    )
    for name in (None, "", "0", "3", "3.call_a", ".2", "call_a", "-1", "²"):
        assert strategy.step_of(call(name)) is None
    setup = strategy.step_of(call("setup.again"))
    assert setup is not None
    assert setup.name == "setup"
    assert strategy.steps[1].problem_with(call("2")) == "step 'command': no"
    assert strategy.steps[1].problem_with(call("2.call_a")) is None


def test_resume_keeps_changes_of_nested_calls(plans: PlanBench) -> None:
    plan = plans.done(command("echo 1 > x.txt; exit 3"), write("never.txt", ""))
    assert plans.now(plan).state is PlanState.ERRORED
    execution = plans.handler().open_execution(
        plans.now(plan), plans.strategies[plan.id], plans.sandbox(plan), plans.owned_job(plan)
    )
    failed = execution.call(CallRequest("1.call_a", "command", {"script": "echo 2 > x.txt; exit 3"}))
    assert failed.result is not None
    assert plans.parts.sandbox_edits.take_back_failure(plans.now(plan)) is None
    assert (plans.sandbox(plan).root / "x.txt").read_text() == "2\n"
    assert execution.call(CallRequest("1.call_a", "command", {})) == failed


class CountedReads:
    """A store that counts its reads."""

    def __init__(self, store: object) -> None:
        self.store = store
        self.handed_out = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def counted(*given: Any, **more: Any) -> Any:
            answer = method(*given, **more)
            self.handed_out += len(answer) if isinstance(answer, (list, tuple)) else 1
            return answer

        return counted


def test_the_cost_of_a_call_does_not_grow_with_the_records(plans: PlanBench) -> None:
    plan = plans.done(write("first.txt", ""))
    calls, changesets = CountedReads(plans.parts.calls), CountedReads(plans.parts.changesets)
    opened = plans.handler().open_execution(
        plan, plans.strategies[plan.id], plans.sandbox(plan), plans.owned_job(plan)
    )
    execution = replace(
        opened,
        calls=calls,
        context=PlanExecutionContext(plan.id, changesets),
        history=PlanHistory(changesets, calls),
    )
    execution.settle()
    costs = []
    for number in range(2, 18):
        before = calls.handed_out + changesets.handed_out
        # A file that no scan sees makes the call read the records.
        for part, path in enumerate(("x.txt", "x.log")):
            request = CallRequest(f"{number}.{part}", "write", {"path": path, "content": f"{number}\n"})
            made = execution.call(request)
            assert made.state is CallState.ENDED
            assert execution.call(request) == made
        costs.append(calls.handed_out + changesets.handed_out - before)
    # The first call creates the file and reads nothing twice.
    assert set(costs[1:]) == {costs[1]}
    plans.ensure_consistent(plan)


def _job(plans: PlanBench, job_id: str, payload: dict[str, str]) -> AsyncJob:
    return AsyncJob(job_id, "plan", payload, 1, 1, CancellationToken(), {})
