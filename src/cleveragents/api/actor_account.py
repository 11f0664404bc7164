"""Actors as rows and JSON show them, and as a graph."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import RouterNode
from cleveragents.core.json_value import JsonValue, freeze

if TYPE_CHECKING:
    from cleveragents.actors.library import ActorListing
    from cleveragents.actors.model.actor import Actor, Node

__all__ = ["actor_account", "actor_graph", "actor_row"]


def actor_row(listing: ActorListing) -> dict[str, JsonValue]:
    """An actor in a list: the first line of what it says of itself, and what is wrong with it."""
    described = listing.actor.description if listing.actor else ""
    return {
        "name": listing.name,
        "origin": listing.origin,
        "trusted": listing.trusted,
        "description": described.partition("\n")[0],
        "source": listing.source,
        "problem": listing.problem,
    }


def actor_account(shown: Actor) -> dict[str, JsonValue]:
    """All of an actor."""
    return {
        "name": shown.name,
        "description": shown.description,
        "model": shown.model,
        "read_only": shown.read_only,
        "entry": shown.entry,
        "limits": asdict(shown.limits),
        "state": [
            {
                "name": key.name,
                "type": key.type,
                "reducer": key.reducer,
                "default": key.default,
                "description": key.description,
            }
            for key in shown.state
        ],
        "nodes": [_node_fields(node) for node in shown.nodes],
    }


def actor_graph(drawn: Actor) -> dict[str, JsonValue]:
    """Which node follows which, and on which condition."""
    from cleveragents.actors.drawing import edges, mermaid, node_type

    return {
        "name": drawn.name,
        "entry": drawn.entry,
        "nodes": [{"name": node.name, "type": node_type(node)} for node in drawn.nodes],
        "edges": [
            {"from": source, "to": target, "when": when or None} for source, target, when in edges(drawn)
        ],
        "mermaid": mermaid(drawn),
    }


def _node_fields(node: Node) -> JsonValue:
    from cleveragents.actors.drawing import node_type

    facts = {item.name: getattr(node, item.name) for item in fields(node)}
    if isinstance(node, RouterNode):
        facts["routes"] = [{"to": route.to, "when": route.when} for route in node.routes]
    return freeze({"name": node.name, "type": node_type(node), **facts, "next": node.next})
