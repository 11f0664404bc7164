"""A manual clock, predictable ids, and fault points that raise or kill the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

__all__ = ["CountingIdentifiers", "CrashAt", "FakeClock", "RaiseAt", "RecordFaultPoints"]


class FakeClock:
    """Passes the `Clock` contract; `advance` moves `now` and `monotonic`, `jump` only `now`, the wall clock.

    Thread safety:
        Owner: the test. Lock: `_lock` guards both readings, for arithmetic only.
        Guarantee: a reading never goes back except through `jump`, which moves `now` alone.
    Cancel safety: no call waits.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = start
        self._monotonic = 1000.0

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not go back; use jump() for the wall clock")
        with self._lock:
            self._monotonic += seconds
            self._now += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock without letting time pass."""
        with self._lock:
            self._now += timedelta(seconds=seconds)


class CountingIdentifiers:
    """`job-000001`, `job-000002`, …: passes the `IdentifierSource` contract within one process."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        # next() on itertools.count is a single C call: two threads never get the same number.
        self._numbers = count(1)

    def new(self) -> str:
        return f"{self._prefix}-{next(self._numbers):06d}"


class RecordFaultPoints:
    """Records the reached points, so that a test can iterate over all of them."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def reach(self, name: str) -> None:
        # list.append is atomic; the order across threads is the actual one.
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
    """Raises the exception from `error` the `nth` time `name` is reached."""

    def __init__(self, name: str, error: Callable[[], BaseException], nth: int = 1) -> None:
        self._name = name
        self._error = error
        self._nth = nth
        self._seen = count(1)

    def reach(self, name: str) -> None:
        if name == self._name and next(self._seen) == self._nth:
            raise self._error()
