"""Exit codes for the end of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanView

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "NEEDS_HUMAN",
    "TRY_AGAIN",
    "exit_code",
    "joint_exit_code",
    "short_ids",
]

FAILED = 1
NEEDS_HUMAN = 3
TRY_AGAIN = 75
INTERRUPTED = 130

_SHORTEST = 6


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
