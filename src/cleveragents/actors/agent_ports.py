"""Agents of other makers that are talked to while they work: one session, and what they ask of us in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from cleveragents.actors.model.progress import ProgressKind
from cleveragents.core.json_value import JsonValue
from cleveragents.processes.ports import StopSignal

__all__ = [
    "AgentClient",
    "AgentOutcome",
    "AgentRequest",
    "AgentUpdate",
    "Agents",
    "StopReason",
    "TerminalCommand",
    "Wanted",
]

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """What is to be run, and what it is told. `name` is what people call it; the rest is as in `AgentNode`.

    `network` is what it gets, not what it wishes for.
    """

    name: str
    argv: tuple[str, ...]
    prompt: str
    environment: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    network: bool = False
    seconds: float = 3600.0
    processes: int = 256
    install: str = ""


@dataclass(frozen=True, slots=True)
class AgentUpdate:
    """What it lets be seen, as progress names it."""

    kind: ProgressKind
    text: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """Why it stopped, in the protocol's words, and what it said last. Only `end_turn` is a success."""

    stop: StopReason
    text: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something that it asks leave for before it does it itself: the `kind` of the protocol, and what the
    request says of it."""

    kind: str
    title: str
    paths: tuple[str, ...] = ()
    details: JsonValue = None


@dataclass(frozen=True, slots=True)
class TerminalCommand:
    """A command that it wants run. Without arguments, `command` may be a line for the shell."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    directory: str | None = None


class AgentClient(Protocol):
    """Who answers an agent in one session. Any thread may ask; calls block.

    Paths are absolute, as the protocol wants them. `ToolRefused` is an answer to the agent; whatever else is
    raised ends the session, and comes out of `Agents.run`.
    """

    @property
    def directory(self) -> Path:
        """Where it works."""
        ...

    def read(self, path: str, line: int | None, limit: int | None) -> str:
        """The text of a file, or of so many lines from that one (from 1); all of it, or `ToolRefused`."""
        ...

    def write(self, path: str, content: str) -> None:
        """Makes that the file's text."""
        ...

    def run(
        self, command: TerminalCommand, ended: StopSignal, on_output: Callable[[bytes], None]
    ) -> int | None:
        """The exit code; None for one that was `ended`, or had no time left. No process outlives it."""
        ...

    def permit(self, wanted: Wanted) -> bool:
        """Whether it may."""
        ...

    def did(self, what: str) -> None:
        """It says that something it did by itself is done: what it changed is recorded."""
        ...

    def told(self, update: AgentUpdate) -> None:
        """Lets it be seen. Does not block."""
        ...


class Agents(Protocol):
    """Runs agents, any number at once, from any thread."""

    def ensure_there(self, request: AgentRequest) -> None:
        """`ToolRefused` says what is not installed, and how to get it: before anybody is asked for leave."""
        ...

    def run(self, request: AgentRequest, client: AgentClient, stop: StopSignal) -> AgentOutcome:
        """One session with one prompt. When this returns, or raises, the agent has ended, with every process
        that it started.

        `Cancelled` when told to stop: it was asked to leave first. `ToolRefused` when it cannot be run, does
        not speak the protocol, breaks its bounds, or ends before it answered.
        """
        ...
