"""Ports for running actors: the runner, the host of their nodes, and sessions with external agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from cleveragents.actors.model.actor import Actor, Progress, ProgressKind
from cleveragents.core.identifiers import Fence, TurnFence
from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.attachment import Attachment
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
    """The actors of a resource, by name."""

    def get(self, name: str) -> Actor:
        """Return the actor. Raises `UnknownActor`, `InvalidActor` or `NotTrusted`."""
        ...


class ToolAnswer(Struct, frozen=True):
    """The result of a tool call as the model reads it, bounded in size."""

    text: str
    failed: bool = False
    value: JsonValue = None


class ActorHost(Protocol):
    """The services that the nodes of one run may use. Several nodes may call it concurrently.

    `key` and `step` are permanent names of a call within the run's plan. A call that has already finished
    under this name is not made again; its recorded result is returned.
    """

    def facts(self, model: str | None) -> ModelFacts:
        """Return the facts about a node's model; None means the run's default model.

        Raises `UnknownModel` or `ConfigurationError`.
        """
        ...

    def models(self, model: str | None) -> Sequence[ModelFacts]:
        """Return the models that may answer: the node's model or the run's default, then its fallback.

        Blocks: it may import a library or look up a key. After this call, counting tokens does not block.
        Raises `UnknownModel` or `ConfigurationError`.
        """
        ...

    def models_nowait(self, model: str | None) -> Sequence[ModelFacts] | None:
        """Return the result of `models` if it is available without blocking, else None."""
        ...

    def count_tokens(self, model: str | None, request: ModelRequest) -> int:
        """Return an upper bound of the input tokens."""
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
        """Make one model call: reserve, call, settle.

        Raises `BudgetExhausted` before the call, and the errors of `Model.reply`.
        """
        ...

    def specs(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        """Return the named tools that this run may use. Raises `UnknownTool`."""
        ...

    def use(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str,
        seconds_left: Callable[[], float] | None = None,
    ) -> ToolAnswer:
        """Make one tool call. Blocks, and stops the call when `seconds_left` reaches 0.

        A refusal by the tool, a policy or a person is returned as a failed answer. Raises `NeedsHuman` if an
        approval is needed first, and `Cancelled`.
        """
        ...

    def refuse(self, tool: str, arguments: Mapping[str, JsonValue], reason: str, *, step: str) -> None:
        """Record a requested call that is not made, so that it is visible. Blocks."""
        ...

    def converse(
        self,
        request: AgentRequest,
        *,
        step: str,
        told: Callable[[AgentUpdate], None],
        seconds_left: Callable[[], float] | None = None,
    ) -> str:
        """Run one session with an external agent and return its last message. Blocks.

        All its actions are recorded as calls below `step`. A finished session is not repeated. After an
        interrupted session, a new session starts with a note in its prompt. `told` may be called on any
        thread. Raises `ToolRefused` if the session failed or a policy denies it, `NeedsHuman` and
        `Cancelled`.
        """
        ...


class QuestionAnswer(Struct, frozen=True):
    """A person's answer to one particular question."""

    question_id: str
    text: str


class ActorRequest(Struct, frozen=True, kw_only=True):
    """A run to start or to continue.

    `thread_id` is its permanent name: a finished run is not repeated, and an interrupted run continues after
    its last finished call. `answer` answers the question that the run waits for. `actors` resolves the names
    of subgraphs. The `attachments` go with the prompt of each node; no checkpoint contains them.
    """

    actor: Actor
    thread_id: str
    inputs: Mapping[str, JsonValue]
    host: ActorHost
    stop: StopSignal
    fence: Fence | TurnFence | None = None
    answer: QuestionAnswer | None = None
    seconds: float | None = None
    told: Callable[[Progress], None] | None = None
    actors: ActorSource | None = None
    attachments: Sequence[Attachment] = ()


class Question(Struct, frozen=True):
    """A question to a person. Without `choices`, any text is a valid answer. The id is never reused."""

    id: str
    node: str
    text: str
    choices: tuple[str, ...] = ()


class ActorOutcome(Struct, frozen=True):
    """The outcome of a run: the final values of its state, or a question to answer first."""

    values: Mapping[str, JsonValue]
    question: Question | None = None


class ActorRunner(Protocol):
    """Runs actors. Any number may run concurrently, from any thread."""

    def run(self, request: ActorRequest) -> ActorOutcome:
        """Run an actor until it ends or asks a question. Blocks.

        Raises the CleverAgents errors of its nodes (`BudgetExhausted`, `NeedsHuman`, `ActorStopped`,
        `ModelUnavailable` …), `Cancelled` after everything it started has ended, `DeadlineExceeded`, and
        `GraphFailed` for all other errors.
        """
        ...


class AgentRequest(Struct, frozen=True, kw_only=True):
    """A session to run: the external agent, its prompt and its permissions.

    `name` is the display name; `network` states whether the network was granted. The other fields are those
    of `AgentNode`.
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


class AgentUpdate(Struct, frozen=True):
    """An update from an external agent, in the terms of `Progress`."""

    kind: ProgressKind
    text: str = ""
    failed: bool = False


class AgentOutcome(Struct, frozen=True):
    """The outcome of a session: the protocol's stop reason and the last message.

    Only `end_turn` is a success.
    """

    stop: StopReason
    text: str


class PermissionRequest(Struct, frozen=True):
    """An action for which the agent requests permission before it performs it.

    `kind` is the protocol's kind of action; the other fields are taken from the request.
    """

    kind: str
    title: str
    paths: tuple[str, ...] = ()
    details: JsonValue = None


class TerminalCommand(Struct, frozen=True):
    """A command that the agent asks to run. Without arguments, `command` may be a shell command line."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    directory: str | None = None


class AgentClient(Protocol):
    """The client side of one agent session. Any thread may call it; calls block.

    Paths are absolute, as the protocol requires. `ToolRefused` is reported to the agent. Any other error ends
    the session and is raised by `Agents.run`.
    """

    @property
    def directory(self) -> Path:
        """The working directory of the session."""
        ...

    def read(self, path: str, line: int | None, limit: int | None) -> str:
        """Return the text of a file, or `limit` lines from line `line` (starting at 1).

        Raises `ToolRefused` instead of truncating.
        """
        ...

    def write(self, path: str, content: str) -> None:
        """Replace the content of a file."""
        ...

    def run(
        self, command: TerminalCommand, ended: StopSignal, on_output: Callable[[bytes], None]
    ) -> int | None:
        """Run a command and return its exit code; None if it was stopped by `ended` or ran out of time.

        When this returns, no process of the command remains.
        """
        ...

    def permit(self, wanted: PermissionRequest) -> bool:
        """Return whether the action is permitted."""
        ...

    def did(self, what: str) -> None:
        """Record the changes of an action that the agent reports as finished."""
        ...

    def told(self, update: AgentUpdate) -> None:
        """Publish an update. Does not block."""
        ...


class Agents(Protocol):
    """Runs external agents. Any number may run concurrently, from any thread."""

    def ensure_there(self, request: AgentRequest) -> None:
        """Raise `ToolRefused` with installation instructions if the agent is not installed.

        Call it before asking for an approval.
        """
        ...

    def run(self, request: AgentRequest, client: AgentClient, stop: StopSignal) -> AgentOutcome:
        """Run one session with one prompt.

        When this returns or raises, all processes of the agent have ended. Raises `Cancelled` if `stop` is
        set, after asking the agent to cancel. Raises `ToolRefused` if the agent cannot be started, does not
        speak the protocol, exceeds its limits, or ends before it answers.
        """
        ...
