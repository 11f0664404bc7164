"""Tools that end with the plan's time: those that nobody can give a timeout watch a signal instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from cleveragents.application.ports.commands import StopSignal
from cleveragents.application.ports.tools import SandboxFiles, Tool, ToolSource, Workplace
from cleveragents.application.services.actor_tools import SelectingTools
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.policy import Capability
from cleveragents.domain.tool import ToolSpec
from cleveragents.errors import Cancelled, ToolRefused

__all__ = ["TimedSource", "TimedStop", "TimedTool", "TimedTools"]

_OVER = "the time that the plan may take was over"
_LEAST_SECONDS = 0.001


class TimedSource(ToolSource, SelectingTools, Protocol):
    """What `TimedTools` stands before."""


@dataclass(frozen=True, slots=True)
class TimedStop:
    """`StopSignal` that also fires when no time is left."""

    stop: StopSignal
    seconds_left: Callable[[], float]

    @property
    def is_cancelled(self) -> bool:
        return self.stop.is_cancelled or self.seconds_left() <= 0

    @property
    def reason(self) -> str | None:
        if self.stop.is_cancelled or self.seconds_left() > 0:
            return self.stop.reason
        return _OVER

    def wait(self, timeout: float | None) -> bool:
        if timeout is not None:
            self.stop.wait(max(0.0, min(timeout, self.seconds_left())))
            return self.is_cancelled
        while not self.is_cancelled:
            self.stop.wait(max(_LEAST_SECONDS, self.seconds_left()))
        return True

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise Cancelled(self.reason)


@dataclass(frozen=True, slots=True)
class TimedTool:
    """`Tool` that is stopped when no time is left: then it failed, and what it changed is recorded."""

    tool: Tool
    seconds_left: Callable[[], float]

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        return self.tool.capability_of(arguments, files)

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        timed = replace(workplace, stop=TimedStop(workplace.stop, self.seconds_left))
        try:
            return self.tool.call(arguments, timed)
        except Cancelled:
            if workplace.stop.is_cancelled:  # guard: a cancel is no answer, the call stays open
                raise
            raise ToolRefused(self.spec.name, f"{_OVER} before it answered") from None


@dataclass(frozen=True, slots=True)
class TimedTools:
    """`ToolSource` of the same tools, each a `TimedTool`. Any thread may ask, as of what it stands before."""

    source: TimedSource
    seconds_left: Callable[[], float]

    def get(self, name: str) -> Tool:
        return TimedTool(self.source.get(name), self.seconds_left)

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return tool.capability_of(arguments, files)

    def names(self) -> tuple[str, ...]:
        return self.source.names()

    def select(self, pattern: str) -> tuple[str, ...]:
        return self.source.select(pattern)

    def specs(self) -> tuple[ToolSpec, ...]:
        return self.source.specs()

    def problems(self) -> tuple[ToolRefused, ...]:
        return self.source.problems()
