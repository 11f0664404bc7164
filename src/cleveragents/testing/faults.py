"""Fault points that bite: raise, or end this very process, at a named step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count

__all__ = ["CrashAt", "RaiseAt", "RecordFaultPoints"]


class RecordFaultPoints:
    """Remembers which points were reached, so that a test can walk through all of them."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def reach(self, name: str) -> None:
        # list.append is atomic; order across threads is whatever really happened.
        self.reached.append(name)


class CrashAt:
    """SIGKILLs this process the `nth` time `name` is reached: no clean-up runs, as in a real crash."""

    def __init__(self, name: str, nth: int = 1) -> None:
        self._name = name
        self._nth = nth
        self._seen = count(1)

    def reach(self, name: str) -> None:
        if name == self._name and next(self._seen) == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)


class RaiseAt:
    """Raises what `error` builds, the `nth` time `name` is reached."""

    def __init__(self, name: str, error: Callable[[], BaseException], nth: int = 1) -> None:
        self._name = name
        self._error = error
        self._nth = nth
        self._seen = count(1)

    def reach(self, name: str) -> None:
        if name == self._name and next(self._seen) == self._nth:
            raise self._error()
