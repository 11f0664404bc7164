"""The node that has another agent do the work, and talks to it by the Agent Client Protocol meanwhile.

A session is not one call, but many: what the agent reads, writes and runs through us, and what it did by
itself, have calls of their own. So it begins anew when it was cut off, and is told so; only a session that
was finished is never had again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from langgraph.runtime import Runtime

from cleveragents.actors.agent_ports import AgentRequest, AgentUpdate
from cleveragents.actors.graph.deadline import time_left
from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.spending import A_STEP
from cleveragents.actors.graph.state import ACCOUNT, State
from cleveragents.actors.graph.templates import filled_text
from cleveragents.actors.model.actor import AcpNode, Actor
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.core.errors import AgentFailed, ToolRefused

__all__ = ["AcpStep"]


class AcpStep:
    """The node of an actor that talks to another agent."""

    def __init__(self, actor: Actor, node: AcpNode) -> None:
        self._actor = actor
        self._node = node

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Has a session to its end. `AgentFailed` when it fails: what it did by then is recorded."""
        node = self._node
        place = NodePlace(runtime.context, self._actor.name, path_in(state, node.name))
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        request = self._request(filled_text(node.prompt, state))
        place.tell(ProgressKind.NODE)
        loop = asyncio.get_running_loop()

        def told(update: AgentUpdate) -> None:  # on whichever thread
            loop.call_soon_threadsafe(partial(place.tell, update.kind, update.text, failed=update.failed))

        converse = partial(
            place.context.host.converse,
            request,
            step=place.context.tool_step(place.path, str(visit)),
            told=told,
            seconds_left=time_left(),
        )
        async with place.context.account.purse(self._actor, state).reserved(A_STEP):
            place.tell(ProgressKind.TOOL, f"acp {node.argv[0]}")
            try:
                said = await asyncio.to_thread(converse)
            except ToolRefused as refusal:
                place.tell(ProgressKind.TOOL_DONE, str(refusal), failed=True)
                reason = f"its agent in node {node.name} failed: {refusal.reason}"
                raise AgentFailed(self._actor.name, reason) from refusal
        place.tell(ProgressKind.TOOL_DONE, said.partition("\n")[0])
        update: dict[str, Any] = {ACCOUNT: {"steps": 1, "visits": {node.name: visit}}}
        if node.output is not None:
            update[node.output] = said
        return update

    def _request(self, prompt: str) -> AgentRequest:
        node = self._node
        return AgentRequest(
            name=self._actor.name,
            argv=node.argv,
            prompt=prompt,
            environment=node.environment,
            home=node.home,
            network=node.network,
            seconds=node.seconds,
            processes=node.processes,
            install=node.install,
        )
