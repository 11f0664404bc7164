"""Models, actors and budgets: what goes wrong with them.

Graph runs.

The context pipeline and its index.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from cleveragents.core.errors.families import Conflict, Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "ActorStopped",
    "AgentFailed",
    "BlockingOnLoop",
    "BudgetExhausted",
    "ContextTooLong",
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
]


@dataclass(eq=False)
class UnknownActor(InvalidRequest):
    """There is no actor of that name."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"there is no actor {self.name!r}{hint}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("actor.list", text="List the actors"),)


@dataclass(eq=False)
class InvalidActor(InvalidRequest):
    """Its YAML is wrong; every mistake, each with its line."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is not a valid actor: {'; '.join(self.problems)}"


@dataclass(eq=False)
class UnknownModel(InvalidRequest):
    """No provider goes by that name."""

    message = "model {name!r}: {problem}"
    name: str
    problem: str


@dataclass(eq=False)
class ModelRefused(InvalidRequest):
    """The provider does not take the request: a wrong key, no credit, a model that it does not have.

    `charged` and `took` as in `ModelUnavailable`."""

    message = "{model}: {problem}"
    model: str
    problem: str
    charged: bool = False
    took: tuple[int, int, int] | None = None


@dataclass(eq=False)
class ContextTooLong(InvalidRequest):
    """What the model would have to read is more than it can."""

    message = "{model} reads at most {limit} tokens, and this needs {needed}; choose a model that reads more"
    model: str
    needed: int
    limit: int


@dataclass(eq=False)
class PriceUnknown(InvalidRequest):
    """A limit of money needs a price. `actor` is whose own limit it is, if it is one's."""

    model: str
    actor: str = ""

    def __str__(self) -> str:
        whose, instead = "a limit in dollars", "limit the tokens instead"
        if self.actor:
            whose = f"the limit in dollars of {self.actor}"
            instead = "remove `usd` from the `limits` in its YAML"
        return f"cannot keep {whose}: the price of {self.model} is not known; {instead}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        key = "models.prices"
        return (Remedy("config.set", options={"key": key, "value": None}, text="Give its price in a file"),)


@dataclass(eq=False)
class SpendingUncounted(InvalidRequest):
    """A limit of money or tokens needs somebody who counts, and nobody counts what another agent spends."""

    message = (
        "cannot keep a limit in dollars or tokens: what {program} spends is not counted here; limit the "
        "time instead, or set a limit in {program}"
    )
    program: str


@dataclass(eq=False)
class ModelUnavailable(Unavailable):
    """It does not answer: too many requests, a timeout, a broken server, after all retries.

    `charged` says that the provider may charge for it all the same, because it had the request and did not
    turn it down; `took` are the tokens that it says it took: input, output, and those of the input that it
    had kept."""

    model: str
    problem: str
    retry_after_seconds: float | None = None
    charged: bool = False
    took: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        wait = ceil(self.retry_after_seconds or 0)
        when = f"try again in {wait} s" if wait else "try again later"
        return f"{self.model} does not answer: {self.problem}; {when}, or choose another model"


@dataclass(eq=False)
class BudgetExhausted(Conflict):
    """The next call might take the plan over what it may spend; so it is not made.

    `limit` is the one to raise (`usd`, `tokens`, `steps`, `seconds`), and `least` the total that allows the
    call, if that is known."""

    message = "the budget does not allow the next call: {what}"
    plan_id: str
    what: str
    limit: str = "seconds"
    least: int | float | None = None

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        options = {f"limits.{self.limit}": self.least}
        return (Remedy("plan.resume", self.plan_id, options, "Raise the limit and resume"),)


@dataclass(eq=False)
class ActorStopped(Conflict):
    """An actor was stopped because it got nowhere, or as far as its limits allow."""

    message = "actor {actor} was stopped: {reason}"
    actor: str
    reason: str


@dataclass(eq=False)
class AgentFailed(ActorStopped):
    """An actor was stopped because another agent, to which it gave the work, did not do it."""


@dataclass(eq=False)
class UnknownGraph(InvalidRequest):
    """No graph of that name was given to the bridge."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"there is no graph {self.name!r} (known: {known})"


@dataclass(eq=False)
class BlockingOnLoop(InvalidRequest):
    """A wait on an event loop's own thread for something that only this loop can do."""

    message = "{what} on the event loop's own thread would wait for itself; await it instead"
    what: str


@dataclass(eq=False)
class GraphFailed(Fault):
    """A graph run ended with an error that is not ours; the original is its `__cause__`."""

    message = "graph {graph!r} failed: {problem}"
    graph: str
    problem: str


@dataclass(eq=False)
class LoopStopped(Fault):
    """Somebody stopped the event loop under the runs it was serving."""

    message = "the event loop of {what} was stopped from outside; close it and make a new one"
    what: str


@dataclass(eq=False)
class InvalidCondition(InvalidRequest):
    """A condition of a route is no condition, or cannot be decided with the values that there are."""

    message = "the condition {text!r}: {problem}"
    text: str
    problem: str


@dataclass(eq=False)
class ThreadBusy(Unavailable):
    """A run goes on under that name already; two at once would overwrite each other's checkpoints."""

    message = "{thread_id} is being run already; wait until that run has ended"
    thread_id: str


@dataclass(eq=False)
class QuestionRefused(InvalidRequest):
    """What is asked of the context pipeline cannot be answered by anyone."""

    message = "cannot look for context: {problem}"
    problem: str


@dataclass(eq=False)
class SourceMissing(InvalidRequest):
    """What is to be searched is not there."""

    message = "cannot search {place}: {problem}"
    place: str
    problem: str


@dataclass(eq=False)
class SourceChanged(Conflict):
    """A file changed after the snapshot was made, and what it said then is to be had no more."""

    message = "{path} has changed since it was looked at; ask again"
    path: str
