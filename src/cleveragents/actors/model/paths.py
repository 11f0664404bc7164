"""Paths through an actor's graph: unreachable nodes, endless loops and parallel nodes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cleveragents.actors.model.actor import (
    END,
    Actor,
    AgentNode,
    HumanNode,
    LlmNode,
    Node,
    RouterNode,
    SubgraphNode,
    ToolNode,
)

__all__ = ["concurrent_nodes", "never_ending", "router_circle", "unreachable", "written_by"]

_Ways = Mapping[str, tuple[str, ...]]


def unreachable(actor: Actor) -> tuple[str, ...]:
    """Return the nodes that no path from the entry reaches."""
    reached = _reached((actor.entry,), _ways(actor.nodes))
    return tuple(node.name for node in actor.nodes if node.name not in reached)


def never_ending(actor: Actor) -> tuple[str, ...]:
    """Return the nodes from which no path leads to `end`."""
    backwards: dict[str, tuple[str, ...]] = {}
    for node in actor.nodes:
        for target in node.next:
            backwards[target] = (*backwards.get(target, ()), node.name)
    out = _reached((END,), backwards)
    return tuple(node.name for node in actor.nodes if node.name not in out)


def router_circle(actor: Actor) -> tuple[str, ...]:
    """Return routers that form a loop without any other node in between; empty if there are none."""
    ways = _ways(node for node in actor.nodes if isinstance(node, RouterNode))
    for name, targets in ways.items():
        if name in _reached(targets, ways):
            return tuple(other for other in ways if other in _circle(name, ways))
    return ()


def concurrent_nodes(actor: Actor) -> Iterator[tuple[str, str]]:
    """Yield each pair of nodes that may run in parallel once, in the order of the file.

    At a fork, each branch owns the nodes that it reaches without passing the fork again. A node with several
    owners runs after those branches meet. Two nodes without a common owner do not wait for each other.
    """
    ways = _ways(actor.nodes)
    found: dict[tuple[str, str], None] = {}
    for node in actor.nodes:
        branches = tuple(dict.fromkeys(node.next))
        if isinstance(node, RouterNode) or len(branches) < 2:
            continue
        onward = {name: targets for name, targets in ways.items() if name != node.name}
        reach = {branch: _reached((branch,), onward) for branch in branches}
        owners = {name: frozenset(b for b in branches if name in reach[b]) for name in ways}
        owned = [name for name in ways if owners[name]]
        for number, first in enumerate(owned):
            for second in owned[number + 1 :]:
                if owners[first].isdisjoint(owners[second]):
                    found[first, second] = None
    return iter(found)


def written_by(node: Node, keys: Iterable[str]) -> frozenset[str]:
    """Return the given keys of the state that a node writes."""
    written: set[str] = set()
    if isinstance(node, (LlmNode, ToolNode, HumanNode, AgentNode)) and node.output is not None:
        written.add(node.output)
    if isinstance(node, LlmNode) and node.schema is not None:
        properties = node.schema.get("properties")
        written.update(properties if isinstance(properties, Mapping) else ())
    if isinstance(node, SubgraphNode):
        written.update(node.outputs)
    return frozenset(written.intersection(keys))


def _ways(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    return {node.name: node.next for node in nodes}


def _circle(name: str, ways: _Ways) -> set[str]:
    after = _reached(ways[name], ways)
    return {other for other in after if other in ways and name in _reached(ways[other], ways)}


def _reached(starts: Iterable[str], ways: _Ways) -> set[str]:
    seen = set(starts)
    queue = list(seen)
    while queue:
        for target in ways.get(queue.pop(), ()):
            if target not in seen:
                seen.add(target)
                queue.append(target)
    return seen
