"""Trees of plans: the sub-plans of a plan, the merged sub-plans, and the sub-plans that need a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from cleveragents.changes.model.merge_conflict import MergeConflict, open_conflicts, part_of_merge
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState
from cleveragents.models.model.budget import Spend
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.model.usage_wait import is_parked
from cleveragents.plans.sub_plans.messages import left_out_message

if TYPE_CHECKING:
    from cleveragents.models.ports import ModelCall
    from cleveragents.plans.history import PlanHistory
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore
    from cleveragents.plans.sub_plans.loop import SubPlans

__all__ = [
    "LEFT_OUT",
    "FamilyParts",
    "below",
    "conflicts_of",
    "count_of_parts",
    "is_merged",
    "left_out_of",
    "left_out_text",
    "parts_of",
    "plans_needing_action",
    "short_of",
    "spend_of",
    "title_of",
    "wanted_parts",
]

LEFT_OUT = "left out"
"""The state of a sub-plan that its parent continues without."""

_SHORT = 6
_DONE = (Phase.EXECUTE, PlanState.COMPLETE)


class FamilyParts(Protocol):
    """The parts of the plan engine that these functions need."""

    @property
    def plans(self) -> SqlPlanStore: ...

    @property
    def history(self) -> PlanHistory: ...

    @property
    def sub_plans(self) -> SubPlans: ...


def short_of(plan_id: str) -> str:
    """Return the last characters of the id, which are enough to identify the plan."""
    return plan_id[-_SHORT:]


def title_of(plan: Plan) -> str:
    """Return the title of the plan on one line: the name of a sub-plan, otherwise the goal."""
    name = plan.request.get("name") if plan.parent_id is not None else None
    return " ".join(name.split()) if isinstance(name, str) and name else _goal_of(plan)


def _goal_of(plan: Plan) -> str:
    goal = redact_text(plan.goal).strip()
    if plan.parent_id is not None:
        goal = goal.partition("\n")[0]
    return " ".join(goal.split())


def wanted_parts(plan: Plan) -> int:
    """Return the number of sub-plans in the strategy, created or not."""
    return sum(bool(task.get("sub_plan")) for task in _tasks(plan))


def below(parts: FamilyParts, plan: Plan) -> list[Plan]:
    """Return all plans below this one, each after its parent, in order of creation."""
    found: list[Plan] = []
    for child in parts.plans.children(plan.id):
        found += [child, *below(parts, child)]
    return found


def spend_of(calls: Sequence[ModelCall]) -> Spend:
    """Return the total spending of the finished calls."""
    return Spend(
        picodollars=sum(call.picodollars or 0 for call in calls),
        tokens=sum(call.usage.total for call in calls if call.usage is not None),
        steps=len(calls),
    )


def plans_needing_action(parts: FamilyParts, plan: Plan) -> list[Plan]:
    """Return the plan and all plans below it that wait for a person."""
    tree = [plan, *below(parts, plan)]
    waiting = [one for one in tree if one.state is PlanState.WAITING]
    return [one for one in waiting if not waits_for_sub_plans(one) and not is_parked(one)]


def is_merged(parts: FamilyParts, plan: Plan) -> bool:
    """Return whether the result of the sub-plan is merged into its parent."""
    return plan.parent_id is not None and plan.key in _merged(parts, plan.parent_id)


def conflicts_of(parts: FamilyParts, plan: Plan) -> Sequence[MergeConflict]:
    """Return the open conflicts of the sub-plans, or of a rebase."""
    return open_conflicts(parts.history.merge_calls(plan.id))


def left_out_of(parts: FamilyParts, plan: Plan) -> list[tuple[str, str]]:
    """Return the name and the reason of each sub-plan that is missing in the result because it, or a sub-plan
    that it needs, was cancelled. The list includes missing sub-plans of sub-plans.
    """
    if not wanted_parts(plan):
        return []
    children = parts.plans.children(plan.id)
    names = [str(task["name"]) for task in _tasks(plan)]
    found = [(names[number - 1], why) for number, why in _left_out(parts, plan, children).items()]
    for child in children:
        if child.phase_state == _DONE:
            found += [(f"{title_of(child)}: {name}", why) for name, why in left_out_of(parts, child)]
    return found


def left_out_text(parts: FamilyParts, plan: Plan) -> str:
    """Return `left out: one (cancelled), three (needs one)`; empty if nothing is left out."""
    return left_out_message(left_out_of(parts, plan))


def count_of_parts(parts: FamilyParts, plan: Plan) -> str:
    """Return the number of finished and of planned sub-plans, as in `3/5`; empty if there are none."""
    children = parts.plans.children(plan.id)
    wanted = max(wanted_parts(plan), len(children))
    done = sum(child.phase_state == _DONE for child in children)
    return f"{done}/{wanted}" if wanted else ""


def parts_of(parts: FamilyParts, plan: Plan) -> list[dict[str, JsonValue]]:
    """Return a row for each sub-plan, started or not, in the order of the strategy, then a row for each
    sub-plan of a corrected decision.
    """
    known = {child.key: child for child in parts.plans.children(plan.id)}
    merged = _merged(parts, plan.id)
    left_out = _left_out(parts, plan, list(known.values()))
    names = {number: str(task["name"]) for number, task in enumerate(_tasks(plan), start=1)}
    rows: list[dict[str, JsonValue]] = []
    for number, task in enumerate(_tasks(plan), start=1):
        if not task.get("sub_plan"):
            continue
        part = _part(number, task)
        child = known.pop(part, None)
        needs = [names[need] for need in _numbers(task.get("needs")) if need in names]
        row = _row(names[number], needs, part, child, part in merged)
        if number in left_out:
            row |= {"state": LEFT_OUT, "why": redact_text(left_out[number])}
        rows.append(row)
    # Sub-plans of a corrected decision are listed too.
    return [*rows, *(_row(title_of(child), [], key, child, key in merged) for key, child in known.items())]


def _left_out(parts: FamilyParts, plan: Plan, children: Sequence[Plan]) -> Mapping[int, str]:
    """Return the reasons of left-out tasks, by task number; empty unless a sub-plan has ended."""
    return parts.sub_plans.left_out_of(plan) if any(child.state.ended for child in children) else {}


def _row(
    name: str, needs: Sequence[str], part: str | None, child: Plan | None, merged: bool
) -> dict[str, JsonValue]:
    return {
        "name": redact_text(name),
        "part": part,
        "id": None if child is None else child.id,
        "phase": None if child is None else child.phase.value,
        "state": None if child is None else child.state.value,
        "needs": list(needs),
        "merged": merged,
        "why": None,
        "waits_for": None if child is None else _waited(child),
        "error": None if child is None or child.error is None else redact_text(child.error),
    }


def _waited(plan: Plan) -> JsonValue:
    return plan.waiting_for.get("for") if isinstance(plan.waiting_for, Mapping) else None


def _merged(parts: FamilyParts, plan_id: str) -> frozenset[str]:
    ended = [call for call in parts.history.calls(plan_id) if call.state is CallState.ENDED]
    return frozenset(part for call in ended if (part := part_of_merge(call)) is not None)


def _part(number: int, task: Mapping[str, JsonValue]) -> str:
    """Return the same name as `Task.part`."""
    return f"{number}~{task['round']}" if task.get("round") else str(number)


def _tasks(plan: Plan) -> list[Mapping[str, JsonValue]]:
    kept = plan.strategy.get("tasks") if isinstance(plan.strategy, Mapping) else None
    tasks = kept if isinstance(kept, Sequence) and not isinstance(kept, str) else ()
    return [task for task in tasks if isinstance(task, Mapping)]


def _numbers(value: JsonValue) -> list[int]:
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [item for item in items if isinstance(item, int)]
