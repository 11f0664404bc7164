"""Tools: what they refuse, and why."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import InvalidRequest

__all__ = ["EditMismatch", "InvalidToolCall", "OutsideSandbox", "ToolRefused", "UnknownTool"]


@dataclass(eq=False)
class UnknownTool(InvalidRequest):
    """There is no tool of that name."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"there is no tool {self.name!r} (known: {', '.join(self.known)})"


@dataclass(eq=False)
class InvalidToolCall(InvalidRequest):
    """The arguments are not what the tool's schema says."""

    message = "{tool}: {problem}"
    tool: str
    problem: str


@dataclass(eq=False)
class OutsideSandbox(InvalidRequest):
    """A path leads out of the sandbox, or into what nobody may touch there."""

    message = "{path!r} {reason}; only files inside the sandbox can be touched"
    path: str
    reason: str


@dataclass(eq=False)
class ToolRefused(InvalidRequest):
    """The tool understood, and cannot do it."""

    message = "{tool}: {reason}"
    tool: str
    reason: str


@dataclass(eq=False)
class EditMismatch(InvalidRequest):
    """The text to be replaced is not in the file as given; `diagnosis` says where they part."""

    message = "{path}: {diagnosis}; nothing was changed"
    path: str
    diagnosis: str
