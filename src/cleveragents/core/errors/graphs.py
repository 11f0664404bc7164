"""Graph runs."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Fault, InvalidRequest, Unavailable

__all__ = ["BlockingOnLoop", "GraphFailed", "InvalidCondition", "LoopStopped", "ThreadBusy", "UnknownGraph"]


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
