"""Time as a parameter.

The machine's clocks.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Two clocks that are never mixed: one to measure with, one to show to people.

    `monotonic` never goes back and counts the time a machine was suspended, so a lease that ran out
    during a sleep is seen to have run out. `now` is the wall clock in UTC and may jump.
    Any thread may read both.
    """

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, the same for all processes of this boot."""
        ...

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        ...


class SystemClock:
    """`Clock` on the machine's own clocks. Stateless, so any thread may share it."""

    def monotonic(self) -> float:
        # BOOTTIME counts suspension, MONOTONIC does not: a laptop that slept through a lease must notice.
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)
