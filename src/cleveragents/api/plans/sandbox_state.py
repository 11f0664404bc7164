"""What is left of a plan: the sandbox that a diff and an undo need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.core.errors import Remedy
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["ensure_diffable", "ensure_undoable", "is_kept", "was_removed"]

_REMOVED = "its sandbox was removed"


def is_kept(parts: PlanParts, plan: Plan) -> bool:
    """Whether its sandbox is there."""
    from cleveragents.sandboxes.rows import READY

    row = parts.sandboxes.row(plan.id)
    return row is not None and row.state == READY


def was_removed(parts: PlanParts, plan: Plan) -> bool:
    """Whether it had a sandbox and has none any more, and nobody is about to make another."""
    return not plan.state.running and bool(parts.history.calls(plan.id)) and not is_kept(parts, plan)


def ensure_diffable(parts: PlanParts, plan: Plan) -> None:
    """`PlanError` when what it changed cannot be shown any more."""
    from cleveragents.core.errors import PlanError

    if parts.history.changes(plan.id) and was_removed(parts, plan):
        log = Remedy("plan.log", plan.id, text="List its calls")
        raise PlanError(plan.id, f"what it changed cannot be shown any more: {_REMOVED}", (log,))


def ensure_undoable(parts: PlanParts, plan: Plan) -> None:
    """`PlanError` when it is applied and cannot be undone any more."""
    from cleveragents.core.errors import PlanError

    if plan.state is not PlanState.APPLIED or is_kept(parts, plan):
        return
    last = parts.applier.last_of_plan(plan.id)
    commit = None if last is None else last.commit
    instead = "" if commit is None else f"; `git revert {commit}` takes back the commit that it made"
    raise PlanError(plan.id, f"it cannot be undone any more: {_REMOVED}{instead}")
