"""What the routes of one server share. Routes say `here: Here` and get it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from cleveragents.app.container import Container
from cleveragents.server.problems import Refused

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["Here", "RequestLimit", "Service", "ShutdownSignal"]

_TRIALS = 4
_VERIFICATIONS = 2


class RequestLimit:
    """Limits concurrency; answers 429 beyond the limit. For requests that keep a thread for long.

    Thread safety:
        Owner: the service that made it; any thread may ask for a place.
        Lock: `_places` counts those that are free, and is only ever tried, never waited for.
        Guarantee: never more than `number` have a place.
    Cancel safety: a place is given back with its block, however that ends.
    """

    def __init__(self, number: int, *, again_seconds: int = 5) -> None:
        self._number = number
        self._again_seconds = again_seconds
        self._places = threading.BoundedSemaphore(number)

    @contextmanager
    def one(self, what: str) -> Iterator[None]:
        """A place for the block. `Refused` (429) when there is none."""
        if not self._places.acquire(blocking=False):  # guard: no more than so many
            said = f"too many {what}: at most {self._number} at once; try again in {self._again_seconds} s"
            raise Refused(429, "too-many-at-once", said, {"Retry-After": str(self._again_seconds)})
        try:
            yield
        finally:
            self._places.release()


class ShutdownSignal:
    """Tells streams, once, that the server is about to stop: they never end by themselves.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(self) -> None:
        self._begun = False
        self._told: dict[object, Callable[[], None]] = {}

    @property
    def begun(self) -> bool:
        return self._begun

    def on_begin(self, tell: Callable[[], None]) -> Callable[[], None]:
        """`tell` is called when it begins; at once, if it has. Returns what takes it off again."""
        if self._begun:
            tell()
            return lambda: None
        ticket = object()
        self._told[ticket] = tell

        def remove() -> None:
            self._told.pop(ticket, None)

        return remove

    def begin(self) -> None:
        """From now on the server stops. Twice is harmless."""
        self._begun = True
        while self._told:
            _, tell = self._told.popitem()
            tell()


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a server's process. Any thread may use it; its maker closes the container.

    `stopping` ends streams, on the server's loop. `trials` limits how many models are tried at once: each
    keeps a thread until its provider has answered. `verifications` does so for the log, which is read whole.
    """

    container: Container
    stopping: ShutdownSignal = field(default_factory=ShutdownSignal)
    trials: RequestLimit = field(default_factory=lambda: RequestLimit(_TRIALS))
    verifications: RequestLimit = field(default_factory=lambda: RequestLimit(_VERIFICATIONS))

    @property
    def parts(self) -> PlanParts:
        return self.container.plan_parts


def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(_service_of)]
