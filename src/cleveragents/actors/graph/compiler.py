"""The compiler from actors to LangGraph graphs: nodes to nodes, routes to conditional edges, actors to
subgraphs.

An llm node with tools becomes two nodes, so that LangGraph writes a checkpoint after each call: the first
calls the model, the second makes its tool calls. Without tools it stays one node, because LangGraph inspects
all nodes at every step. Where branches meet, LangGraph's edges from several nodes wait for all branches. If a
branch can arrive over several edges, all of these edges lead to an extra node before the meeting point.

Meetings of branches are found without LangGraph. A node with several names in `next` forks. After a fork,
each step belongs to one branch, to several, or to none. Branches arrive at an edge that leads from a step of
fewer branches to a step of more. Arrivals of the same branches are alternatives, because a router chose one
of them; arrivals of other branches must all happen. Forks are processed from the inside out: the meeting of
an inner fork is one step of the outer fork.

Barrier channels are stored as lists, because checkpoints are plain. Nodes run without LangChain's tracing
chain, which calls callbacks, records a tree of calls and starts an extra task. CleverAgents needs no tracers,
because progress goes to the host, and a step is a seventh cheaper without the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.channels.named_barrier_value import NamedBarrierValue
from langgraph.constants import END as GRAPH_END
from langgraph.constants import START
from langgraph.graph import StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from cleveragents.actors.graph.llm_node import MODEL, ONWARD, TOOLS, LlmStep, ToolLoop
from cleveragents.actors.graph.nodes import (
    AcpStep,
    CommandStep,
    HumanStep,
    RouterStep,
    SubgraphStep,
    ToolStep,
)
from cleveragents.actors.graph.run_context import RunContext
from cleveragents.actors.graph.state import State, state_schema
from cleveragents.actors.model.actor import (
    END,
    AcpNode,
    Actor,
    CommandNode,
    HumanNode,
    LlmNode,
    Node,
    RouterNode,
    SubgraphNode,
    ToolNode,
)
from cleveragents.actors.ports import ActorSource
from cleveragents.core.errors import InvalidActor

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

__all__ = [
    "Edge",
    "Join",
    "PlainBarrier",
    "PlainSteps",
    "compile_actor",
    "joins_of",
    "with_plain_barriers",
    "with_plain_steps",
]


Edge = tuple[str, str]


def compile_actor(
    actor: Actor, actors: ActorSource, *, above: tuple[str, ...] = ()
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Compile an actor, including the actors that it runs as subgraphs. The graph has no checkpointer.

    Raises the errors of `actors`, `InvalidActor` if an actor runs itself or if `entry` or a `next` names a
    missing node, and `InvalidCondition`.
    """
    if actor.name in above:  # guard: a recursive actor would never end
        way = " → ".join((*above, actor.name))
        raise InvalidActor(actor.name, (f"the actor runs itself: {way}; remove one of the subgraphs",))
    return _Compilation(actor, actors, above).compiled()


class _Compilation:
    """The compilation of one actor. Not thread-safe: one per call."""

    def __init__(self, actor: Actor, actors: ActorSource, above: tuple[str, ...]) -> None:
        self._actor = actor
        self._actors = actors
        self._above = above
        self._nodes = {node.name: node for node in actor.nodes}
        self._check_names()
        self._keys = set(state_schema(actor).__annotations__)
        self._builder: StateGraph[Any, RunContext, Any, Any] = StateGraph(
            state_schema(actor), context_schema=RunContext
        )
        edges = [(node.name, to) for node in actor.nodes for to in node.next if to != END]
        forks = {node.name: _ways(node) for node in actor.nodes if len(_ways(node)) > 1}
        self._meetings = joins_of(actor.entry, edges, forks)
        self._groups = {
            edge: (join, number)
            for join in self._meetings
            for number, group in enumerate(join.groups)
            for edge in group
        }

    def compiled(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        for node in self._actor.nodes:
            self._add(node)
        for join in self._meetings:
            self._add_meeting(join)
        self._builder.add_edge(START, self._named(self._actor.entry))
        graph = with_plain_barriers(self._builder.compile(name=self._actor.name))
        return with_plain_steps(graph)

    def _check_names(self) -> None:
        wanted = {self._actor.entry, *(to for node in self._actor.nodes for to in node.next)} - {END}
        missing = sorted(wanted - set(self._nodes))
        if missing:  # guard: an edge needs a target
            problems = tuple(f"there is no node {name!r}" for name in missing)
            raise InvalidActor(self._actor.name, problems)

    # ── nodes ──

    def _add(self, node: Node) -> None:
        name = self._named(node.name)
        actor = self._actor
        if isinstance(node, LlmNode):
            self._add_llm(node)
        elif isinstance(node, RouterNode):
            router = RouterStep(actor, node)
            enter: Callable[..., Any] = router.enter
            self._builder.add_node(name, enter)
            ways: dict[Hashable, str] = {to: self._target((node.name, to)) for to in node.next}
            self._builder.add_conditional_edges(name, router.chosen, ways)
        else:
            self._builder.add_node(name, self._action(node))
            for to in node.next:
                if not self._arrives_itself((node.name, to)):
                    self._builder.add_edge(name, self._target((node.name, to)))

    def _action(
        self, node: ToolNode | SubgraphNode | HumanNode | CommandNode | AcpNode
    ) -> Callable[..., Any]:
        if isinstance(node, ToolNode):
            return ToolStep(self._actor, node).call
        if isinstance(node, HumanNode):
            return HumanStep(self._actor, node).ask
        if isinstance(node, CommandNode):
            return CommandStep(self._actor, node).run
        if isinstance(node, AcpNode):
            return AcpStep(self._actor, node).run
        inner = self._actors.get(node.actor)
        graph = compile_actor(inner, self._actors, above=(*self._above, self._actor.name))
        return SubgraphStep(self._actor, node, inner, graph).run

    def _add_llm(self, node: LlmNode) -> None:
        name = self._named(node.name)
        step, loop = LlmStep(self._actor, node), ToolLoop(self._actor, node)
        onward = [self._target((node.name, to)) for to in node.next]
        ways = {MODEL: [name], TOOLS: [f"{name}.tools"], ONWARD: onward}

        # The nodes choose their successors themselves. With a conditional edge, LangGraph would copy every
        # channel.
        async def think(state: State, runtime: Runtime[RunContext]) -> Command[Any]:
            update, way = await step.think(state, runtime)
            return Command(update=update, goto=ways[way])

        async def call(state: State, runtime: Runtime[RunContext]) -> Command[Any]:
            update, more = await loop.call(state, runtime)
            return Command(update=update, goto=ways[TOOLS if more else MODEL])

        tools = (f"{name}.tools",) if node.tools else ()
        targets = tuple(dict.fromkeys((name, *tools, *onward)))
        self._builder.add_node(name, think, destinations=targets)
        if tools:
            self._builder.add_node(*tools, call, destinations=(name, *tools))

    # ── edges ──

    def _named(self, node: str) -> str:
        """Return the node's name in the graph. LangGraph requires different names for nodes and keys."""
        return f"{node}.node" if node in self._keys else node

    def _target(self, edge: Edge) -> str:
        """Return the name of the edge's target: a node, or the extra node at which its branch arrives."""
        if edge in self._groups:
            join, number = self._groups[edge]
            return f"{join.name}.{number + 1}"
        return GRAPH_END if edge[1] == END else self._named(edge[1])

    def _arrives_itself(self, edge: Edge) -> bool:
        """Return whether the edge's source always takes this edge, and no other edge is an arrival of the
        same branch.
        """
        if edge not in self._groups:
            return False
        join, number = self._groups[edge]
        if len(join.groups[number]) > 1:
            return False
        source = edge[0]
        return source not in self._nodes or not isinstance(self._nodes[source], (LlmNode, RouterNode))

    def _add_meeting(self, join: Join) -> None:
        arrivals = [self._arrival(join, number, group) for number, group in enumerate(join.groups)]
        onward = (join.name, join.target)
        if onward not in self._groups:
            self._builder.add_edge(arrivals, self._named(join.target))
            return
        self._builder.add_node(join.name, _pass)
        self._builder.add_edge(arrivals, join.name)
        if not self._arrives_itself(onward):
            self._builder.add_edge(join.name, self._target(onward))

    def _arrival(self, join: Join, number: int, group: frozenset[Edge]) -> str:
        first = min(group)
        if self._arrives_itself(first):
            return self._named(first[0]) if first[0] in self._nodes else first[0]
        name = f"{join.name}.{number + 1}"
        self._builder.add_node(name, _pass)
        return name


async def _pass(state: State) -> None:
    """Do nothing. This is the function of the extra nodes at which branches wait for each other."""


def _ways(node: Node) -> tuple[str, ...]:
    """Return the successors that run in parallel; a router takes only one of its routes."""
    if isinstance(node, RouterNode):
        return ()
    return tuple(dict.fromkeys(to for to in node.next if to != END))


@dataclass(frozen=True, slots=True)
class Join:
    """A meeting of branches.

    `target` runs when one edge of every group was taken. When branches of an outer fork meet, `name` replaces
    `target` as the source of an edge.
    """

    name: str
    target: str
    groups: tuple[frozenset[Edge], ...]


def joins_of(entry: str, edges: Iterable[Edge], forks: Mapping[str, Sequence[str]]) -> tuple[Join, ...]:
    """Return all meetings of the graph, inner meetings first.

    `forks` maps the nodes that start parallel branches to those branches.
    """
    graph = _Graph(edges)
    depth = graph.depths(entry)
    found: list[Join] = []
    for fork in sorted(forks, key=lambda name: depth.get(name, 0), reverse=True):
        for target, groups in _arrivals(graph, fork, forks[fork]).items():
            join = Join(f"{target}.join{len(found) + 1}", target, groups)
            found.append(join)
            graph.replace(join)
    return tuple(found)


class _Graph:
    """The edges of a graph, which change while meetings are found. Not thread-safe: one per call."""

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

    def replace(self, join: Join) -> None:
        gone = frozenset[Edge]().union(*join.groups)
        self.edges = [edge for edge in self.edges if edge not in gone]
        self.edges += [(source, join.name) for source, _ in gone]
        self.edges.append((join.name, join.target))


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


class PlainBarrier(NamedBarrierValue[str]):
    """A `NamedBarrierValue` that stores its state as a list."""

    __slots__ = ()

    def checkpoint(self) -> Any:
        return sorted(self.seen)

    def from_checkpoint(self, checkpoint: Any) -> Self:
        kept = set(checkpoint) if isinstance(checkpoint, list) else checkpoint
        return super().from_checkpoint(kept)


def with_plain_barriers(
    graph: CompiledStateGraph[Any, Any, Any, Any],
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Replace the graph's barrier channels by `PlainBarrier` and return the graph."""
    for name, channel in graph.channels.items():
        if type(channel) is NamedBarrierValue:
            plain = PlainBarrier(channel.typ, channel.names)
            plain.key = name
            graph.channels[name] = plain
    return graph


class PlainSteps:
    """The parts of a node, run one after the other in the node's task.

    Implements the part of `Runnable` that LangGraph uses on a loop.
    """

    def __init__(self, steps: Sequence[Runnable[Any, Any]]) -> None:
        self._first, *self._others = steps

    async def ainvoke(self, given: Any, config: RunnableConfig) -> Any:
        # An interrupt and a subgraph read the config from there.
        before = var_child_runnable_config.get()
        var_child_runnable_config.set(config)
        try:
            said = await self._first.ainvoke(given, config)
        finally:
            # Not reset by a token: a run may be torn down from another context.
            var_child_runnable_config.set(before)
        for step in self._others:
            said = await step.ainvoke(said, config)
        return said


def with_plain_steps(
    graph: CompiledStateGraph[Any, Any, Any, Any],
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Replace the chains of the graph's nodes by `PlainSteps` and return the graph."""
    for node in graph.nodes.values():
        steps = getattr(node.node, "steps", None)
        if steps is not None:
            vars(node)["node"] = PlainSteps(steps)
    return graph
