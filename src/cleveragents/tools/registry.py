"""All tools: the modules of `builtin`, and the entry points of installed packages.

Listing names imports nothing; a tool is imported on first use. A package that cannot be loaded affects only
its own tools. A package cannot replace a built-in tool, so that the meaning of `write`, for example, does not
depend on installed packages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import cast

from cleveragents.config.entry_points import built_in, installed
from cleveragents.core.errors import CleverAgentsError, ToolRefused, UnknownTool
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.tools import builtin
from cleveragents.tools.ports import SandboxFiles, Tool

__all__ = ["ENTRY_POINTS", "ToolRegistry"]

ENTRY_POINTS = "cleveragents.tools"
"""The entry point group. An entry has the tool's name; its object is a tool, or a class without arguments."""


class ToolRegistry:
    """A `ToolSource` of built-in and installed tools.

    Any thread may use it: its state only grows, and a tool that is loaded twice is the same tool.
    """

    def __init__(self, entries: Iterable[EntryPoint] | None = None) -> None:
        self._entries = entries
        self._loaded: dict[str, Tool] = {}

    def get(self, name: str) -> Tool:
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded.setdefault(name, self._load(name))
        return found

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return tool.capability_of(arguments, files)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._builtin, *self._offered}))

    def specs(self) -> tuple[ToolSpec, ...]:
        found = (self._spec_or_problem(name) for name in self.names())
        return tuple(spec for spec in found if isinstance(spec, ToolSpec))

    def problems(self) -> tuple[ToolRefused, ...]:
        found = (self._spec_or_problem(name) for name in self.names())
        return (*self._hidden, *(problem for problem in found if isinstance(problem, ToolRefused)))

    @property
    def _builtin(self) -> frozenset[str]:
        return built_in(builtin)

    @cached_property
    def _found(self) -> tuple[EntryPoint, ...]:
        found = installed(ENTRY_POINTS) if self._entries is None else self._entries
        return tuple(sorted(found, key=lambda entry: (entry.name, entry.value)))

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        offered: dict[str, EntryPoint] = {}
        for entry in self._found:
            if entry.name not in self._builtin:
                offered.setdefault(entry.name, entry)
        return offered

    @cached_property
    def _hidden(self) -> tuple[ToolRefused, ...]:
        used = self._offered.values()
        return tuple(
            ToolRefused(
                entry.name, f"{_package(entry)} offers a tool whose name is taken; the tool is ignored"
            )
            for entry in self._found
            if entry not in used
        )

    def _load(self, name: str) -> Tool:
        if name in self._builtin:
            return cast("Tool", import_module(f"{builtin.__name__}.{name}").TOOL)
        entry = self._offered.get(name)
        if entry is None:
            known = self.names()
            near = get_close_matches(name, known, n=3)
            raise UnknownTool(name, (*near, *(other for other in known if other not in near)))
        return _load_entry(entry)

    def _spec_or_problem(self, name: str) -> ToolSpec | ToolRefused:
        try:
            return self.get(name).spec
        except ToolRefused as problem:
            return problem


def _load_entry(entry: EntryPoint) -> Tool:
    """Load a package's tool; errors in its code are attributed to the package."""
    try:
        offered = entry.load()
        tool = offered() if isinstance(offered, type) else offered
        spec = tool.spec
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, CleverAgentsError) else f"{type(error).__name__}: {error}"
        raise ToolRefused(entry.name, f"{_package(entry)} cannot be loaded ({said})") from error
    if not isinstance(spec, ToolSpec) or spec.name != entry.name:
        reason = f"{_package(entry)} offers {entry.value}, which is not a tool with that name"
        raise ToolRefused(entry.name, reason)
    return cast("Tool", tool)


def _package(entry: EntryPoint) -> str:
    distribution = entry.dist
    if distribution is None:
        return f"the package of {entry.value}"
    return f"the package {distribution.name} {distribution.version}"
