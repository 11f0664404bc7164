"""Tools that end with the plan's time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from cleveragents.application.ports.tools import SandboxFiles, Tool, ToolSource
from cleveragents.application.services.actor_tools import SelectingTools
from cleveragents.application.services.timed_tool import TimedTool
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.policy import Capability
from cleveragents.domain.tool import ToolSpec
from cleveragents.errors import ToolRefused

__all__ = ["TimedSource", "TimedTools"]


class TimedSource(ToolSource, SelectingTools, Protocol):
    """What `TimedTools` stands before."""


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
