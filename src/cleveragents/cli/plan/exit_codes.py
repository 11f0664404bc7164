"""Exit codes for the end of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleveragents.api.plans.changes import changes_of
from cleveragents.core.errors import CheckFailed
from cleveragents.plans.apply_policy import ensure_checked
from cleveragents.plans.family import plans_needing_action
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.model.usage_wait import is_parked

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "NEEDS_HUMAN",
    "TRY_AGAIN",
    "exit_code",
    "exit_code_of",
    "joint_exit_code",
    "short_ids",
]

FAILED = 1
NEEDS_HUMAN = 3
TRY_AGAIN = 75
INTERRUPTED = 130

_SHORTEST = 6


def exit_code_of(parts: PlanParts, plan: Plan, *, only_review: bool = False) -> int:
    """Return the exit code of a plan: 0 if nothing is left to do, 1 if it failed, 3 if it or a sub-plan needs
    a person, and 75 if its sub-plans run elsewhere or it waits for a usage limit.
    """
    if plan.state is PlanState.ERRORED:
        return FAILED
    if plan.state is PlanState.CANCELLED:
        return INTERRUPTED
    if plan.state.ended:
        return 0
    if is_parked(plan) or (waits_for_sub_plans(plan) and not plans_needing_action(parts, plan)):
        return TRY_AGAIN
    if plan.state is not PlanState.COMPLETE:
        return NEEDS_HUMAN
    if plan.parent_id is not None:
        return 0  # its parent decides about the result
    try:
        ensure_checked(parts, plan)
    except CheckFailed as failed:
        return failed.exit_code
    return 0 if only_review or not changes_of(parts, plan) else NEEDS_HUMAN


def exit_code(plan: PlanView, *, only_review: bool = False) -> int:
    """Return 0 for a plan with nothing left to do, 1 for a failed plan, 3 for a plan that needs a person, 75
    for a plan that a worker runs, 130 for a paused or cancelled plan. With `only_review`, a result for
    review counts as 0.
    """
    if plan.state is PlanState.CANCELLED or plan.status is PlanStatus.PAUSED:
        return INTERRUPTED
    if plan.state is PlanState.ERRORED:
        return FAILED
    if plan.state.ended:
        return 0
    if not plan.at_rest:
        return TRY_AGAIN
    if plan.state is not PlanState.COMPLETE:
        return NEEDS_HUMAN
    if plan.parent is not None:
        return 0  # its parent decides about the result
    if any(check.required and not check.passed for check in plan.checks):
        return NEEDS_HUMAN
    return 0 if only_review or not plan.changes else NEEDS_HUMAN


def joint_exit_code(codes: Sequence[int]) -> int:
    """Return the exit code of several plans: 1 if any failed or was cancelled, otherwise 3 if any needs a
    person, otherwise 75 if any runs elsewhere, otherwise 0.
    """
    if any(code not in (0, NEEDS_HUMAN, TRY_AGAIN) for code in codes):
        return FAILED
    return next((code for code in (NEEDS_HUMAN, TRY_AGAIN) if code in codes), 0)


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each id that is unique among these ids."""
    length = _SHORTEST
    while len({one[-length:] for one in ids}) < len(set(ids)):
        length += 1
    return {one: one[-length:] for one in ids}
