"""A naive revision: it stops and revises whatever plan is stored by then."""

from __future__ import annotations

from cleveragents.plans.model.plan import Plan
from cleveragents.plans.pause import PlanPause

__all__ = ["PausesAnyVersion"]


class PausesAnyVersion(PlanPause):
    """A plan that another person has sent back meanwhile is stopped, and gets the same comments again."""

    def pause(self, plan: Plan, *, sub_plans: bool = True, version: int | None = None) -> Plan:
        return super().pause(plan, sub_plans=sub_plans)
