"""What the actors of one plan have to work with: models that are paid for, and tools in its sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cleveragents.actors.agent_ports import AgentRequest, Agents, AgentUpdate
from cleveragents.actors.ports import ToolAnswer
from cleveragents.core.errors import ToolRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import ToolSpec
from cleveragents.models.calls import CallName, ModelCalls
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.plans.actors.actor_tools import ActorTools

__all__ = ["PlanActorHost"]


@dataclass(frozen=True, slots=True)
class PlanActorHost:
    """`ActorHost` of one run. `part` names the run within its plan; calls are named below it, so that those
    of two runs never meet. `model` answers for nodes that name none. Without `agents` none can be run."""

    part: str
    model: str
    calls: ModelCalls
    tools: ActorTools
    agents: Agents | None = None

    def facts(self, model: str | None) -> ModelFacts:
        return self.calls.models.facts(model or self.model)

    def models(self, model: str | None) -> Sequence[ModelFacts]:
        models = self.calls.models
        models.get(model or self.model)
        return [models.facts(name) for name in self._answering(model)]

    def models_nowait(self, model: str | None) -> Sequence[ModelFacts] | None:
        found: list[ModelFacts] = []
        for name in self._answering(model):
            opened = self.calls.models.get_nowait(name)
            if opened is None:
                return None
            found.append(opened.facts)
        return found

    def count_tokens(self, model: str | None, request: ModelRequest) -> int:
        return self.calls.models.get(model or self.model).count_tokens(request)

    async def think(
        self,
        model: str | None,
        request: ModelRequest,
        *,
        key: str,
        actor: str,
        node: str,
        on_token: Callable[[str], None] | None = None,
    ) -> ModelReply:
        name = CallName(f"{self.part}.{key}", actor, node)
        return await self.calls.reply(model or self.model, request, name, on_token)

    def specs(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        return self.tools.specs(names)

    def use(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str,
        seconds_left: Callable[[], float] | None = None,
    ) -> ToolAnswer:
        return self.tools.use(tool, arguments, step=f"{self.part}.{step}", seconds_left=seconds_left)

    def refuse(self, tool: str, arguments: Mapping[str, JsonValue], reason: str, *, step: str) -> None:
        self.tools.refuse(tool, arguments, reason, step=f"{self.part}.{step}")

    def converse(
        self,
        request: AgentRequest,
        *,
        step: str,
        told: Callable[[AgentUpdate], None],
        seconds_left: Callable[[], float] | None = None,
    ) -> str:
        from cleveragents.plans.agents.sessions import AgentSessions

        if self.agents is None:
            raise ToolRefused(request.name, "no agent can be run here")
        sessions = AgentSessions(self.agents, self.tools)
        return sessions.converse(request, step=f"{self.part}.{step}", told=told, seconds_left=seconds_left)

    def _answering(self, model: str | None) -> Sequence[str]:
        name, second = model or self.model, self.calls.fallback
        return (name,) if second is None or second == name else (name, second)
