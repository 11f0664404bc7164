"""Naive parents that wait for their sub-plans."""

from __future__ import annotations

from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.plans.model.sub_plan import is_at_rest
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.queue import PlanQueue

__all__ = ["LookThenWaitQueue", "MovedLaterQueue"]


class LookThenWaitQueue(PlanQueue):
    """Looks whether there is anything to wait for, and then waits."""

    def put_down(self, plan: Plan, waiting_for: JsonValue, fence: Fence | None = None) -> Plan:
        if any(is_at_rest(child) for child in self.plans.children(plan.id)):
            return plan
        standing = plan.phase, PlanState.WAITING
        facts = PlanFacts(waiting_for=waiting_for)
        return self.plans.move(plan, standing, facts, now=self.clock.now(), fence=fence)


class MovedLaterQueue(PlanQueue):
    """A job that is claimed before its plan moved does not recognize the plan, and ignores it."""

    def taken_up_by(self, job_id: str, plan: Plan) -> Plan:
        return plan
