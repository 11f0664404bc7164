"""Where branches meet: which nodes have to wait, and for whom. Pure; nothing here knows LangGraph.

A node with several names in `next` forks: from there on, a step of the graph belongs to one branch, to
several, or to none. An edge that leads from what belongs to fewer branches into what belongs to more is
where branches arrive. Arrivals of the same branches are alternatives (a router chose one of them), those of
others have to come as well. Forks are looked at from the inside out: what an inner fork's branches met at is
one step of the outer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Edge", "Meeting", "meetings"]

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Meeting:
    """`target` goes on when of every group one of its edges was taken. Its `name` stands for it as the source
    of an edge, where branches of an outer fork meet again."""

    name: str
    target: str
    groups: tuple[frozenset[Edge], ...]


def meetings(entry: str, edges: Iterable[Edge], forks: Mapping[str, Sequence[str]]) -> tuple[Meeting, ...]:
    """Every meeting of the graph, inner ones first. `forks` are the nodes that go several ways at once."""
    graph = _Graph(edges)
    depth = graph.depths(entry)
    found: list[Meeting] = []
    for fork in sorted(forks, key=lambda name: depth.get(name, 0), reverse=True):
        for target, groups in _arrivals(graph, fork, forks[fork]).items():
            meeting = Meeting(f"{target}.join{len(found) + 1}", target, groups)
            found.append(meeting)
            graph.replace(meeting)
    return tuple(found)


class _Graph:
    """Edges that change while meetings are found. Not thread-safe: one call's own."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self.edges = list(dict.fromkeys(edges))

    def after(self, node: str) -> list[str]:
        return [target for source, target in self.edges if source == node]

    def depths(self, entry: str) -> dict[str, int]:
        depth = {entry: 0}
        for node in (queue := [entry]):
            for target in self.after(node):
                if target not in depth:
                    depth[target] = depth[node] + 1
                    queue.append(target)
        return depth

    def reached(self, start: str, without: str) -> set[str]:
        seen = {start}
        for node in (queue := [start]):
            for target in self.after(node) if node != without else ():
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
        return seen

    def replace(self, meeting: Meeting) -> None:
        gone = frozenset[Edge]().union(*meeting.groups)
        self.edges = [edge for edge in self.edges if edge not in gone]
        self.edges += [(source, meeting.name) for source, _ in gone]
        self.edges.append((meeting.name, meeting.target))


def _arrivals(graph: _Graph, fork: str, branches: Sequence[str]) -> dict[str, tuple[frozenset[Edge], ...]]:
    reached = {branch: graph.reached(branch, fork) for branch in branches}
    found: dict[str, tuple[frozenset[Edge], ...]] = {}
    for target in dict.fromkeys(target for _, target in graph.edges):
        here = {branch for branch in branches if target in reached[branch]}
        groups: list[tuple[set[str], set[Edge]]] = []
        for edge in graph.edges:
            owners = _owners(edge, fork, branches, reached)
            if edge[1] == target and owners and owners < here:
                _add(groups, owners, edge)
        if len(groups) > 1:
            found[target] = tuple(frozenset(edges) for _, edges in groups)
    return found


def _owners(edge: Edge, fork: str, branches: Sequence[str], reached: Mapping[str, set[str]]) -> set[str]:
    source, target = edge
    if source == fork:
        return {target}
    return {branch for branch in branches if source in reached[branch]}


def _add(groups: list[tuple[set[str], set[Edge]]], owners: set[str], edge: Edge) -> None:
    joined = (set(owners), {edge})
    for group in [group for group in groups if group[0] & owners]:
        groups.remove(group)
        joined = (joined[0] | group[0], joined[1] | group[1])
    groups.append(joined)
