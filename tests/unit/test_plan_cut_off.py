"""Calls of a run that died, of a plan that is cancelled then: what they had done is recorded, once, and each
says how it ended, whoever cancels and wherever that is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cleveragents.domain.plan import Plan, PlanState
from cleveragents.domain.tool import ACP, CallState
from cleveragents.errors import StoreBusy
from cleveragents.testing.faults import RaiseAt
from tests.plan_bench import PlanBench, command, plan_bench, write

CUT = {
    "tool.work.after": ("failed", "cancelled: not wanted"),
    "tool.ending.after": ("ended", None),
    "tool.record.after": ("ended", None),
}


def cut_off(plans: PlanBench, point: str = "tool.work.after", script: str = "echo y > made.txt") -> Plan:
    """A plan whose worker is gone, and whose call got so far."""
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
def test_what_a_call_had_done_is_recorded_before_its_plan_is_cancelled(plans: PlanBench, point: str) -> None:
    plan = cut_off(plans, point)
    assert plans.cancel(plan).state is PlanState.CANCELLED
    assert (told(plans, plan), changed(plans, plan)) == ([CUT[point]], ["made.txt"])
    plans.ensure_consistent(plan)


def test_a_cancel_that_is_interrupted_is_finished_by_the_next(tmp_path: Path) -> None:
    """At each of its commits. As long as it is not finished, nobody is told that the plan is cancelled."""
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


class Switch:
    """Fault points that can be changed."""

    inner: RaiseAt | None = None

    def reach(self, name: str) -> None:
        if self.inner is not None:
            self.inner.reach(name)


def test_a_plan_that_is_rejected_leaves_no_call_open_either(plans: PlanBench) -> None:
    plan = cut_off(plans)
    now = plans.container.clock.now()
    plan = plans.parts.plans.move(plan, (plan.phase, PlanState.ERRORED), now=now)
    assert plans.parts.lifecycle.reject(plan).state is PlanState.REJECTED
    assert (told(plans, plan), changed(plans, plan)) == (
        [("failed", "cancelled: its plan was rejected")],
        ["made.txt"],
    )


def test_who_works_in_the_sandbox_is_not_disturbed_and_the_next_who_looks_ends_the_call(
    plans: PlanBench,
) -> None:
    plan = cut_off(plans)
    with plans.sandbox(plan).writing():
        assert plans.cancel(plan).state is PlanState.CANCELLED
        assert plans.states_of(plan) == ["started"]
    plans.parts.lifecycle.reconciled(plans.now(plan))
    assert (told(plans, plan), changed(plans, plan)) == ([CUT["tool.work.after"]], ["made.txt"])


def test_a_call_whose_plan_somebody_went_on_with_is_left_to_them(plans: PlanBench) -> None:
    plan = cut_off(plans)
    plans.parts.plans.move(plan, (plan.phase, PlanState.ERRORED), now=plans.container.clock.now())
    plans.parts.rewriting.end_calls(plan, "not wanted")
    assert plans.states_of(plan) == ["started"]
    assert changed(plans, plan) == []


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda plans, plan: plans.parts.sandboxes.remove(plan.id), "its sandbox was removed"),
        (lambda plans, plan: (plans.sandbox(plan).root / "GIT~1").touch(), "GIT~1"),
    ],
    ids=["removed", "unrecordable"],
)
def test_what_cannot_be_recorded_any_more_is_told(
    plans: PlanBench, harm: Callable[[PlanBench, Plan], object], why: str
) -> None:
    plan = cut_off(plans)
    harm(plans, plan)
    assert plans.cancel(plan).state is PlanState.CANCELLED
    [(state, error)] = told(plans, plan)
    assert state == "failed"
    assert error is not None
    assert error.startswith("cancelled: not wanted; what it changed is not recorded: ")
    assert why in error
    assert plans.parts.changesets.get(str(plans.calls(plan)[0].changeset_id)).closed


def test_a_sandbox_that_another_machine_has_is_for_that_one_to_look_into(plans: PlanBench) -> None:
    plan = cut_off(plans)
    rewriting = replace(plans.parts.rewriting, is_elsewhere=lambda plan_id: True)
    rewriting.end_calls(plan, "not wanted")
    assert plans.states_of(plan) == ["started"]
    on_a_remote = replace(plan, resource="git+https://git.example/project.git#main")
    rewriting.end_calls(on_a_remote, "not wanted")
    [(state, error)] = told(plans, plan)
    assert (state, changed(plans, plan)) == ("failed", [])
    assert str(error).endswith("what it changed is not recorded: its sandbox is another machine's")


@pytest.mark.parametrize(
    ("tool", "filed"), [("read_file", []), (ACP, ["by_itself.txt"])], ids=["who only reads", "an agent"]
)
def test_only_who_may_have_changed_files_is_said_to_have(
    plans: PlanBench, tool: str, filed: list[str]
) -> None:
    plan = plans.done(write("x.txt", "1\n"), command("exit 1"))
    now = plans.container.clock.now()
    plans.parts.calls.add(plan.id, tool, {}, step="9", state=CallState.STARTED, now=now)
    (plans.sandbox(plan).root / "by_itself.txt").touch()
    assert plans.cancel(plan).state is PlanState.CANCELLED
    assert changed(plans, plan) == ["x.txt", *filed]
    assert told(plans, plan)[-1] == ("failed", "cancelled: not wanted")
