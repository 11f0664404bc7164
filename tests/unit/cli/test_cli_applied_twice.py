"""Two processes take the same plan in hand: one applies it, and for the other it is done, or under way."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from cleveragents.apply.lock import resource_lock
from cleveragents.apply.ports import CommitRequest
from cleveragents.cli.plan.applied_by_another import once_applied_elsewhere
from cleveragents.cli.plan.work import apply_now
from cleveragents.core.errors import ApplyBusy, StalePlan
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanFacts
from tests.plan_bench import PlanBench, write


def test_what_another_applied_meanwhile_is_applied(
    plans: PlanBench, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plans.done(write("new.txt", "new\n"))
    plans.apply(plan)
    applied = apply_now(plans.parts, plan, CommitRequest("all of it"))
    assert applied.state is PlanState.APPLIED
    told = capsys.readouterr().err
    assert "another process has applied it;" in told
    assert "it was not committed by this one" in told
    assert plans.text("new.txt") == "new\n"


def test_what_another_applies_now_is_waited_for(plans: PlanBench, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plans.done(write("new.txt", "new\n"))
    ended: list[Plan] = []
    with resource_lock(plans.repository, timeout_seconds=30):
        clock = plans.container.clock
        applying = plans.parts.plans.move(plan, (Phase.APPLY, PlanState.QUEUED), now=clock.now())
        thread = Thread(
            target=lambda: ended.append(once_applied_elsewhere(plans.parts, applying, None)), daemon=True
        )
        thread.start()
        said, ends = "", time.monotonic() + 60
        while "waiting for that" not in said and time.monotonic() < ends:
            said += capsys.readouterr().err
        applying = plans.parts.plans.move(applying, (Phase.APPLY, PlanState.PROCESSING), now=clock.now())
        plans.parts.plans.move(applying, (Phase.APPLY, PlanState.APPLIED), now=clock.now())
    thread.join(60)
    assert [one.state for one in ended] == [PlanState.APPLIED]


def test_what_nobody_applies_any_more_is_to_be_tried_again(plans: PlanBench) -> None:
    plan = plans.done(write("new.txt", "new\n"))
    now = plans.container.clock.now()
    plans.parts.plans.move(plan, (Phase.APPLY, PlanState.QUEUED), now=now)
    with pytest.raises(ApplyBusy):
        apply_now(plans.parts, plan, None)


def test_what_became_something_else_meanwhile_is_said_with_what_can_be_done(
    plans: PlanBench, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plans.done(write("new.txt", "new\n"))
    edited = plans.parts.plans.move(plan, (Phase.APPLY, PlanState.QUEUED), now=plans.container.clock.now())
    facts = PlanFacts(error="the checks failed")
    for state in (PlanState.PROCESSING, PlanState.CONSTRAINED):
        edited = plans.parts.plans.move(edited, (Phase.APPLY, state), facts, now=plans.container.clock.now())
    with pytest.raises(StalePlan):
        apply_now(plans.parts, plan, None)
    assert f"agents plan apply {plan.id}" in capsys.readouterr().err


def test_that_another_does_something_else_with_it_is_only_said(
    plans: PlanBench, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plans.plan(write("new.txt", "new\n"))
    assert once_applied_elsewhere(plans.parts, plan, None) is plan
    assert capsys.readouterr().err == "another process works on it now\n"
    done = plans.work(plan)
    assert once_applied_elsewhere(plans.parts, done, None) is done
    assert capsys.readouterr().err == ""
