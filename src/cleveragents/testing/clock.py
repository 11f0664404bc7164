"""A clock that moves when a test says so."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

__all__ = ["FakeClock"]


class FakeClock:
    """Passes the `Clock` contract; `advance` moves both readings, `jump` only the wall clock.

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
        """Time passes."""
        if seconds < 0:
            raise ValueError("time does not go back; use jump() for the wall clock")
        with self._lock:
            self._monotonic += seconds
            self._now += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        """Somebody set the wall clock; no time passes."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
