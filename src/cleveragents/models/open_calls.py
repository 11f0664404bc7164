"""How many calls on a budget are under way in this process, and how many have ended."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from weakref import WeakValueDictionary

__all__ = ["OpenCalls", "OpenCallsOfTrees", "Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """A moment: calls that are `open` now, and those that `ended` before."""

    open: int
    ended: int


class OpenCalls:
    """Counts calls that hold a part of a budget.

    Thread safety:
        Owner: the runs whose calls it counts; any thread may begin and end one.
        Lock: `_lock` guards both counts, for arithmetic only.
        Guarantee: `open` is how many were begun and not ended, and no end goes uncounted.
    Cancel safety: nothing here waits. Whoever began a call ends it, cancelled or not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._ended = 0

    def begin(self) -> None:
        with self._lock:
            self._open += 1

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            self._ended += 1

    def look(self) -> Traffic:
        with self._lock:
            return Traffic(self._open, self._ended)


class OpenCallsOfTrees:
    """One count for all plans of a tree: what a sibling here has reserved, it will settle or give back.

    Thread safety:
        Owner: whoever lets plans run in this process; any thread may ask.
        Lock: `_lock` guards the dictionary, for a look-up or an insertion.
        Guarantee: all who ask for a tree while somebody holds its count get the same one; when nobody does,
            it is gone.
    Cancel safety: nothing here waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[str, OpenCalls] = WeakValueDictionary()

    def of(self, root_id: str) -> OpenCalls:
        with self._lock:
            found = self._known.get(root_id)
            if found is None:
                found = self._known[root_id] = OpenCalls()
            return found
