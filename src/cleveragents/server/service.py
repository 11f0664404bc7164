"""The parts that the routes of a server share. A route declares `here: Here` to get them."""

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
    """Limits the number of concurrent requests that each occupy a thread for long; answers 429 beyond the
    limit.

    Thread safety:
        Owner: the service that created it; any thread may acquire a place.
        Lock: `_places` counts the free places; it is tried, never waited for.
        Guarantee: at most `number` blocks run at any time.
    Cancel safety: a place is released with its block, however that ends.
    """

    def __init__(self, number: int, *, again_seconds: int = 5) -> None:
        self._number = number
        self._again_seconds = again_seconds
        self._places = threading.BoundedSemaphore(number)

    @contextmanager
    def one(self, what: str) -> Iterator[None]:
        """Hold a place during the block. Raises `Refused` (429) if none is free."""
        if not self._places.acquire(blocking=False):  # guard: the limit
            said = f"too many {what}: at most {self._number} at once; try again in {self._again_seconds} s"
            raise Refused(429, "too-many-at-once", said, {"Retry-After": str(self._again_seconds)})
        try:
            yield
        finally:
            self._places.release()


class ShutdownSignal:
    """Tells streams that the server stops, because they never end by themselves.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(self) -> None:
        self._begun = False
        self._told: dict[object, Callable[[], None]] = {}

    @property
    def begun(self) -> bool:
        return self._begun

    def on_begin(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` when the stop begins, or now if it has begun. Return a function to unregister it."""
        if self._begun:
            tell()
            return lambda: None
        ticket = object()
        self._told[ticket] = tell

        def remove() -> None:
            self._told.pop(ticket, None)

        return remove

    def begin(self) -> None:
        """Begin the stop. A second call is harmless."""
        self._begun = True
        while self._told:
            _, tell = self._told.popitem()
            tell()


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a server process. Any thread may use it; its creator closes the container.

    `stopping` ends streams, on the server's loop. `trials` limits parallel model trials, each of which
    occupies a thread until its provider responds. `verifications` limits parallel reads of the whole audit
    log.
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
