"""Actors at work: what runs them, and what they may use while they run.

Agents of other makers that are talked to while they work: one session, and what they ask of us in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from cleveragents.actors.model.actor import Actor, Progress, ProgressKind
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import ToolSpec
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.processes.ports import StopSignal

__all__ = [
    "ActorHost",
    "ActorOutcome",
    "ActorRequest",
    "ActorRunner",
    "ActorSource",
    "AgentClient",
    "AgentOutcome",
    "AgentRequest",
    "AgentUpdate",
    "Agents",
    "PermissionRequest",
    "Question",
    "QuestionAnswer",
    "StopReason",
    "TerminalCommand",
    "ToolAnswer",
]


StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class ActorSource(Protocol):
    """Actors by name, as they are known in a resource."""

    def get(self, name: str) -> Actor:
        """`UnknownActor`, `InvalidActor`, `NotTrusted`."""
        ...


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool said, as the model reads it: never longer than a model can read."""

    text: str
    failed: bool = False
    value: JsonValue = None


class ActorHost(Protocol):
    """What the nodes of one run may use. Calls may come from several nodes at once.

    `key` and `step` name a call for good within the run's plan: a call that was finished under that name is
    not made again, its outcome is returned.
    """

    def facts(self, model: str | None) -> ModelFacts:
        """Of the model that a node names, or of the run's own. `UnknownModel`, `ConfigurationError`."""
        ...

    def models(self, model: str | None) -> Sequence[ModelFacts]:
        """Who may answer: that model, or the run's own, and behind it whoever stands in where it cannot.
        Afterwards its tokens are counted at once. Blocking: it may have to be imported, its key to be looked
        up. `UnknownModel`, `ConfigurationError`."""
        ...

    def models_nowait(self, model: str | None) -> Sequence[ModelFacts] | None:
        """As `models`, where nothing has to be waited for; None where something may have to be."""
        ...

    def count_tokens(self, model: str | None, request: ModelRequest) -> int:
        """At least as many as the model reads."""
        ...

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
        """One call of a model: reserved, made, settled. `BudgetExhausted` before it is made; what
        `Model.reply` raises."""
        ...

    def specs(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        """The tools of those names, as far as this run may use them. `UnknownTool`."""
        ...

    def use(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str,
        seconds_left: Callable[[], float] | None = None,
    ) -> ToolAnswer:
        """One tool call, blocking, and stopped when there are no `seconds_left`. What the tool refuses, a
        policy denies or a person denied is a failed answer. `NeedsHuman` when somebody has to be asked first;
        `Cancelled`."""
        ...

    def refuse(self, tool: str, arguments: Mapping[str, JsonValue], reason: str, *, step: str) -> None:
        """Keeps a call that a model asked for and that is not made, so that all can see it. Blocking."""
        ...

    def converse(
        self,
        request: AgentRequest,
        *,
        step: str,
        told: Callable[[AgentUpdate], None],
        seconds_left: Callable[[], float] | None = None,
    ) -> str:
        """One session with an agent of another maker, blocking: what it said last. Everything it did is
        recorded by then, in calls named below `step`. A session that was finished is not had again; after one
        that was cut off another is begun, and told so.

        `told` is called on any thread. `ToolRefused` when it failed or a policy denies it; `NeedsHuman`,
        `Cancelled`.
        """
        ...


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """What a person said to one question, and to no other."""

    question_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRequest:
    """A run to be made. `thread_id` names it for good: a run that ended is not repeated, one that was cut off
    goes on at its last finished call. `answer` is what a person said to the question it waits for; `actors`
    are those that subgraphs name, known where the run works."""

    actor: Actor
    thread_id: str
    inputs: Mapping[str, JsonValue]
    host: ActorHost
    stop: StopSignal
    fence: Fence | None = None
    answer: QuestionAnswer | None = None
    seconds: float | None = None
    told: Callable[[Progress], None] | None = None
    actors: ActorSource | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked; any text answers it, unless there are choices. Its id is never used again."""

    id: str
    node: str
    text: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActorOutcome:
    """Where the run stands: ended with these values of its state, or waiting for an answer."""

    values: Mapping[str, JsonValue]
    question: Question | None = None


class ActorRunner(Protocol):
    """Runs actors, any number at once, from any thread."""

    def run(self, request: ActorRequest) -> ActorOutcome:
        """Blocks until the run ends or asks. Whatever of ours a node raised is raised (`BudgetExhausted`,
        `NeedsHuman`, `ActorStopped`, `ModelUnavailable` …); `Cancelled`, after everything it began has ended;
        `DeadlineExceeded`; `GraphFailed` for the rest."""
        ...


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
class PermissionRequest:
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

    def permit(self, wanted: PermissionRequest) -> bool:
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
