"""The graphs of a plan's actors, and the running nodes, as far as known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.api.actors import actor_graph
from cleveragents.api.plans.budget import role_assignment_of
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["graphs_of"]

Row = dict[str, JsonValue]


def graphs_of(parts: PlanParts, plan: Plan) -> list[Row]:
    """Return a graph for each role of an actor in the plan; none for fixed steps.

    `running` names the nodes that call a model now; None if unknown, because the plan runs without a pending
    model call.
    """
    try:
        casting = role_assignment_of(parts, plan)
    except CleverAgentsError:  # its action is gone or no longer trusted
        casting = None
    if casting is None:
        return []
    roles = (("strategize", casting.strategize), ("execute", casting.execute), ("review", casting.review))
    asking = _asking(parts, plan)
    return [_graph(parts, plan, role, name, asking) for role, name in roles if name]


def _graph(parts: PlanParts, plan: Plan, role: str, name: str, asking: set[tuple[str, str]] | None) -> Row:
    mine = None if asking is None else sorted(node for actor, node in asking if actor == name)
    known: Row = {"actor": name, "role": role, "running": freeze(mine), "problem": None}
    try:
        drawn = actor_graph(parts.actors_of(plan).get(name))
    except CleverAgentsError as error:
        return known | {"entry": None, "nodes": (), "edges": (), "problem": str(error)}
    return known | {"entry": drawn["entry"], "nodes": drawn["nodes"], "edges": drawn["edges"]}


def _asking(parts: PlanParts, plan: Plan) -> set[tuple[str, str]] | None:
    """Return the actors and nodes that wait for a model; None if the plan runs but no actor waits for a
    model.
    """
    if plan.state is not PlanState.PROCESSING:
        return set()
    calls = parts.actor_parts.budgets.calls_of(plan.id)
    under_way = {(call.actor, call.node.partition(".")[0]) for call in calls if call.ended_at is None}
    return under_way or None
