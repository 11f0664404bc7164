"""The node that makes one tool call, with arguments out of the state."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from langgraph.runtime import Runtime

from cleveragents.actors.graph.deadline import time_left
from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.spending import A_STEP
from cleveragents.actors.graph.state import ACCOUNT, State, plain
from cleveragents.actors.graph.templates import filled_values
from cleveragents.actors.graph.tool_loop import shown_arguments
from cleveragents.actors.model.actor import Actor, StateKey, ToolNode
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.core.errors import ActorStopped

__all__ = ["ToolStep"]


class ToolStep:
    """The node of an actor that calls a tool."""

    def __init__(self, actor: Actor, node: ToolNode) -> None:
        self._actor = actor
        self._node = node
        self._keys = {key.name: key for key in actor.state}

    async def call(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Makes the call. `ActorStopped` when it fails: there is no model here that could do better."""
        node = self._node
        place = NodePlace(runtime.context, self._actor.name, path_in(state, node.name))
        arguments = filled_values(node.arguments, self._actor, state)
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        place.tell(ProgressKind.NODE)
        step = place.context.tool_step(place.path, str(visit))
        async with place.context.account.purse(self._actor, state).reserved(A_STEP):
            place.tell(ProgressKind.TOOL, f"{node.tool} {shown_arguments(arguments)}")
            use = partial(place.context.host.use, seconds_left=time_left())
            answer = await asyncio.to_thread(use, node.tool, arguments, step=step)
        place.tell(ProgressKind.TOOL_DONE, answer.text.partition("\n")[0], failed=answer.failed)
        if answer.failed:
            problem = f"the call of {node.tool} in node {node.name} failed: {answer.text}"
            raise ActorStopped(self._actor.name, problem)
        update: dict[str, Any] = {ACCOUNT: {"steps": 1, "visits": {node.name: visit}}}
        if node.output is not None:
            update[node.output] = self._of_its_type(node.output, answer.text, answer.value)
        return update

    def _of_its_type(self, key: str, text: str, value: Any) -> Any:
        known = self._keys.get(key, StateKey(key))
        given = text if value is None or known.type == "string" else plain(value)
        if not known.takes(given):  # guard: what reads it, or adds it up, could not say what is wrong
            problem = f"what {self._node.tool} gave is not of type {known.type}, as {key!r} is"
            raise ActorStopped(self._actor.name, f"node {self._node.name}: {problem}")
        return given
