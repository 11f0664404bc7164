"""Lists of plans, rows of the board and the data of a plan's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cleveragents.api.plans.available_actions import is_at_rest, needs_of, possible_actions
from cleveragents.api.plans.details import details_of, fields_of
from cleveragents.api.plans.status_text import (
    DONE,
    has_active_sub_plans,
    obstacle_of,
    plan_status,
    short_status_of,
    status_text_of,
)
from cleveragents.api.reachability import is_unreachable
from cleveragents.api.views import as_json
from cleveragents.api.workers import isolation_of, missing_worker
from cleveragents.core.errors import remedies_to_json
from cleveragents.plans.apply_policy import held_back, is_apply_allowed
from cleveragents.plans.family import left_out_of, wanted_parts
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.model.usage_wait import is_parked
from cleveragents.storage.database import shared_reads

if TYPE_CHECKING:
    from cleveragents.access.model.user import ProjectScope
    from cleveragents.api.access import Access
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.errors import Remedy
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = ["board_row", "children_in", "latest", "needs_attention", "overview_of", "resource_name_of"]

Row = dict[str, "JsonValue"]

_PAGE = 1000

_GOES_ON = frozenset({"answer", "approve", "budget", "correct", "deny", "rebase", "resume", "revise"})

_SHOWN = {"diff": "diff", "log": "list of calls", "show": "account", "watch": "account"}
"""Steps that only show something."""

_EMPTY: Row = {
    "branch": None,
    "sandbox": None,
    "sandbox_removed": False,
    "notes": (),
    "files_changed": 0,
    "changes": (),
    "tree": None,
    "ignored": (),
    "nested_repositories": (),
    "removed_submodules": (),
    "renames": (),
    "last_apply": None,
    "published": None,
    "review_problem": None,
    "broken_invariant": None,
    "left_out": (),
    "checks": (),
    "spending": {},
    "sub_plans": (),
    "sub_plans_done": 0,
    "parts_left_out": (),
    "conflicts": (),
    "corrections": (),
    "open_comments": 0,
    "calls": (),
}


def _row_of(parts: PlanParts, plan: Plan, children: Sequence[Plan]) -> Row:
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


@shared_reads()
def board_row(parts: PlanParts, plan: Plan, children: Sequence[Plan]) -> Row:
    """Return the row of a plan."""
    return _row_of(parts, plan, children) | _standing(parts, plan)


@shared_reads()
def overview_of(access: Access, plan: Plan, *, shared: bool = True) -> Row:
    """Return everything about a plan; without its repository, as much as is known.

    With `shared`, actions that continue the plan are only offered if a worker can run it for the user.
    """
    # A list of plans does not need these.
    from cleveragents.api.plans.hints import hints_of
    from cleveragents.api.plans.next_steps import steps_from
    from cleveragents.api.rules import approval_of

    parts = access.container.plan_parts
    if is_unreachable(parts, plan):
        known = fields_of(plan) | _EMPTY | _standing(parts, plan)
        # The repository may be on another machine that waits for a worker.
        steps = steps_to_json(missing_worker(parts, plan))
        return (
            known | steps | {"can": (), "elsewhere": None, "out_of_reach": plan.resource, "in_the_way": None}
        )
    approval = approval_of(parts, plan)
    return (
        details_of(parts, plan)
        | _standing(parts, plan)
        | steps_to_json(steps_from(parts, plan))
        | {
            **(
                _possible(access, plan)
                if shared
                else {"can": possible_actions(parts, plan), "elsewhere": None}
            ),
            "out_of_reach": None,
            "in_the_way": obstacle_of(parts, plan),
            "hints": hints_of(access, plan),
            "approval": None if approval is None else as_json(approval),
        }
        | {"worked_on": _is_worked_on(parts, plan)}
        | _unasked(parts, plan)
    )


def _is_worked_on(parts: PlanParts, plan: Plan) -> bool:
    """Return whether a worker runs the plan, applies it, or runs a plan below it."""
    if plan.state.running and (plan.phase is Phase.APPLY or parts.lifecycle.has_worker(plan)):
        return True
    return has_active_sub_plans(parts, plan)


def _unasked(parts: PlanParts, plan: Plan) -> Row:
    """Return whether the result may be applied without approval, and the reasons if it may not. This includes
    a result whose apply failed.
    """
    if plan.phase_state not in (DONE, (Phase.APPLY, PlanState.CONSTRAINED), (Phase.APPLY, PlanState.ERRORED)):
        return {"apply_allowed": False, "held_back": ()}
    return {"apply_allowed": is_apply_allowed(plan), "held_back": held_back(parts, plan)}


def steps_to_json(steps: Sequence[Remedy]) -> Row:
    """Return the steps as data (`steps`), and as text with the action names of `can` and the page
    (`next_steps`).
    """
    return {"steps": remedies_to_json(steps), "next_steps": [[_in_words(step), step.text] for step in steps]}


def _in_words(step: Remedy) -> str:
    name = step.action.rpartition(".")[2]
    if step.plan is None:
        return f"`{name}`"
    if name in _SHOWN:
        return f"the {_SHOWN[name]} of plan {step.plan}"
    options = "".join(f", with `{option}`" for option in step.options)
    return f"`{name}` of plan {step.plan}{options}"


def _possible(access: Access, plan: Plan) -> Row:
    """Return the possible actions. If no worker can continue the plan, leave out the actions that continue
    it, and also return the reason.
    """
    from cleveragents.api.plans.responses import adoption_refusal

    can, refusal = possible_actions(access.container.plan_parts, plan), adoption_refusal(access, plan)
    offered = [what for what in can if refusal is None or what not in _GOES_ON]
    return {"can": offered, "elsewhere": refusal if len(offered) < len(can) else None}


def resource_name_of(plan: Plan) -> str | None:
    """Return the name of the plan's resource, if the request named one; else None."""
    return _asked(plan, "resource_name")


def _standing(parts: PlanParts, plan: Plan) -> Row:
    status = plan_status(parts, plan)
    is_over = plan.state is PlanState.CONSTRAINED and status is not PlanStatus.BLOCKED
    return {
        **({"error": None} if is_over else {}),  # the error was about a result that was rolled back
        "status": status.value,
        "version": plan.version,
        "project": plan.project,
        "resource_name": resource_name_of(plan),
        "needs": needs_of(parts, plan),
        "at_rest": is_at_rest(plan),
        "label": short_status_of(parts, plan, status),
        "meaning": status_text_of(parts, plan, status),
    }


def _asked(plan: Plan, name: str) -> str | None:
    value = plan.request.get(name)
    return value if isinstance(value, str) else None
