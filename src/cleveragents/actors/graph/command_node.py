"""The node that has another agent do the work: a program of somebody else's, run as one tool call.

So all that holds for calls holds for it: it needs leave, what it changed is recorded under it, it ends with
its time or a cancel, and once finished it is not made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from langgraph.runtime import Runtime

from cleveragents.actors.graph.deadline import time_left
from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.spending import A_STEP
from cleveragents.actors.graph.state import ACCOUNT, State
from cleveragents.actors.graph.templates import filled_text
from cleveragents.actors.model.actor import Actor, CommandNode
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.core.errors import AgentFailed
from cleveragents.core.tool import AGENT_TOOL

__all__ = ["CommandStep"]


class CommandStep:
    """The node of an actor that runs another agent."""

    def __init__(self, actor: Actor, node: CommandNode) -> None:
        self._actor = actor
        self._node = node

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Runs it to its end. `AgentFailed` when it does, with the end of what it said: what it changed by
        then is recorded."""
        node = self._node
        place = NodePlace(runtime.context, self._actor.name, path_in(state, node.name))
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        place.tell(ProgressKind.NODE)
        step = place.context.tool_step(place.path, str(visit))
        arguments = self._arguments(filled_text(node.prompt, state))
        async with place.context.account.purse(self._actor, state).reserved(A_STEP):
            place.tell(ProgressKind.TOOL, f"{AGENT_TOOL} {node.argv[0]}")
            use = partial(place.context.host.use, seconds_left=time_left())
            answer = await asyncio.to_thread(use, AGENT_TOOL, arguments, step=step)
        place.tell(ProgressKind.TOOL_DONE, answer.text.partition("\n")[0], failed=answer.failed)
        if answer.failed:
            raise AgentFailed(self._actor.name, f"{node.argv[0]} in node {node.name} failed: {answer.text}")
        update: dict[str, Any] = {ACCOUNT: {"steps": 1, "visits": {node.name: visit}}}
        if node.output is not None:
            said = answer.value.get("output") if isinstance(answer.value, Mapping) else None
            update[node.output] = answer.text if said is None else said
        return update

    def _arguments(self, prompt: str) -> dict[str, Any]:
        node = self._node
        return {
            "argv": list(node.argv),
            "prompt": prompt,
            "prompt_by": node.prompt_by,
            "variables": dict(node.variables),
            "environment": list(node.environment),
            "home": list(node.home),
            "network": node.network,
            "timeout_seconds": node.seconds,
            "processes": node.processes,
            "expect_exit": list(node.expect_exit),
            "install": node.install,
        }
