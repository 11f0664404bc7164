"""What is said when a plan that was to be applied here was taken in hand by another process meanwhile.

Two may well run the same tree, or apply the same plan. One of them applies it, and for the other it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.domain.plan import Phase, PlanState
from cleveragents.errors import ApplyBusy, StalePlan
from cleveragents.interfaces.cli.output import progress
from cleveragents.interfaces.cli.plan_view import told_next

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.application.ports.applies import CommitRequest
    from cleveragents.domain.plan import Plan

__all__ = ["applied_by_another", "tell_if_running"]


def applied_by_another(parts: PlanParts, stale: StalePlan, commit: CommitRequest | None) -> Plan:
    """The plan, if it is applied by now. `ApplyBusy` while another is at it; else `StalePlan`, and what can
    be done now is said."""
    plan = parts.plans.get(stale.plan_id)
    if plan.standing == (Phase.APPLY, PlanState.APPLIED):
        progress(f"another process has applied it meanwhile; `agents plan undo {plan.id}` takes it back")
        if commit is not None:
            progress("it was not committed by this one; whether the other did, `git log` says")
        return plan
    if plan.phase is Phase.APPLY and plan.state.running:
        raise ApplyBusy(plan.resource)
    told_next(parts, plan, commit)
    raise stale


def tell_if_running(plan: Plan) -> None:
    """Says that another works on it. `ApplyBusy` while that one applies it."""
    if plan.state.running:
        progress("another process works on it now")
        if plan.phase is Phase.APPLY:
            raise ApplyBusy(plan.resource)
