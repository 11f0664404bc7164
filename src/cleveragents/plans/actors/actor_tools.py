"""The tools and models of an actor's run in a plan.

The model gets a refused or failed call as an answer, and can try something else. Only a request to a person,
a cancel or an exhausted budget ends the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from cleveragents.actors.ports import AgentRequest, Agents, AgentUpdate, ToolAnswer
from cleveragents.core.errors import CallDenied, PolicyDenied, ToolRefused, UnknownTool
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability, Verdict
from cleveragents.core.tool import CallState, ToolSpec
from cleveragents.models.calls import CallName, ModelCalls, out_of_time
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.tools.ports import SandboxFiles, Tool, ToolSource
from cleveragents.tools.tool_results import cut, result_text

__all__ = ["EVERY_TOOL", "ActorTools", "JoinedTools", "ModelHost", "PlanActorHost", "SelectingTools"]


EVERY_TOOL = "*"
"""In an actor's list of tools: all tools."""


@runtime_checkable
class SelectingTools(Protocol):
    """A source that can match a pattern without listing all its tools. (A listing may start servers.)"""

    def select(self, pattern: str) -> tuple[str, ...]:
        """Return the names that match the pattern, in order."""
        ...


@dataclass(frozen=True, slots=True)
class ActorTools:
    """The tools of a run, without tools that its policy denies. Commands stop when `seconds_left` reaches 0.

    Thread safety:
        Owner: the run that made it.
        Lock: `_lock` is held for a whole call, because branches of a graph may call concurrently, and the
            execution makes one call at a time. Unlike our other locks it is held across I/O. A cancel ends
            the running call through its stop signal; a thread that waits for the lock then gets it and finds
            that it is cancelled, too.
        Guarantee: calls of one sandbox happen one after the other.
    Cancel safety: a cancelled call stays open, as `ToolExecution` says.
    """

    execution: ToolExecution
    seconds_left: Callable[[], float] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def specs(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        """Return the named tools that may be used, each once, in the order of the names.

        A name may be a pattern such as `mcp__tracker__*`; `*` means all tools. A pattern without a match is
        not an error, because the available tools vary. Raises `UnknownTool`, `ToolRefused`.
        """
        source = self.execution.tools
        wanted = source.names() if EVERY_TOOL in names else self._named(names)
        return [spec for name in wanted if (spec := self._usable(source, name)) is not None]

    def _usable(self, source: ToolSource, name: str) -> ToolSpec | None:
        """Return the spec of the tool, or None if the policy or a person denies the tool or its server."""
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
        """Call the tool and return the answer. Raises `NeedsHuman`, `Cancelled`; `BudgetExhausted` if the
        plan is out of time. `seconds_left` returns the remaining time of the actor, if shorter than the
        plan's.
        """
        return self.make(CallRequest(step, tool, arguments), seconds_left)

    def make(self, request: CallRequest, seconds_left: Callable[[], float] | None = None) -> ToolAnswer:
        """Make the requested call, as `use` does."""
        tool, arguments, step = request.tool, request.arguments, request.step
        try:
            with self._lock:
                # Read inside the lock: a call of another branch may have used up the time.
                left = self._time(seconds_left)
                if left is not None and left <= 0:  # guard: an actor without time starts no call
                    return ToolAnswer("not called: the actor is out of time", failed=True)
                call = self.execution.call(replace(request, timeout_seconds=left))
        except PolicyDenied as denied:
            self.refuse(tool, arguments, str(denied), step=step)
            return ToolAnswer(str(denied), failed=True)
        except CallDenied as denied:
            return ToolAnswer(str(denied), failed=True)
        if call.state is CallState.FAILED:
            return ToolAnswer(cut(call.error or "failed"), failed=True)
        return ToolAnswer(result_text(call.result), value=call.result)

    @contextmanager
    def turn(self) -> Iterator[ToolExecution]:
        """Yield the `ToolExecution` for work of several calls. No other call runs meanwhile."""
        with self._lock:
            yield self.execution

    def refuse(self, tool: str, arguments: Mapping[str, JsonValue], reason: str, *, step: str) -> None:
        """Record a refused call with its reason, so that people can see it."""
        with self._lock:
            self.execution.refuse(CallRequest(step, tool, arguments), reason)

    def _time(self, of_actor: Callable[[], float] | None) -> float | None:
        left = None if self.seconds_left is None else self.seconds_left()
        if left is not None and left <= 0:  # guard: a plan without time starts no call
            raise out_of_time(self.execution.sandbox.plan_id)
        if of_actor is None:
            return left
        return of_actor() if left is None else min(left, of_actor())

    def _may_be_used(self, spec: ToolSpec) -> bool:
        # By the policy alone: a command refused for lack of isolation says so when it is called.
        return self.execution.policy.verdict(spec.capability) is not Verdict.DENY


@dataclass(frozen=True, slots=True)
class ModelHost:
    """The model calls of an `ActorHost`. `part` names the run and prefixes the names of its calls, so that
    calls of two runs never collide. `model` is for nodes that name no model.
    """

    part: str
    model: str
    calls: ModelCalls

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

    def _answering(self, model: str | None) -> Sequence[str]:
        name, second = model or self.model, self.calls.fallback
        return (name,) if second is None or second == name else (name, second)


@dataclass(frozen=True, slots=True)
class PlanActorHost(ModelHost):
    """`ActorHost` of one run of a plan. Without `agents`, external agents are refused."""

    tools: ActorTools
    agents: Agents | None = None

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
            raise ToolRefused(request.name, "external agents are not available here")
        sessions = AgentSessions(self.agents, self.tools)
        return sessions.converse(request, step=f"{self.part}.{step}", told=told, seconds_left=seconds_left)


class JoinedTools:
    """`ToolSource` over several sources; a tool comes from the first source that has its name.

    As thread-safe as its sources.
    """

    def __init__(self, *sources: ToolSource) -> None:
        self._sources = sources

    def get(self, name: str) -> Tool:
        unknown: list[UnknownTool] = []
        for source in self._sources:
            try:
                return source.get(name)
            except UnknownTool as error:
                unknown.append(error)
        # Each source lists the closest names first.
        known = dict.fromkeys(known for error in unknown for known in error.known)
        raise UnknownTool(name, tuple(known))

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return tool.capability_of(arguments, files)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted({name for source in self._sources for name in source.names()}))

    def select(self, pattern: str) -> tuple[str, ...]:
        """Return the names that match the pattern. `SelectingTools` sources are asked without a listing of
        all their names.
        """
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
