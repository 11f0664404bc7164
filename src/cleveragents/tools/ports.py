"""The contracts of tools and of the sandbox they work in."""

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

    An invalid Unicode name is decoded with surrogates, as Python does, and cannot be used as a path.
    """

    path: str
    kind: str
    size: int


class SandboxFiles(Protocol):
    """The files of one sandbox, by relative path; nothing outside is reachable through it.

    `..`, absolute paths, symbolic links that lead out, `.git` and NUL raise `OutsideSandbox`. The check
    happens during the access: a link that another process creates meanwhile is not followed. Reads follow
    links that stay inside the sandbox; changes must use the file's own path.

    Not thread-safe: one call at a time uses it.
    """

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        """Return the content. Raises `ToolRefused` if the file is missing, too large, or not
        a regular file.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def kind(self, path: str) -> str | None:
        """Return the kind as in `FoundFile`, without following a link; None if the path does not exist."""
        ...

    def write(self, path: str, data: bytes, *, executable: bool | None = None) -> None:
        """Replace the file atomically, or create it and its directories. Keeps the mode unless `executable`
        is given.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file or link, or a directory with its content. Raises `ToolRefused` if it
        does not exist.
        """
        ...

    def move(self, source: str, target: str) -> None:
        """Rename a file or directory. Raises `ToolRefused` if the target exists."""
        ...

    def walk(self, path: str = "", *, depth: int | None = None) -> Iterator[FoundFile]:
        """Yield the entries below `path`, sorted, without `.git` and without following links. Raises
        `ToolRefused` if the directory does not exist.
        """
        ...

    def touched(self) -> tuple[str, ...]:
        """Return every path that was changed through this object, in order of first change."""
        ...


class CommandsHere(Protocol):
    """Runs a command in this sandbox, as the policy allows. Raises `ToolRefused` if the command needs the
    network and the call is not approved for it.
    """

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
    """The sandbox, as a tool call sees it. Commands start in `directory`, below the root of `files`; the
    directory may not exist before the first command.
    """

    files: SandboxFiles
    run: CommandsHere
    stop: StopSignal
    directory: str = ""


class Tool(Protocol):
    """A tool. Stateless: any number of calls may run at the same time, in different sandboxes."""

    @property
    def spec(self) -> ToolSpec: ...

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        """Return the capability that this call needs; creating a file and changing a file need different
        capabilities.

        Raises `InvalidToolCall` and `OutsideSandbox`, so that no approval is requested for an impossible
        call.
        """
        ...

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        """Run the call and return a result that fits `spec.output_schema`.

        Raises `InvalidToolCall`, `ToolRefused`, `EditMismatch`, `OutsideSandbox`, `Cancelled`.
        """
        ...


class ToolSource(Protocol):
    """A collection of tools by name. Any thread may use it."""

    def get(self, name: str) -> Tool:
        """Return the tool. Raises `UnknownTool`, and `ToolRefused` with the package's name if its package is
        broken.
        """
        ...

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        """Return the capability that this call needs: to write an existing file is an edit, to write a new
        file is a creation.
        """
        ...

    def names(self) -> tuple[str, ...]: ...

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specs of all tools that can be loaded, sorted by name; see `problems` for the others."""
        ...

    def problems(self) -> tuple[ToolRefused, ...]:
        """Return a problem for each tool of a package that cannot be used."""
        ...


class FixedTools:
    """A `ToolSource` with a fixed set of tools. Any thread may use it."""

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
