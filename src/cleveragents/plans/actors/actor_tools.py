"""The tools of one actor's run: which it may have, and what it is told when it uses one.

What cannot be done is an answer, not an error: the model is to try something else. Only what a person has to
decide, and a cancel, leaves the run.

What the actors of one plan have to work with: models that are paid for, and tools in its sandbox.

Several sources of tools as one: the first that has a name answers for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Protocol, runtime_checkable

from cleveragents.actors.ports import AgentRequest, Agents, AgentUpdate, ToolAnswer
from cleveragents.core.errors import BudgetExhausted, CallDenied, PolicyDenied, ToolRefused, UnknownTool
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability, Verdict
from cleveragents.core.tool import CallState, ToolSpec
from cleveragents.models.calls import CallName, ModelCalls
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.tools.ports import SandboxFiles, Tool, ToolSource
from cleveragents.tools.tool_results import cut, result_text

__all__ = ["EVERY_TOOL", "ActorTools", "JoinedTools", "PlanActorHost", "SelectingTools"]


EVERY_TOOL = "*"
"""In an actor's list of tools: all that there are."""


@runtime_checkable
class SelectingTools(Protocol):
    """A source that can tell what a pattern means without looking at all it has: some have to start what
    offers their tools."""

    def select(self, pattern: str) -> tuple[str, ...]:
        """The names that the pattern means, in order."""
        ...


@dataclass(frozen=True, slots=True)
class ActorTools:
    """The tools that a run's policy does not deny. No command runs longer than `seconds_left` says that the
    plan may go on.

    Thread safety:
        Owner: the run that made it.
        Lock: `_lock` is held for a whole call: the execution makes one at a time, and branches of a graph
            may ask at once. Unlike other locks of ours it is held across I/O; a cancel reaches the call
            through its own stop signal, so whoever waits is let in, and finds itself cancelled, too.
        Guarantee: calls of one sandbox happen one after the other.
    Cancel safety: a cancelled call stays open, as `ToolExecution` says.
    """

    execution: ToolExecution
    seconds_left: Callable[[], float] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def specs(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        """Those of the named tools that may be used, each once, in the order in which they are named.

        A name may be a pattern, such as `mcp__tracker__*`; `*` alone means all that there are. One that fits
        nothing is no error: what a pattern means depends on what is there. `UnknownTool`, `ToolRefused`.
        """
        source = self.execution.tools
        wanted = source.names() if EVERY_TOOL in names else self._named(names)
        return [spec for name in wanted if (spec := self._usable(source, name)) is not None]

    def _usable(self, source: ToolSource, name: str) -> ToolSpec | None:
        """The tool's spec, or None if the policy or a person denies the tool or what offers it."""
        try:
            spec = source.get(name).spec
        except (PolicyDenied, CallDenied):
            return None
        return spec if self._may_be_used(spec) else None

    def _named(self, names: Sequence[str]) -> tuple[str, ...]:
        source = self.execution.tools
        wanted: dict[str, None] = {}
        for name in names:
            if "*" not in name:
                wanted[name] = None
            elif isinstance(source, SelectingTools):
                wanted |= dict.fromkeys(source.select(name))
            else:
                wanted |= dict.fromkeys(known for known in source.names() if fnmatchcase(known, name))
        return tuple(wanted)

    def use(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str,
        seconds_left: Callable[[], float] | None = None,
    ) -> ToolAnswer:
        """What came of the call. `NeedsHuman`, `Cancelled`; `BudgetExhausted` when the plan has no time left;
        `seconds_left` says how long the actor may go on, where that is less."""
        return self.make(CallRequest(step, tool, arguments), seconds_left)

    def make(self, request: CallRequest, seconds_left: Callable[[], float] | None = None) -> ToolAnswer:
        """As `use`, for a call with terms of its own."""
        tool, arguments, step = request.tool, request.arguments, request.step
        try:
            with self._lock:
                # Asked here, and not before: the call of another branch may have taken its time.
                left = self._time(seconds_left)
                if left is not None and left <= 0:  # guard: nor is it begun for an actor that has no time
                    return ToolAnswer("it was not made: the actor's time is over", failed=True)
                call = self.execution.call(replace(request, timeout_seconds=left))
        except PolicyDenied as denied:
            self.refuse(tool, arguments, str(denied), step=step)
            return ToolAnswer(str(denied), failed=True)
        except CallDenied as denied:
            return ToolAnswer(str(denied), failed=True)
        if call.state is CallState.FAILED:
            return ToolAnswer(cut(call.error or "it failed"), failed=True)
        return ToolAnswer(result_text(call.result), value=call.result)

    @contextmanager
    def turn(self) -> Iterator[ToolExecution]:
        """The execution, for what is no single call; no call is made meanwhile."""
        with self._lock:
            yield self.execution

    def refuse(self, tool: str, arguments: Mapping[str, JsonValue], reason: str, *, step: str) -> None:
        """Keeps a call that is not made, so that all can see it."""
        with self._lock:
            self.execution.refuse(CallRequest(step, tool, arguments), reason)

    def _time(self, of_actor: Callable[[], float] | None) -> float | None:
        left = None if self.seconds_left is None else self.seconds_left()
        if left is not None and left <= 0:  # guard: what has no time is not begun
            plan_id = self.execution.sandbox.plan_id
            raise BudgetExhausted(plan_id, "the time limit is reached")
        if of_actor is None:
            return left
        return of_actor() if left is None else min(left, of_actor())

    def _may_be_used(self, spec: ToolSpec) -> bool:
        # By the policy alone: a command that is refused for want of isolation says so when it is called.
        return self.execution.policy.verdict(spec.capability) is not Verdict.DENY


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


class JoinedTools:
    """`ToolSource` over several, in order. Any thread may ask, as of its parts."""

    def __init__(self, *sources: ToolSource) -> None:
        self._sources = sources

    def get(self, name: str) -> Tool:
        unknown: list[UnknownTool] = []
        for source in self._sources:
            try:
                return source.get(name)
            except UnknownTool as error:
                unknown.append(error)
        # The nearest names come first in each.
        known = dict.fromkeys(known for error in unknown for known in error.known)
        raise UnknownTool(name, tuple(known))

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return tool.capability_of(arguments, files)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted({name for source in self._sources for name in source.names()}))

    def select(self, pattern: str) -> tuple[str, ...]:
        """The names that the pattern means; a source that can tell is not asked for all of its names."""
        found: set[str] = set()
        for source in self._sources:
            if isinstance(source, SelectingTools):
                found.update(source.select(pattern))
            else:
                found.update(name for name in source.names() if fnmatchcase(name, pattern))
        return tuple(sorted(found))

    def specs(self) -> tuple[ToolSpec, ...]:
        found: dict[str, ToolSpec] = {}
        for source in self._sources:
            for spec in source.specs():
                found.setdefault(spec.name, spec)
        return tuple(found[name] for name in sorted(found))

    def problems(self) -> tuple[ToolRefused, ...]:
        return tuple(problem for source in self._sources for problem in source.problems())
