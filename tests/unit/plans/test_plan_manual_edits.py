"""Edits of a person in a sandbox: no action on a plan loses them silently."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cleveragents.api.plans.changes import found_changes
from cleveragents.core.errors import NeedsHuman
from cleveragents.plans.model.plan import Plan, PlanState
from tests.plan_bench import PlanBench, command, write


def edit_by_hand(plans: PlanBench, plan: Plan) -> None:
    (plans.sandbox(plan).root / "b.txt").write_text("mine\n")
    (plans.sandbox(plan).root / "mine.txt").write_text("mine, too\n")


def ensure_edits_are_there(plans: PlanBench, plan: Plan) -> None:
    assert (plans.sandbox(plan).root / "b.txt").read_text() == "mine\n"
    assert (plans.sandbox(plan).root / "mine.txt").read_text() == "mine, too\n"


def test_resume_of_a_complete_plan_needs_recorded_edits(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    assert plan.state is PlanState.COMPLETE
    edit_by_hand(plans, plan)
    with pytest.raises(NeedsHuman, match=r"unrecorded edits in the sandbox: b\.txt, mine\.txt"):
        plans.resume(plan)
    assert plans.now(plan) == plan
    ensure_edits_are_there(plans, plan)
    assert plans.parts.sandbox_edits.reread(plan) is not None
    assert plans.resume(plan).state is PlanState.COMPLETE
    ensure_edits_are_there(plans, plan)


@pytest.mark.parametrize("granted", [True, False])
def test_refuses_an_answer_while_edits_are_unrecorded(plans: PlanBench, granted: bool) -> None:
    plan = plans.done(command("true"), profile="manual")
    assert plan.state is PlanState.WAITING
    edit_by_hand(plans, plan)
    with pytest.raises(NeedsHuman, match="unrecorded edits"):
        plans.answer(plan, granted)
    assert plans.parts.lifecycle.asking(plans.now(plan)) is not None
    plans.parts.sandbox_edits.reread(plans.now(plan))
    plans.answer(plan, granted)
    ensure_edits_are_there(plans, plan)


def test_a_rollback_discards_edits_only_on_request(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    edit_by_hand(plans, plan)
    with pytest.raises(NeedsHuman, match=r"b\.txt, mine\.txt"):
        plans.parts.sandbox_edits.rollback(plan, 1)
    ensure_edits_are_there(plans, plan)
    assert plans.states_of(plan) == ["ended"]
    plans.parts.sandbox_edits.rollback(plan, 1, discard=True)
    assert plans.sandbox(plan).scan() == {}
    plans.ensure_consistent(plan)


def test_recorded_edits_can_be_rolled_back_alone(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    edit_by_hand(plans, plan)
    taken_in = plans.parts.sandbox_edits.reread(plan)
    assert taken_in is not None
    plans.parts.sandbox_edits.rollback(plan, taken_in.number)
    assert plans.diff(plan, "--name-only").split() == ["x.txt"]


def test_does_not_collect_a_sandbox_with_edits(plans: PlanBench) -> None:
    cancelled = plans.cancel(plans.done(write("x.txt", "")))
    applied = plans.apply(plans.done(write("y.txt", "")))
    unchanged = plans.done(command("true"))
    mine = (cancelled, applied, unchanged)
    for plan in mine:
        edit_by_hand(plans, plan)
    told: list[str] = []
    freed = plans.parts.cleanup.collect(timedelta(0), told=told.append)
    assert not {plan.id for plan in mine} & {one.plan_id for one in freed}
    for plan in mine:
        ensure_edits_are_there(plans, plan)
        assert [line for line in told if plan.id in line and "delete the plan" in line]


def test_a_quota_keeps_edits_too(plans: PlanBench) -> None:
    plan = plans.cancel(plans.done(write("x.txt", "")))
    edit_by_hand(plans, plan)
    plans.parts.cleanup.collect(timedelta(days=30), quota_bytes=1)
    ensure_edits_are_there(plans, plan)


def test_does_not_collect_an_unreadable_sandbox(plans: PlanBench) -> None:
    plan = plans.cancel(plans.done(write("x.txt", "")))
    (plans.sandbox(plan).root / "x.txt").unlink()
    (plans.sandbox(plan).root / "GIT~1").write_text("no git takes this name")
    plans.parts.cleanup.collect(timedelta(0))
    assert (plans.sandbox(plan).root / "GIT~1").exists()
    assert plans.parts.cleanup.loss_of(plan) is not None


def test_reports_what_a_deletion_would_lose(plans: PlanBench) -> None:
    plan = plans.done(command("true"))
    assert plans.parts.cleanup.loss_of(plan) is None
    edit_by_hand(plans, plan)
    assert "b.txt, mine.txt" in str(plans.parts.cleanup.loss_of(plan))
    cancelled = plans.cancel(plan)
    assert "b.txt, mine.txt" in str(plans.parts.cleanup.loss_of(cancelled))
    undecided = plans.done(write("x.txt", ""))
    assert "never applied" in str(plans.parts.cleanup.loss_of(undecided))
    plans.parts.sandboxes.remove(cancelled.id)
    assert plans.parts.cleanup.loss_of(cancelled) is None


def test_a_deletion_asks_if_edits_cannot_be_checked(plans: PlanBench) -> None:
    plan = plans.cancel(plans.done(write("x.txt", "")))
    away = plans.repository.rename(plans.repository.with_name("away"))
    loss = plans.parts.cleanup.loss_of(plan)
    away.rename(plans.repository)
    assert "could not be checked" in str(loss)


def test_a_repeated_look_reads_only_new_changes(plans: PlanBench, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plans.done(write("x.txt", "1\n"))
    first = found_changes(plans.parts, plan).rows
    assert [(row["path"], row["added"]) for row in first] == [("x.txt", 1)]
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", "")
        assert found_changes(plans.parts, plan).rows == first
    edit_by_hand(plans, plan)
    plans.parts.sandbox_edits.reread(plan)
    assert [(row["path"], row["change"]) for row in found_changes(plans.parts, plan).rows] == [
        ("b.txt", "changed"),
        ("mine.txt", "created"),
        ("x.txt", "created"),
    ]
