"""What is said when a plan that was to be applied here was taken in hand by another process meanwhile.

Two may well run the same tree, or apply the same plan. One of them applies it, and for the other it is done.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cleveragents.cli.output import progress
from cleveragents.cli.plan.view import told_next, told_reason
from cleveragents.core.errors import ApplyBusy, StalePlan
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.apply.ports import CommitRequest
    from cleveragents.plans.model.plan import Plan

__all__ = ["applied_by_another", "once_applied_elsewhere"]

_PAUSE_SECONDS = 0.2
# Its checks may take long, and it ends with its process.
_LONGEST_SECONDS = 3600.0


def once_applied_elsewhere(parts: PlanParts, plan: Plan, commit: CommitRequest | None) -> Plan:
    """The same plan, unless another process applies it: then as `applied_by_another`. That another works on
    it in any other way is said, and no more."""
    if _is_being_applied(plan):
        return applied_by_another(parts, StalePlan(plan.id, plan.version), commit)
    if plan.state.running:
        progress("another process works on it now")
    return plan


def applied_by_another(parts: PlanParts, stale: StalePlan, commit: CommitRequest | None) -> Plan:
    """The plan, if it is applied once nobody is at it any more. Else `StalePlan`, and what can be done now is
    said; `ApplyBusy` if that cannot be waited for."""
    plan = _once_left(parts, parts.plans.get(stale.plan_id))
    if plan.standing != (Phase.APPLY, PlanState.APPLIED):
        told_reason(plan)
        told_next(parts, plan, commit)
        raise stale
    progress(f"another process has applied it; `agents plan undo {plan.id}` takes it back")
    if commit is not None:
        progress("it was not committed by this one; whether the other did, `git log` says")
    return plan


def _once_left(parts: PlanParts, plan: Plan) -> Plan:
    if _is_being_applied(plan):
        progress("another process applies it now; waiting for that")
    ends = time.monotonic() + _LONGEST_SECONDS
    while _is_being_applied(plan):
        busy = parts.apply.applier.is_busy(plan.resource)
        plan = parts.plans.get(plan.id)
        # Whoever applies it has its files until it says what came of it.
        if _is_being_applied(plan) and (not busy or time.monotonic() > ends):
            raise ApplyBusy(plan.resource)
        if busy:
            time.sleep(_PAUSE_SECONDS)
    return plan


def _is_being_applied(plan: Plan) -> bool:
    return plan.phase is Phase.APPLY and plan.state.running
