"""Actors at work: what runs them, and what they may use while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleveragents.actors.agent_ports import AgentRequest, AgentUpdate
from cleveragents.actors.model.actor import Actor
from cleveragents.actors.model.progress import Progress
from cleveragents.core.fence import Fence
from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import ToolSpec
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.processes.ports import StopSignal

__all__ = [
    "ActorHost",
    "ActorOutcome",
    "ActorRequest",
    "ActorRunner",
    "Actors",
    "Answer",
    "Question",
    "ToolAnswer",
]


class Actors(Protocol):
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
class Answer:
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
    answer: Answer | None = None
    seconds: float | None = None
    told: Callable[[Progress], None] | None = None
    actors: Actors | None = None


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
