"""Naive timers of plans that wait for a usage limit."""

from __future__ import annotations

from msgspec.structs import replace

from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.run import OwnedPlan, PlanRun

__all__ = ["ForgetfulRun", "RereadingRun"]


class RereadingRun(PlanRun):
    """Moves the plan as it is stored at that moment, not the version that its worker has read."""

    def _wake(self, held: OwnedPlan) -> None:
        held.plan = replace(held.plans.get(held.plan.id))
        self.sandbox_edits.take_back_failure(held.plan)
        held.move(held.plan.phase, PlanState.QUEUED)


class ForgetfulRun(PlanRun):
    """Leaves what the refused call did in the sandbox."""

    def _wake(self, held: OwnedPlan) -> None:
        held.move(held.plan.phase, PlanState.QUEUED)
