"""The sandbox of an ended plan, which a diff and an undo need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.core.errors import Remedy
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["ensure_diffable", "ensure_undoable", "is_kept", "was_removed"]

_REMOVED = "the sandbox was removed"


def is_kept(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the sandbox exists."""
    from cleveragents.sandboxes.rows import READY

    row = parts.sandboxes.shown_row(plan.id)
    return row is not None and row.state == READY


def was_removed(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the plan's sandbox was removed and no run will create another."""
    return not plan.state.running and bool(parts.history.calls(plan.id)) and not is_kept(parts, plan)


def ensure_diffable(parts: PlanParts, plan: Plan) -> None:
    """Raise `PlanError` if the changes can no longer be shown."""
    from cleveragents.core.errors import PlanError

    if parts.history.has_changes(plan.id) and was_removed(parts, plan):
        log = Remedy("plan.log", plan.id, text="List the calls")
        raise PlanError(plan.id, f"the changes can no longer be shown: {_REMOVED}", (log,))


def ensure_undoable(parts: PlanParts, plan: Plan) -> None:
    """Raise `PlanError` if the plan is applied and can no longer be undone."""
    from cleveragents.core.errors import PlanError

    if plan.state is not PlanState.APPLIED or is_kept(parts, plan):
        return
    last = parts.applier.last_of_plan(plan.id)
    commit = None if last is None else last.commit
    instead = "" if commit is None else f"; run `git revert {commit}` to revert the commit"
    raise PlanError(plan.id, f"the plan can no longer be undone: {_REMOVED}{instead}")
