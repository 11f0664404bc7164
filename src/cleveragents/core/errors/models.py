"""Errors of models, actors, budgets, graphs and the context pipeline."""

from __future__ import annotations

from math import ceil

from cleveragents.core.errors.families import Conflict, Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import OptionValue, Remedy

__all__ = [
    "ActorStopped",
    "AgentFailed",
    "BlockingOnLoop",
    "BudgetExhausted",
    "ContextTooLong",
    "ConversationBudgetExhausted",
    "GraphFailed",
    "InvalidActor",
    "InvalidCondition",
    "LoopStopped",
    "ModelRefused",
    "ModelUnavailable",
    "PriceUnknown",
    "QuestionRefused",
    "SourceChanged",
    "SourceMissing",
    "SpendingUncounted",
    "ThreadBusy",
    "UnknownActor",
    "UnknownGraph",
    "UnknownModel",
    "UsageLimited",
]


def _another_model(key: str, text: str) -> Remedy:
    return Remedy("config.set", options={"key": key, "value": None}, text=text)


class UnknownActor(InvalidRequest):
    """There is no actor with this name."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"there is no actor {self.name!r}{hint}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("actor.list", text="List the actors"),)


class InvalidActor(InvalidRequest):
    """The YAML is not a valid actor. `problems` lists every mistake with its line."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is not a valid actor: {'; '.join(self.problems)}"


class UnknownModel(InvalidRequest):
    """The name of a model is malformed, or its provider is unknown."""

    message = "model {name!r}: {problem}"
    name: str
    problem: str


class ModelRefused(InvalidRequest):
    """The provider rejected the request: a wrong key, no credit, an unknown model or a content filter.

    `charged` and `took` are as in `ModelUnavailable`. `status` is the HTTP status that fits the problem, even
    if the provider sent another status; None if the provider began its answer and then stopped it.
    """

    message = "{model}: {problem}"
    model: str
    problem: str
    charged: bool = False
    took: tuple[int, int, int, int] | None = None
    status: int | None = None

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        if self.status in (401, 403):
            return (
                Remedy("model.test", options={"name": self.model}, text="Test the model with another key"),
            )
        if self.status == 404:
            return (Remedy("model.list", text="List the models"),)
        return (_another_model("models.default", "Choose another model"),)


class ContextTooLong(InvalidRequest):
    """The request exceeds the context window of the model."""

    message = (
        "{model} accepts at most {limit} tokens, but the request has {needed}; "
        "choose a model with a larger context window"
    )
    model: str
    needed: int
    limit: int

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("model.list", text="List the models and their context windows"),)


class PriceUnknown(InvalidRequest):
    """A limit in dollars cannot be enforced, because the price of the model is unknown. `actor` is the actor
    that sets the limit, if an actor does.
    """

    model: str
    actor: str = ""

    def __str__(self) -> str:
        limit, instead = "a limit in dollars", "limit the tokens instead"
        if self.actor:
            limit = f"the limit in dollars of {self.actor}"
            instead = "remove `usd` from the `limits` in its YAML"
        return f"cannot enforce {limit}: the price of {self.model} is unknown; {instead}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        key = "models.prices"
        return (
            Remedy(
                "config.set",
                options={"key": key, "value": None},
                text="Set a file with the price of the model",
            ),
        )


class SpendingUncounted(InvalidRequest):
    """The spending of an external agent is not measured, so a limit on it cannot be enforced."""

    message = (
        "cannot enforce a limit in dollars or tokens: the spending of {program} is not measured; limit the "
        "time instead, or set a limit in {program}"
    )
    program: str


class ModelUnavailable(Unavailable):
    """The model did not answer after all retries: too many requests, a timeout or a server error.

    `charged` is true if the provider may still bill the call, because it received the request and did not
    reject it. `took` holds the tokens that the provider reported: input, output, and the input that it read
    from and stored in its prompt cache. `status` is the HTTP status of the provider, if it sent one.
    """

    model: str
    problem: str
    retry_after_seconds: float | None = None
    charged: bool = False
    took: tuple[int, int, int, int] | None = None
    status: int | None = None

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (_another_model("models.fallback", "Use another model when this one does not answer"),)

    def __str__(self) -> str:
        wait = ceil(self.retry_after_seconds or 0)
        when = f"try again in {wait} s" if wait else "try again later"
        return f"{self.model} does not answer: {self.problem}; {when}, or choose another model"


class UsageLimited(ModelUnavailable):
    """The usage limit of the provider is reached. `retry_after_seconds` is the time until it resets; None if
    the provider does not state it.
    """

    def __str__(self) -> str:
        wait = self.retry_after_seconds
        when = "try again later" if wait is None else f"the limit resets in {_roughly(wait)}"
        return f"{self.model}: the usage limit is reached ({self.problem}); {when}, or choose another model"


def _roughly(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{ceil(seconds / size)} {unit}"
    return f"{ceil(seconds)} s"


class BudgetExhausted(Conflict):
    """The next call could exceed the budget of the plan, so it is not made.

    `limit` names the limit to raise (`usd`, `tokens`, `steps` or `seconds`). `least` is the smallest value
    that allows the call, if known.
    """

    message = "the budget does not allow the next call: {what}"
    plan_id: str
    what: str
    limit: str = "seconds"
    least: int | float | None = None

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        options = {f"limits.{self.limit}": self.least}
        return (Remedy("plan.resume", self.plan_id, options, "Raise the limit and resume"),)


class ConversationBudgetExhausted(BudgetExhausted):
    """The next call of a session, or another plan of it, could exceed the budget of the session. `plan_id` is
    the id of the session.
    """

    message = "the budget of the session does not allow it: {what}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        limit = f"limits.{self.limit}"
        options: dict[str, OptionValue] = {"session": self.plan_id, limit: self.least}
        return (Remedy("session.budget", options=options, text="Raise the limit"),)


class ActorStopped(Conflict):
    """An actor was stopped because it made no progress or reached its limits."""

    message = "actor {actor} was stopped: {reason}"
    actor: str
    reason: str


class AgentFailed(ActorStopped):
    """An actor was stopped because the agent it delegated to failed."""


class UnknownGraph(InvalidRequest):
    """The bridge has no graph with this name."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"there is no graph {self.name!r} (known: {known})"


class BlockingOnLoop(InvalidRequest):
    """A blocking call on the thread of the event loop that has to do the work."""

    message = "{what} would deadlock on the thread of its event loop; await it instead"
    what: str


class GraphFailed(Fault):
    """A graph run raised a foreign exception, which is the `__cause__`."""

    message = "graph {graph!r} failed: {problem}"
    graph: str
    problem: str


class LoopStopped(Fault):
    """Foreign code stopped the event loop while it served runs."""

    message = "the event loop of {what} was stopped from outside; close it and make a new one"
    what: str


class InvalidCondition(InvalidRequest):
    """The condition of a route is malformed, or cannot be evaluated with the given values."""

    message = "the condition {text!r}: {problem}"
    text: str
    problem: str


class ThreadBusy(Unavailable):
    """Another run uses this thread; two concurrent runs would overwrite each other's checkpoints."""

    message = "{thread_id} is already running; wait until that run ends"
    thread_id: str


class QuestionRefused(InvalidRequest):
    """The request to the context pipeline is invalid."""

    message = "cannot search for context: {problem}"
    problem: str


class SourceMissing(InvalidRequest):
    """The place to search does not exist."""

    message = "cannot search {place}: {problem}"
    place: str
    problem: str


class SourceChanged(Conflict):
    """A file changed after the snapshot, and its old content is gone."""

    message = "{path} changed after it was read; ask again"
    path: str
