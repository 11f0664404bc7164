"""So many at once, and whoever comes then is told to come again: for what keeps a thread for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cleveragents.server.problems import Refused

__all__ = ["AtMost"]


class AtMost:
    """A bound on how many do something at once; nobody waits for a place.

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
            said = f"{what}: {self._number} are under way, which is as many as at once"
            headers = {"Retry-After": str(self._again_seconds)}
            raise Refused(429, "too-many-at-once", f"{said}; try again in {self._again_seconds} s", headers)
        try:
            yield
        finally:
            self._places.release()
