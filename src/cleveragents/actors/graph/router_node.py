"""The node that chooses a way: conditions over the state, the first that holds."""

from __future__ import annotations

from langgraph.runtime import Runtime

from cleveragents.actors.conditions import Condition
from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.state import State, public_values
from cleveragents.actors.model.actor import GIVEN, Actor, RouterNode
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.core.errors import ActorStopped, InvalidCondition

__all__ = ["RouterStep"]


class RouterStep:
    """The node of an actor that chooses. `InvalidCondition` for a condition that is none."""

    def __init__(self, actor: Actor, node: RouterNode) -> None:
        self._actor = actor
        self._node = node
        names = (*GIVEN, *(key.name for key in actor.state))
        self._ways = [
            (route.to, None if route.when is None else Condition(route.when, names)) for route in node.routes
        ]

    async def enter(self, state: State, runtime: Runtime[RunContext]) -> None:
        """Lets it be seen that the run is here; the choice is the edge's."""
        place = NodePlace(runtime.context, self._actor.name, path_in(state, self._node.name))
        place.tell(ProgressKind.NODE)

    # Async, because LangGraph would send it to a thread otherwise.
    async def chosen(self, state: State) -> str:
        """Where it goes on. `ActorStopped` when nothing holds, or when that cannot be said."""
        values = public_values(self._actor, state)
        try:
            for to, condition in self._ways:
                if condition is None or condition.holds(values):
                    return to
        except InvalidCondition as undecided:
            raise ActorStopped(self._actor.name, f"node {self._node.name}: {undecided}") from undecided
        raise ActorStopped(self._actor.name, f"no route of node {self._node.name} holds")
