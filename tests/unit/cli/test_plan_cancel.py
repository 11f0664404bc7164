"""The end of a plan: when a cancel returns, and what it leaves."""

from __future__ import annotations

from typing import Any

import click
import pytest

from cleveragents.api.client import LocalClient
from cleveragents.api.plans.available_actions import is_settled
from cleveragents.api.plans.local import LocalPlans
from cleveragents.api.plans.views import PlanView
from cleveragents.cli.plan.cancel import stop_plan
from cleveragents.core.errors import PlanError
from cleveragents.core.identifiers import Fence
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.ports.plans import PlanDraft, TreeLimits
from tests.plan_bench import PlanBench, write


class LatePlans(LocalPlans):
    """Plans of which each is done before it hears of the first cancel."""

    def __init__(self, plans: PlanBench) -> None:
        super().__init__(LocalClient(plans.container).access)
        self.bench = plans

    def cancel(self, plan_id: str, **more: Any) -> PlanView:
        plan = self.bench.parts.plans.get(plan_id)
        if plan.state.running:
            self.bench.work(plan)
            return self.get(plan_id)
        return super().cancel(plan_id, **more)


def test_a_result_that_came_before_the_cancel_is_kept(plans: PlanBench) -> None:
    late = LatePlans(plans)
    plan = late.get(plans.plan(write("new.txt", "new\n")).id)
    with click.Context(click.Command("cancel")), pytest.raises(PlanError, match="there is nothing to cancel"):
        stop_plan(late, plan, "not wanted", patience=60)
    assert late.get(plan.id).state is PlanState.COMPLETE


def test_a_cancelled_plan_rests_when_nothing_below_it_runs(plans: PlanBench) -> None:
    parts, now = plans.parts, plans.container.clock.now()
    root = plans.plan()
    job = plans.owned_job(root)
    new = PlanDraft("part", "tests/any", str(plans.repository))
    child = parts.plans.spawn(root, new, "1", TreeLimits(), now=now, fence=Fence(job.id, job.fence))
    root = parts.plans.move(plans.now(root), (root.phase, PlanState.CANCELLED), now=now)
    assert not is_settled(parts, root)
    parts.plans.move(child, (child.phase, PlanState.CANCELLED), now=now)
    assert is_settled(parts, root)
