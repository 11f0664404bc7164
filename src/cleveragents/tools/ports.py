"""Tools, and what they work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from cleveragents.core.errors import ToolRefused, UnknownTool
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.processes.ports import CommandOptions, CommandResult, StopSignal

__all__ = ["CommandsHere", "FixedTools", "FoundFile", "SandboxFiles", "Tool", "ToolSource", "Workplace"]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An entry of a directory. `kind` is file, directory, symlink or other; the path is relative, with `/`.

    A name that is not Unicode comes as Python spells it, with surrogates, and cannot be used as a path.
    """

    path: str
    kind: str
    size: int


class SandboxFiles(Protocol):
    """The files of one sandbox, by relative path; nothing outside can be reached through it.

    `..`, absolute paths, symbolic links that lead out, `.git` and NUL raise `OutsideSandbox`, at the moment
    of the access itself: a link that is swapped in meanwhile is not followed. Links that stay inside are read
    through; what is changed must be named by its own path.
    Not thread-safe: one call at a time uses it.
    """

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        """The content. `ToolRefused`: missing, a directory, not a regular file, too large."""
        ...

    def exists(self, path: str) -> bool: ...

    def kind(self, path: str) -> str | None:
        """As in `FoundFile`; a link is a link. None: there is nothing of that name."""
        ...

    def write(self, path: str, data: bytes, *, executable: bool | None = None) -> None:
        """Replaces the file atomically, or makes it and the directories it needs. Keeps the mode unless told
        otherwise."""
        ...

    def delete(self, path: str) -> None:
        """Removes a file or link; a directory with all that is in it. `ToolRefused` if there is none."""
        ...

    def move(self, source: str, target: str) -> None:
        """Renames a file or directory; `ToolRefused` if the target exists."""
        ...

    def walk(self, path: str = "", *, depth: int | None = None) -> Iterator[FoundFile]:
        """What is below, in order of path, name by name, not following links, without `.git`. `ToolRefused`
        if there is no such directory."""
        ...

    def touched(self) -> tuple[str, ...]:
        """Every file path that this object was used to change, in order of first change."""
        ...


class CommandsHere(Protocol):
    """Runs a command in this sandbox, with what its policy allows. `ToolRefused` when it wants the network
    and the call has no leave for that."""

    def __call__(
        self,
        argv: tuple[str, ...],
        *,
        directory: str,
        timeout_seconds: float,
        terms: CommandOptions | None = None,
    ) -> CommandResult: ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a tool call gets to work with. `directory`: where its commands start, below the root of `files`;
    it may be missing until one does."""

    files: SandboxFiles
    run: CommandsHere
    stop: StopSignal
    directory: str = ""


class Tool(Protocol):
    """One tool. Stateless: any number of calls may run at once, in different sandboxes."""

    @property
    def spec(self) -> ToolSpec: ...

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        """What this very call needs leave for: writing needs another for a new file than for an old one.
        `InvalidToolCall`, `OutsideSandbox`, so that nobody is asked about a call that cannot be made."""
        ...

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        """Does it and returns what `spec.output_schema` says. `InvalidToolCall`, `ToolRefused`,
        `EditMismatch`, `OutsideSandbox`, `Cancelled`."""
        ...


class ToolSource(Protocol):
    """Where tools are found by name. Any thread may ask."""

    def get(self, name: str) -> Tool:
        """`UnknownTool`; `ToolRefused` if the package that offers it is broken, naming the package."""
        ...

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        """What leave this very call needs: writing a file that exists is an edit, a new one a creation."""
        ...

    def names(self) -> tuple[str, ...]: ...

    def specs(self) -> tuple[ToolSpec, ...]:
        """Of every tool that can be loaded, in order of name; `problems` has the others."""
        ...

    def problems(self) -> tuple[ToolRefused, ...]:
        """One for each tool that a package offers and that cannot be used."""
        ...


class FixedTools:
    """`ToolSource` of these tools, for good. Any thread may ask."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    def get(self, name: str) -> Tool:
        if name not in self._tools:
            raise UnknownTool(name, self.names())
        return self._tools[name]

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return tool.capability_of(arguments, files)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tools))

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self._tools[name].spec for name in self.names())

    def problems(self) -> tuple[ToolRefused, ...]:
        return ()
