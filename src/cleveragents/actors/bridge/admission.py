"""Who is in flight: one lock decides admission, removal and closing, so that nobody slips in between.

It knows neither loops nor graphs. A snapshot taken here holds everything that was ever admitted and has
not ended; after `close` it holds everything there will ever be.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from cleveragents.core.errors import Closed, QueueFull

__all__ = ["AdmissionLedger"]

T = TypeVar("T")


class AdmissionLedger(Generic[T]):
    """At most `bound` items at once; none after `close`.

    Thread safety:
        Owner: the bridge, which also gives the lock and the set. Any thread may call.
        Lock: `_tasks_lock` guards the set and `_closed`, for set operations only.
        Guarantee: an item is in the set from before `admit` returns until exactly one `remove` of it
            returned True; no admission succeeds after `close` took its snapshot.
    Cancel safety: a thread interrupted while it waits for room has admitted nothing.
    """

    def __init__(self, name: str, bound: int, active: set[T], tasks_lock: threading.Lock) -> None:
        if bound < 1:
            raise ValueError("the bound of what is in flight must be at least 1")
        self._name = name
        self._bound = bound
        self._active = active
        self._tasks_lock = tasks_lock
        self._room = threading.Condition(tasks_lock)
        self._closed = False

    def admit(self, item: T, patience_seconds: float) -> None:
        """Takes the item in, waiting for room if it must. `Closed`; `QueueFull` when patience is over."""
        with self._tasks_lock:
            if len(self._active) >= self._bound:  # guard: what is in flight is bounded
                self._room.wait_for(self._may_go_on, patience_seconds)
            if self._closed:  # guard: nothing is admitted after close took its snapshot
                raise Closed(self._name)
            if len(self._active) >= self._bound:  # guard: patience is over and there is still no room
                raise QueueFull(self._name, self._bound)
            self._active.add(item)

    def remove(self, item: T) -> bool:
        """Whether this call took the item out; whoever did speaks for its end."""
        with self._tasks_lock:
            if item not in self._active:  # guard: only one caller may speak for the item's end
                return False
            self._active.remove(item)
            self._room.notify()
            return True

    def snapshot(self) -> tuple[T, ...]:
        """What is in flight at one moment."""
        with self._tasks_lock:
            return tuple(self._active)

    def close(self) -> tuple[T, ...]:
        """Refuses everything from now on, wakes those who wait for room; returns what is left."""
        with self._tasks_lock:
            self._closed = True
            self._room.notify_all()
            return tuple(self._active)

    def _may_go_on(self) -> bool:
        return self._closed or len(self._active) < self._bound
