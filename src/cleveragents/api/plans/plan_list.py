"""Lists of plans: which plans are listed, and the fields of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cleveragents.api.plans.details import fields_of
from cleveragents.api.plans.status_text import DONE
from cleveragents.api.workers import isolation_of
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.family import left_out_of, wanted_parts
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.model.usage_wait import is_parked

if TYPE_CHECKING:
    from cleveragents.access.model.user import ProjectScope
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["children_in", "latest", "needs_attention", "row_of"]

Row = dict[str, JsonValue]

_PAGE = 1000


def row_of(parts: PlanParts, plan: Plan, children: Sequence[Plan]) -> Row:
    """Return the row of a plan, with the number of its finished sub-plans."""
    done = sum(child.phase_state == DONE for child in children)
    return fields_of(plan) | {
        "isolation": isolation_of(parts, plan),
        "sub_plans": max(wanted_parts(plan), len(children)),
        "sub_plans_done": done,
        "sub_plans_left_out": len(left_out_of(parts, plan)),
    }


def children_in(parts: PlanParts, plans: Sequence[Plan]) -> dict[str, Sequence[Plan]]:
    """Return the sub-plans of these plans."""
    return dict(parts.plans.children_of([plan.id for plan in plans if wanted_parts(plan)]))


def needs_attention(plan: Plan) -> bool:
    """Return whether the plan is listed by default: a sub-plan only if it needs a person."""
    if plan.parent_id is None:
        return True
    return plan.state is PlanState.WAITING and not waits_for_sub_plans(plan) and not is_parked(plan)


def latest(
    parts: PlanParts,
    wanted: Callable[[Plan], bool],
    *,
    states: Sequence[PlanState],
    limit: int,
    after: str | None,
    scope: ProjectScope,
    place: str | None = None,
) -> tuple[list[Plan], bool]:
    """Return the matching plans of these projects, newest first, before that id, and whether there are
    more. `place` limits them to the resource with this path."""
    found: list[Plan] = []
    size = min(_PAGE, limit + 1)
    while page := parts.plans.list(
        states=states, resource=place, limit=size, after=after, newest_first=True, scope=scope
    ):
        after = page[-1].id
        known = parts.lifecycle.all_reconciled(page)
        found += [plan for plan in known if (not states or plan.state in states) and wanted(plan)]
        if len(found) > limit:
            break
    return found[:limit], len(found) > limit
