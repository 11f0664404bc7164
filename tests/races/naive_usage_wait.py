"""A naive timer of plans that wait for a usage limit."""

from __future__ import annotations

from dataclasses import replace

from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.run import OwnedPlan, PlanRun

__all__ = ["RereadingRun"]


class RereadingRun(PlanRun):
    """Moves the plan as it is stored at that moment, not the version that its worker has read."""

    def _wake(self, held: OwnedPlan) -> None:
        held.plan = replace(held.plans.get(held.plan.id))
        held.move(held.plan.phase, PlanState.QUEUED)
