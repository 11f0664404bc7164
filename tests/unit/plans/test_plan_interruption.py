"""Calls of a dead run whose plan is cancelled: their changes are recorded once and each call states its
outcome, whichever process cancels and wherever it is interrupted.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.changes.model.merge_conflict import RESOLVE
from cleveragents.core.errors import (
    Cancelled,
    DatabaseFailed,
    DatabaseUnusable,
    GitFailed,
    IllegalPlanMove,
    SandboxRefused,
    StaleFence,
    StalePlan,
    StoreBusy,
    UnknownChangeset,
)
from cleveragents.core.tool import ACP, CallState
from cleveragents.jobs.model.job import AttemptOutcome, JobState
from cleveragents.plans.calls.call_log import CallLog
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import PAUSED, STOPPED
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.testing.clock import RaiseAt
from tests.plan_bench import PlanBench, command, plan_bench, write

CUT = {
    "tool.work.after": ("failed", "cancelled: not wanted"),
    "tool.ending.after": ("ended", None),
    "tool.record.after": ("ended", None),
}


def cut_off(plans: PlanBench, point: str = "tool.work.after", script: str = "echo y > made.txt") -> Plan:
    """Return a plan whose worker is gone and whose call got this far."""
    plan = plans.plan(command(script))
    opened = plans.handler()

    def open_execution(*given: object) -> object:
        return replace(opened.open_execution(*given), faults=RaiseAt(point, lambda: StoreBusy(1.0)))

    job = plans.owned_job(plan)
    with pytest.raises(StoreBusy):
        replace(opened, open_execution=open_execution)(job)
    plans.give_back(job)
    return plans.now(plan)


def changed(plans: PlanBench, plan: Plan) -> list[str]:
    return [change.entry.path for change in plans.parts.history.changes(plan.id)]


def told(plans: PlanBench, plan: Plan) -> list[tuple[str, str | None]]:
    return [(call.state.value, call.error) for call in plans.calls(plan)]


@pytest.mark.parametrize("point", CUT)
def test_records_changes_before_the_plan_is_cancelled(plans: PlanBench, point: str) -> None:
    plan = cut_off(plans, point)
    assert plans.cancel(plan).state is PlanState.CANCELLED
    assert (told(plans, plan), changed(plans, plan)) == ([CUT[point]], ["made.txt"])
    plans.ensure_consistent(plan)


def test_the_next_cancel_finishes_an_interrupted_one(tmp_path: Path) -> None:
    """At each of its commits. Until it is finished, the plan does not count as cancelled."""
    faults = Switch()
    settled = [CUT["tool.work.after"]], ["made.txt"]
    interrupted = True
    nth = 0
    with plan_bench(tmp_path, faults=faults) as plans:
        while interrupted:
            plan, nth = cut_off(plans), nth + 1
            faults.inner = RaiseAt("store.write.after_commit", lambda: StoreBusy(1.0), nth)
            try:
                plans.cancel(plan)
                interrupted = False
            except StoreBusy:
                faults.inner = None
                if plans.now(plan).state is PlanState.CANCELLED:
                    assert (told(plans, plan), changed(plans, plan)) == settled
            faults.inner = None
            assert plans.cancel(plan).state is PlanState.CANCELLED
            assert (told(plans, plan), changed(plans, plan)) == settled
            plans.ensure_consistent(plan)
    assert nth > len(("request", "ending", "recorded", "closed", "failed", "cancelled"))


@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("point", CUT)
def test_a_run_that_stops_late_still_ends_its_plan(plans: PlanBench, point: str, seen: bool) -> None:
    """Its worker has ended the job meanwhile and continued without it."""
    plan = plans.plan(command("echo y > made.txt"))
    opened = plans.handler()
    job = plans.owned_job(plan)

    def given_up() -> Cancelled:
        plans.cancel(plan)
        plans.container.jobs.finish(
            job.id, job.fence, AttemptOutcome(JobState.CANCELLED), now=plans.container.clock.now()
        )
        if seen:
            plans.parts.lifecycle.reconciled(plans.now(plan))
        return Cancelled("not wanted")

    def open_execution(*given: object) -> object:
        return replace(opened.open_execution(*given), faults=RaiseAt(point, given_up))

    with pytest.raises((StaleFence, StalePlan)):
        replace(opened, open_execution=open_execution)(job)
    assert plans.now(plan).state is PlanState.CANCELLED
    assert (told(plans, plan), changed(plans, plan)) == ([CUT[point]], ["made.txt"])
    plans.ensure_consistent(plan)


@pytest.mark.parametrize(
    ("reason", "then"),
    [
        (STOPPED, (Phase.EXECUTE, PlanState.ERRORED)),
        ("not wanted", (Phase.STRATEGIZE, PlanState.CANCELLED)),
    ],
    ids=["stopped", "cancelled"],
)
def test_a_plan_ends_with_its_job_between_two_phases(
    plans: PlanBench, reason: str, then: tuple[Phase, PlanState]
) -> None:
    """The run took so long there that its worker continued without it."""
    plan = plans.plan(command("true"))
    job, now = plans.owned_job(plan), plans.container.clock.now()
    for state in (PlanState.PROCESSING, PlanState.COMPLETE):
        plan = plans.parts.plans.move(plan, (Phase.STRATEGIZE, state), now=now)
    plans.container.jobs.request_cancel(job.id, reason, now=now)
    plans.container.jobs.finish(job.id, job.fence, AttemptOutcome(JobState.CANCELLED), now=now)
    over = plans.parts.lifecycle.reconciled(plan)
    assert (over.phase_state, str(over.error).removeprefix("cancelled: ")) == (then, reason)
    assert plans.now(plan) == over


def test_a_pause_whose_worker_died_is_finished_by_the_next_reader(plans: PlanBench) -> None:
    """A process that ends before it has recorded the pause leaves a plan that can be resumed."""
    plan = plans.plan(command("echo y >> made.txt"))
    job, now = plans.owned_job(plan), plans.container.clock.now()
    plan = plans.parts.plans.move(plan, (Phase.STRATEGIZE, PlanState.PROCESSING), now=now)
    plans.container.jobs.request_cancel(job.id, PAUSED, now=now)
    gone = structs.replace(plans.parts.lifecycle, processes=DeadOwners(plans.container.processes))
    over = gone.reconciled(plan)
    assert (over.state, over.error) == (PlanState.ERRORED, PAUSED)
    plans.parts.lifecycle.resume(over)
    assert plans.work(over).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert changed(plans, plan) == ["made.txt"]


def test_a_pause_leaves_a_plan_that_has_not_started_startable(plans: PlanBench) -> None:
    draft = PlanDraft(goal="a goal", action="tests/steps", resource=str(plans.repository))
    plan = plans.parts.plans.create(draft, now=plans.container.clock.now())
    assert plans.parts.lifecycle.stop(plan, PAUSED) == plan


class DeadOwners:
    """A supervisor for which every other process is dead."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def is_alive(self, owner: str) -> bool:
        return False


class Switch:
    """Fault points that can be changed."""

    inner: RaiseAt | None = None

    def reach(self, name: str) -> None:
        if self.inner is not None:
            self.inner.reach(name)


def test_a_discarded_plan_has_no_open_call(plans: PlanBench) -> None:
    plan = cut_off(plans)
    now = plans.container.clock.now()
    plan = plans.parts.plans.move(plan, (plan.phase, PlanState.ERRORED), now=now)
    assert plans.parts.lifecycle.reject(plan).state is PlanState.REJECTED
    assert (told(plans, plan), changed(plans, plan)) == (
        [("failed", "cancelled: the plan was discarded")],
        ["made.txt"],
    )


def test_a_busy_sandbox_delays_the_end_of_a_call(
    plans: PlanBench,
) -> None:
    plan = cut_off(plans)
    with plans.sandbox(plan).writing():
        assert plans.cancel(plan).state is PlanState.CANCELLED
        assert plans.states_of(plan) == ["started"]
    plans.parts.lifecycle.reconciled(plans.now(plan))
    assert (told(plans, plan), changed(plans, plan)) == ([CUT["tool.work.after"]], ["made.txt"])


def test_leaves_the_calls_of_a_resumed_plan(plans: PlanBench) -> None:
    plan = cut_off(plans)
    plans.parts.plans.move(plan, (plan.phase, PlanState.ERRORED), now=plans.container.clock.now())
    plans.parts.sandbox_edits.end_calls(plan, "not wanted")
    assert plans.states_of(plan) == ["started"]
    assert changed(plans, plan) == []


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda plans, plan: plans.parts.sandboxes.remove(plan.id), "the sandbox was removed"),
        (lambda plans, plan: (plans.sandbox(plan).root / "GIT~1").touch(), "GIT~1"),
    ],
    ids=["removed", "unrecordable"],
)
def test_a_call_says_that_its_changes_were_not_recorded(
    plans: PlanBench, harm: Callable[[PlanBench, Plan], object], why: str
) -> None:
    plan = cut_off(plans)
    harm(plans, plan)
    assert plans.cancel(plan).state is PlanState.CANCELLED
    [(state, error)] = told(plans, plan)
    assert state == "failed"
    assert error is not None
    assert error.startswith("cancelled: not wanted; the changes of the call were not recorded: ")
    assert why in error
    assert plans.parts.changesets.get(str(plans.calls(plan)[0].changeset_id)).closed


def test_leaves_the_sandbox_of_another_machine(plans: PlanBench) -> None:
    plan = cut_off(plans)
    sandbox_edits = structs.replace(plans.parts.sandbox_edits, is_elsewhere=lambda plan_id: True)
    sandbox_edits.end_calls(plan, "not wanted")
    assert plans.states_of(plan) == ["started"]
    on_a_remote = structs.replace(plan, resource="git+https://git.example/project.git#main")
    sandbox_edits.end_calls(on_a_remote, "not wanted")
    [(state, error)] = told(plans, plan)
    assert (state, changed(plans, plan)) == ("failed", [])
    assert str(error).endswith("the changes of the call were not recorded: the sandbox is on another machine")


def gone_on_with(plans: PlanBench, plan: Plan, broken: Callable[[Sandbox], object]) -> Plan:
    """Return the plan after one more worker found its sandbox in this state and died."""
    job, opened = plans.owned_job(plan), plans.handler()

    def open_execution(*given: object) -> object:
        execution = opened.open_execution(*given)
        return replace(execution, sandbox=broken(execution.sandbox))

    with pytest.raises(StoreBusy):
        replace(opened, open_execution=open_execution)(job)
    plans.give_back(job)
    return plans.now(plan)


class Broken:
    """A sandbox of which one method fails."""

    def __init__(self, inner: Sandbox, name: str, error: Exception) -> None:
        self._inner, self._name, self._error = inner, name, error

    def __getattr__(self, name: str) -> object:
        if name == self._name:
            raise self._error
        return getattr(self._inner, name)


@pytest.mark.parametrize("by_its_run", [False, True], ids=["no worker", "its worker"])
def test_records_a_call_after_two_crashes(plans: PlanBench, by_its_run: bool) -> None:
    """The second run had closed the changeset to repeat the call under another, and got no further."""
    plan = gone_on_with(plans, cut_off(plans), lambda inner: Broken(inner, "restore", StoreBusy(1.0)))
    [call] = plans.calls(plan)
    assert (call.state, plans.parts.changesets.get(str(call.changeset_id)).closed) == ("started", True)
    if by_its_run:
        given = plan, plans.strategies[plan.id], plans.sandbox(plan), plans.owned_job(plan)
        plans.handler().open_execution(*given).abandon("not wanted")
    else:
        assert plans.cancel(plan).state is PlanState.CANCELLED
    assert (told(plans, plan), changed(plans, plan)) == ([CUT["tool.work.after"]], ["made.txt"])
    plans.ensure_consistent(plan)


@pytest.mark.parametrize("path", ["made.txt", "other.txt"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["gone on with", "cancelled"])
def test_edits_after_a_recorded_call_are_recorded_separately(
    plans: PlanBench, path: str, closed: bool, cancelled: bool
) -> None:
    plan = cut_off(plans, "tool.record.after")
    if closed:
        plans.parts.changesets.close(str(plans.calls(plan)[0].changeset_id))
    (plans.sandbox(plan).root / path).write_text("by hand\n")
    over = plans.cancel(plan) if cancelled else plans.work(plan)
    assert over.state is (PlanState.CANCELLED if cancelled else PlanState.COMPLETE)
    assert [(call.tool, call.state.value) for call in plans.calls(plan)] == [
        ("command", "ended"),
        ("reread", "ended"),
    ]
    assert changed(plans, plan) == ["made.txt", path]
    assert (plans.sandbox(plan).root / path).read_text() == "by hand\n"
    plans.ensure_consistent(plan)


def test_edits_continue_after_an_interrupted_reread(tmp_path: Path) -> None:
    """At each of its commits; each edit is recorded once."""
    faults = Switch()
    interrupted, nth = True, 0
    with plan_bench(tmp_path, faults=faults) as plans:
        plan = plans.done(write("x.txt", "0\n"))
        file = plans.sandbox(plan).root / "x.txt"
        while interrupted:
            nth += 1
            file.write_text(f"{nth}\n")
            faults.inner = RaiseAt("store.write.after_commit", lambda: StoreBusy(1.0), nth)
            try:
                plans.parts.sandbox_edits.reread(plans.now(plan))
                interrupted = False
            except StoreBusy:
                file.write_text(f"{nth}, and more\n")
            faults.inner = None
            plans.parts.sandbox_edits.reread(plans.now(plan))
            assert {*plans.states_of(plan)} == {"ended"}
            plans.ensure_consistent(plan)
        taken_in = {call.call_id for call in plans.calls(plan) if call.tool == "reread"}
        changes = plans.parts.history.changes(plan.id)[1:]
        assert {change.entry.tool_call_id for change in changes} <= taken_in
        of = {call.call_id: call.changeset_id for call in plans.calls(plan)}
        assert all(of[str(change.entry.tool_call_id)] == change.changeset_id for change in changes)
    assert nth > len(("added", "changeset", "started", "recorded", "closed"))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("scan", SandboxRefused("it", "so it is")),
        ("scan", GitFailed("add", "so it is")),
        ("writing", SandboxRefused("it", "so it is")),
    ],
    ids=lambda one: str(getattr(type(one), "__name__", one)) if isinstance(one, Exception) else str(one),
)
@pytest.mark.parametrize("tool", ["command", "reread", "rollback"])
def test_an_unreadable_sandbox_does_not_block_a_cancel(
    plans: PlanBench, tool: str, name: str, error: Exception
) -> None:
    if tool == "command":
        plan = cut_off(plans)
    else:
        plan = plans.done(write("x.txt", "1\n"), command("exit 1"))
        now, told_to = plans.container.clock.now(), {"checkpoint": 2} if tool == "rollback" else {}
        plans.parts.calls.add(plan.id, tool, told_to, step=None, state=CallState.STARTED, now=now)

    assert cancelled_with(plans, plan, name, error).state is PlanState.CANCELLED
    state, said = told(plans, plan)[-1]
    assert state == "failed"
    assert str(said).startswith("cancelled: not wanted; the changes of the call were not recorded: ")
    assert str(said).endswith("so it is")


def cancelled_with(plans: PlanBench, plan: Plan, name: str, error: Exception) -> Plan:
    """Cancel the plan in a process for which that method of the sandbox fails."""

    class Sandboxes:
        @staticmethod
        def open(plan_id: str) -> object:
            return Broken(plans.parts.sandboxes.open(plan_id), name, error)

    lifecycle = plans.parts.lifecycle
    sandbox_edits = structs.replace(plans.parts.sandbox_edits, sandboxes=Sandboxes())
    return structs.replace(lifecycle, sandbox_edits=sandbox_edits).cancel(plan, "not wanted")


@pytest.mark.parametrize("name", ["scan", "writing"])
def test_records_changes_once_the_system_allows_it(plans: PlanBench, name: str) -> None:
    plan = cut_off(plans)
    over = cancelled_with(plans, plan, name, OSError(errno.EMFILE, "Too many open files"))
    assert (over.state, changed(plans, plan)) == (PlanState.CANCELLED, [])
    assert [call.is_open for call in plans.calls(plan)] == [True]
    plans.parts.lifecycle.reconciled(over)
    assert (told(plans, plan), changed(plans, plan)) == ([CUT["tool.work.after"]], ["made.txt"])


@pytest.mark.parametrize("taken_in", [False, True])
def test_keeps_edits_after_a_recorded_resolution(plans: PlanBench, taken_in: bool) -> None:
    """The tree of a resolution names its changes; the process that recorded it died before the call ended."""
    plan = plans.done(write("x.txt", "1\n"), command("exit 1"))
    sandbox, history, now = plans.sandbox(plan), plans.parts.history, plans.container.clock.now()
    (sandbox.root / "x.txt").write_text("resolved\n")
    tree = sandbox.tree({path: step.after for path, step in sandbox.scan().items()})
    calls = plans.parts.calls
    call = calls.add(plan.id, RESOLVE, {}, step=None, state=CallState.STARTED, now=now)
    call = calls.move(call, CallState.ENDING, now=now, result={"ended": [], "tree": tree})
    filing = CallLog(
        PlanExecutionContext(plan.id, plans.parts.changesets), calls, history, plans.container.clock
    )
    filing.recorded(call, history.leading_to(plan.id, sandbox, tree))
    (sandbox.root / "x.txt").write_text("by hand\n")
    if taken_in:
        plans.parts.sandbox_edits.reread(plans.now(plan))
    assert plans.cancel(plan).state is PlanState.CANCELLED
    assert [call.tool for call in plans.calls(plan)][-2:] == [RESOLVE, "reread"]
    assert not any(call.is_open for call in plans.calls(plan))
    plans.ensure_consistent(plan)


def test_records_edits_despite_an_interruption(tmp_path: Path) -> None:
    """At each commit of a cancel that finds the edits beside a recorded call that has not ended."""
    faults, interrupted, nth = Switch(), True, 0
    with plan_bench(tmp_path, faults=faults) as plans:
        while interrupted:
            plan, nth = cut_off(plans, "tool.record.after"), nth + 1
            (plans.sandbox(plan).root / "other.txt").write_text("by hand\n")
            faults.inner = RaiseAt("store.write.after_commit", lambda: StoreBusy(1.0), nth)
            try:
                plans.cancel(plan)
                interrupted = False
            except StoreBusy:
                pass
            faults.inner = None
            assert plans.cancel(plan).state is PlanState.CANCELLED
            assert changed(plans, plan) == ["made.txt", "other.txt"]
            assert not any(call.is_open for call in plans.calls(plan))
            plans.ensure_consistent(plan)
    assert nth > len(("request", "reread", "changeset", "recorded", "closed", "ended", "cancelled"))


def test_a_refused_discard_ends_no_calls(plans: PlanBench) -> None:
    plan = cut_off(plans)
    with pytest.raises(IllegalPlanMove):
        plans.parts.lifecycle.reject(plan)
    assert plans.states_of(plan) == ["started"]


@pytest.mark.parametrize("wanted", [PlanState.REJECTED, PlanState.CANCELLED])
def test_the_next_look_ends_a_call_left_open(plans: PlanBench, wanted: PlanState) -> None:
    plan = cut_off(plans)
    ways = [
        (Phase.EXECUTE, PlanState.COMPLETE),
        (Phase.APPLY, PlanState.QUEUED),
        (Phase.APPLY, PlanState.ERRORED),
    ]
    for standing in ways:
        plan = plans.parts.plans.move(plan, standing, now=plans.container.clock.now())
    rejects = wanted is PlanState.REJECTED
    with plans.sandbox(plan).writing():
        over = plans.parts.lifecycle.reject(plan) if rejects else plans.cancel(plan)
    assert (over.phase_state, plans.states_of(plan)) == ((Phase.APPLY, wanted), ["started"])
    assert plans.parts.lifecycle.reconciled(over) == over
    reason = "the plan was discarded" if rejects else "not wanted"
    assert (told(plans, plan), changed(plans, plan)) == ([("failed", f"cancelled: {reason}")], ["made.txt"])


def test_concurrent_looks_at_a_plan_without_a_sandbox_succeed(plans: PlanBench) -> None:
    plan = cut_off(plans)
    with plans.sandbox(plan).writing():
        over = plans.cancel(plan)
    plans.parts.sandboxes.remove(plan.id)
    sandbox_edits = plans.parts.sandbox_edits

    class Meanwhile:
        def __getattr__(self, name: str) -> object:
            return getattr(sandbox_edits.calls, name)

        def move(self, *given: object, **facts: object) -> object:
            sandbox_edits.end_calls(over, "not wanted")
            return sandbox_edits.calls.move(*given, **facts)

    slower = structs.replace(
        plans.parts.lifecycle, sandbox_edits=structs.replace(sandbox_edits, calls=Meanwhile())
    )
    assert slower.reconciled(over) == over
    assert plans.states_of(plan) == ["failed"]


@pytest.mark.parametrize("error", [GitFailed("add", "so it is"), UnknownChangeset("it")])
def test_a_plan_that_cannot_be_reconciled_hides_no_other(plans: PlanBench, error: Exception) -> None:
    lifecycle, found = stopped_but_one(plans, error)
    one, bad, other = lifecycle.all_reconciled(found)
    assert one.state is other.state is PlanState.CANCELLED
    assert bad == structs.replace(found[1], error=f"the state of the plan could not be updated: {error}")
    assert plans.now(bad) == found[1]


@pytest.mark.parametrize(
    "error", [StoreBusy(1.0), DatabaseUnusable("it", "it is read-only"), DatabaseFailed("it", "odd")]
)
def test_an_unusable_store_raises(plans: PlanBench, error: Exception) -> None:
    lifecycle, found = stopped_but_one(plans, error)
    with pytest.raises(type(error)):
        lifecycle.all_reconciled(found)


def stopped_but_one(plans: PlanBench, error: Exception) -> tuple[PlanLifecycle, list[Plan]]:
    """Three plans whose jobs were cancelled without moving them, and a store that fails for one of them."""
    found = [cut_off(plans) if nth == 1 else plans.plan(command("true")) for nth in range(3)]
    for plan in found:
        plans.container.jobs.request_cancel(str(plan.job_id), "not wanted", now=plans.container.clock.now())

    class Failing:
        def __getattr__(self, name: str) -> object:
            return getattr(plans.parts.plans, name)

        def get(self, plan_id: str) -> Plan:
            if plan_id == found[1].id:
                raise error
            return plans.parts.plans.get(plan_id)

    lifecycle = plans.parts.lifecycle
    return structs.replace(
        lifecycle, sandbox_edits=structs.replace(plans.parts.sandbox_edits, plans=Failing())
    ), found


@pytest.mark.parametrize(
    ("tool", "filed"), [("read_file", []), (ACP, ["by_itself.txt"])], ids=["read-only", "agent"]
)
def test_only_calls_that_write_report_unrecorded_changes(
    plans: PlanBench, tool: str, filed: list[str]
) -> None:
    plan = plans.done(write("x.txt", "1\n"), command("exit 1"))
    now = plans.container.clock.now()
    plans.parts.calls.add(plan.id, tool, {}, step="9", state=CallState.STARTED, now=now)
    (plans.sandbox(plan).root / "by_itself.txt").touch()
    assert plans.cancel(plan).state is PlanState.CANCELLED
    assert changed(plans, plan) == ["x.txt", *filed]
    assert told(plans, plan)[-1] == ("failed", "cancelled: not wanted")
