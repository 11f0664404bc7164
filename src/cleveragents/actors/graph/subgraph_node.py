"""The node that runs another actor: its graph, nested in ours, with a state and checkpoints of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.runtime import Runtime

from cleveragents.actors.graph.deadline import within
from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.state import ACCOUNT, State, first_state
from cleveragents.actors.graph.templates import filled_values
from cleveragents.actors.model.actor import GIVEN, Actor, SubgraphNode
from cleveragents.actors.model.progress import ProgressKind

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["SubgraphStep", "supersteps"]


def supersteps(graph: CompiledStateGraph[Any, Any, Any, Any], steps: int) -> int:
    """LangGraph's recursion limit for so many calls: between two of them every other node may have its turn,
    and a circle without any call ends as well."""
    return (steps + 1) * (len(graph.nodes) + 1)


class SubgraphStep:
    """The node of an actor that runs another."""

    def __init__(
        self, actor: Actor, node: SubgraphNode, inner: Actor, graph: CompiledStateGraph[Any, Any, Any, Any]
    ) -> None:
        self._actor = actor
        self._node = node
        self._inner = inner
        self._graph = graph

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Its values for ours, when it has ended. What was cut off inside it goes on where it was."""
        node = self._node
        path = path_in(state, node.name)
        NodePlace(runtime.context, self._actor.name, path).tell(ProgressKind.NODE)
        account = runtime.context.account
        purse = account.purse(self._actor, state)
        purse.ensure_a_step_is_left()
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        given = {name: state.get(name, "") for name in GIVEN} | filled_values(node.inputs, self._actor, state)
        # Visits are told apart, or the calls of the second would pass for those of the first; by a character
        # that no node's name has, or they would pass for those of another node.
        below = path if visit == 1 else f"{path}#{visit}"
        account.open_below(purse, self._inner, below)
        ended = await self._ended(first_state(self._inner, given, path=below))
        spent = {name: ended[ACCOUNT][name] for name in ("steps", "tokens", "money")}
        outputs = {ours: ended[theirs] for ours, theirs in node.outputs.items()}
        return {ACCOUNT: {**spent, "visits": {node.name: visit}}, **outputs}

    async def _ended(self, begun: dict[str, Any]) -> dict[str, Any]:
        limit = supersteps(self._graph, self._inner.limits.steps)
        async with within(self._inner.limits.seconds, f"actor {self._inner.name}"):
            ended: dict[str, Any] = await self._graph.ainvoke(begun, {"recursion_limit": limit})
        return ended
