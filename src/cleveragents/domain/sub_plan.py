"""Sub-plans: plans that others wait for."""

from __future__ import annotations

from collections.abc import Mapping

from cleveragents.domain.plan import Plan, PlanState

__all__ = ["SUB_PLANS", "waits_for_sub_plans"]

SUB_PLANS = "sub-plans"
"""What a parent waits for while it has nothing to do itself."""


def waits_for_sub_plans(plan: Plan) -> bool:
    """Whether it goes on when one of its sub-plans comes to rest, and not before."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return plan.state is PlanState.WAITING and waited.get("for") == SUB_PLANS
