"""From an actor to a LangGraph graph: nodes to nodes, routes to conditional edges, actors to subgraphs.

An llm node with tools becomes two, one that asks the model and one that makes its calls, so that LangGraph
keeps a checkpoint after each; without tools it stays one, because LangGraph looks at all of them at every
step. Where branches meet, LangGraph's edges from several nodes at once do the waiting; a branch with several
ways to arrive gets a node of its own there, which they all lead to.

Where branches meet: which nodes have to wait, and for whom. Pure; nothing here knows LangGraph.

A node with several names in `next` forks: from there on, a step of the graph belongs to one branch, to
several, or to none. An edge that leads from what belongs to fewer branches into what belongs to more is
where branches arrive. Arrivals of the same branches are alternatives (a router chose one of them), those of
others have to come as well. Forks are looked at from the inside out: what an inner fork's branches met at is
one step of the outer's.

LangGraph's channel for nodes that wait for several others, kept as a list: checkpoints are plain.

LangGraph's nodes without what only tracers need.

LangGraph runs the function of a node, and then what writes its result, as a chain of LangChain's: it tells
callbacks of each part, keeps a tree of them, and gives the function a task of its own. Nobody listens here:
what a run lets be seen goes to its host. Without it a step of a graph costs a seventh less.
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
    "meetings",
    "with_plain_barriers",
    "with_plain_steps",
]


Edge = tuple[str, str]


def compile_actor(
    actor: Actor, actors: ActorSource, *, above: tuple[str, ...] = ()
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The graph of an actor and, in it, those of the actors it names; without a checkpointer of its own.

    `UnknownActor` and the like from `actors`; `InvalidActor` when an actor leads back to itself, or when its
    `entry` or a `next` names nothing; `InvalidCondition`.
    """
    if actor.name in above:  # guard: this would go on for ever
        way = " → ".join((*above, actor.name))
        raise InvalidActor(actor.name, (f"it runs itself: {way}; take one of the subgraphs out",))
    return _Compilation(actor, actors, above).compiled()


class _Compilation:
    """One actor on its way. Not thread-safe: one call's own."""

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
        self._meetings = meetings(actor.entry, edges, forks)
        self._groups = {
            edge: (meeting, number)
            for meeting in self._meetings
            for number, group in enumerate(meeting.groups)
            for edge in group
        }

    def compiled(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        for node in self._actor.nodes:
            self._add(node)
        for meeting in self._meetings:
            self._add_meeting(meeting)
        self._builder.add_edge(START, self._named(self._actor.entry))
        graph = with_plain_barriers(self._builder.compile(name=self._actor.name))
        return with_plain_steps(graph)

    def _check_names(self) -> None:
        wanted = {self._actor.entry, *(to for node in self._actor.nodes for to in node.next)} - {END}
        missing = sorted(wanted - set(self._nodes))
        if missing:  # guard: an edge to nowhere
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

        # They say themselves where to go: an edge that looked would have every channel copied for it.
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
        """LangGraph wants nodes and keys to have different names."""
        return f"{node}.node" if node in self._keys else node

    def _target(self, edge: Edge) -> str:
        """What a node leads to by this edge: another, or the place where its branch arrives."""
        if edge in self._groups:
            meeting, number = self._groups[edge]
            return f"{meeting.name}.{number + 1}"
        return GRAPH_END if edge[1] == END else self._named(edge[1])

    def _arrives_itself(self, edge: Edge) -> bool:
        """Whether a node that always takes this edge is the only one of its branch to arrive there."""
        if edge not in self._groups:
            return False
        meeting, number = self._groups[edge]
        if len(meeting.groups[number]) > 1:
            return False
        source = edge[0]
        return source not in self._nodes or not isinstance(self._nodes[source], (LlmNode, RouterNode))

    def _add_meeting(self, meeting: Join) -> None:
        arrivals = [self._arrival(meeting, number, group) for number, group in enumerate(meeting.groups)]
        onward = (meeting.name, meeting.target)
        if onward not in self._groups:
            self._builder.add_edge(arrivals, self._named(meeting.target))
            return
        self._builder.add_node(meeting.name, _pass)
        self._builder.add_edge(arrivals, meeting.name)
        if not self._arrives_itself(onward):
            self._builder.add_edge(meeting.name, self._target(onward))

    def _arrival(self, meeting: Join, number: int, group: frozenset[Edge]) -> str:
        first = min(group)
        if self._arrives_itself(first):
            return self._named(first[0]) if first[0] in self._nodes else first[0]
        name = f"{meeting.name}.{number + 1}"
        self._builder.add_node(name, _pass)
        return name


async def _pass(state: State) -> None:
    """A place to wait at."""


def _ways(node: Node) -> tuple[str, ...]:
    """The branches that run at once; a router takes one of its ways."""
    if isinstance(node, RouterNode):
        return ()
    return tuple(dict.fromkeys(to for to in node.next if to != END))


@dataclass(frozen=True, slots=True)
class Join:
    """`target` goes on when of every group one of its edges was taken. Its `name` stands for it as the source
    of an edge, where branches of an outer fork meet again."""

    name: str
    target: str
    groups: tuple[frozenset[Edge], ...]


def meetings(entry: str, edges: Iterable[Edge], forks: Mapping[str, Sequence[str]]) -> tuple[Join, ...]:
    """Every meeting of the graph, inner ones first. `forks` are the nodes that go several ways at once."""
    graph = _Graph(edges)
    depth = graph.depths(entry)
    found: list[Join] = []
    for fork in sorted(forks, key=lambda name: depth.get(name, 0), reverse=True):
        for target, groups in _arrivals(graph, fork, forks[fork]).items():
            meeting = Join(f"{target}.join{len(found) + 1}", target, groups)
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

    def replace(self, meeting: Join) -> None:
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


class PlainBarrier(NamedBarrierValue[str]):
    """Available when all of `names` have arrived, as its parent is."""

    __slots__ = ()

    def checkpoint(self) -> Any:
        return sorted(self.seen)

    def from_checkpoint(self, checkpoint: Any) -> Self:
        kept = set(checkpoint) if isinstance(checkpoint, list) else checkpoint
        return super().from_checkpoint(kept)


def with_plain_barriers(
    graph: CompiledStateGraph[Any, Any, Any, Any],
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The same graph; its edges from several nodes at once keep lists."""
    for name, channel in graph.channels.items():
        if type(channel) is NamedBarrierValue:
            plain = PlainBarrier(channel.typ, channel.names)
            plain.key = name
            graph.channels[name] = plain
    return graph


class PlainSteps:
    """What a node does, one thing after the other, in the task that runs the node. Of a runnable it has what
    LangGraph asks for on a loop."""

    def __init__(self, steps: Sequence[Runnable[Any, Any]]) -> None:
        self._first, *self._others = steps

    async def ainvoke(self, given: Any, config: RunnableConfig) -> Any:
        # An interrupt and a graph below ask for it there.
        before = var_child_runnable_config.get()
        var_child_runnable_config.set(config)
        try:
            said = await self._first.ainvoke(given, config)
        finally:
            # Not by a token: a run that is torn down may be so from elsewhere.
            var_child_runnable_config.set(before)
        for step in self._others:
            said = await step.ainvoke(said, config)
        return said


def with_plain_steps(
    graph: CompiledStateGraph[Any, Any, Any, Any],
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The same graph, whose nodes are run plainly."""
    for node in graph.nodes.values():
        steps = getattr(node.node, "steps", None)
        if steps is not None:
            vars(node)["node"] = PlainSteps(steps)
    return graph
