"""Several sources of tools as one: the first that has a name answers for it."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from cleveragents.core.errors import ToolRefused, UnknownTool
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.plans.actors.actor_tools import SelectingTools
from cleveragents.tools.ports import SandboxFiles, Tool, ToolSource

__all__ = ["JoinedTools"]


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
