"""Tools, and what they work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from cleveragents.application.ports.commands import CommandResult, StopSignal
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.tool import ToolSpec

__all__ = ["CommandsHere", "FoundFile", "SandboxFiles", "Tool", "Workplace"]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An entry of a directory. `kind` is file, directory or symlink; the path is relative, with `/`."""

    path: str
    kind: str
    size: int


class SandboxFiles(Protocol):
    """The files of one sandbox, by relative path; nothing outside can be reached through it.

    `..`, absolute paths, symbolic links that lead out, `.git` and NUL raise `OutsideSandbox`, at the moment
    of the access itself: a link that is swapped in meanwhile is not followed.
    Not thread-safe: one call at a time uses it.
    """

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        """The content. `ToolRefused`: missing, a directory, not a regular file, too large."""
        ...

    def exists(self, path: str) -> bool: ...

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
        """What is below, in order of path, not following links, without `.git`."""
        ...

    def touched(self) -> tuple[str, ...]:
        """Every file path that this object was used to change, in order of first change."""
        ...


class CommandsHere(Protocol):
    """Runs a command in this sandbox, with what its policy allows."""

    def __call__(self, argv: tuple[str, ...], *, directory: str, timeout_seconds: float) -> CommandResult: ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a tool call gets to work with."""

    files: SandboxFiles
    run: CommandsHere
    stop: StopSignal


class Tool(Protocol):
    """One tool. Stateless: any number of calls may run at once, in different sandboxes."""

    @property
    def spec(self) -> ToolSpec: ...

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        """Does it and returns what `spec.output_schema` says. `InvalidToolCall`, `ToolRefused`,
        `EditMismatch`, `OutsideSandbox`, `Cancelled`."""
        ...
