"""The clock as a parameter, and the system clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """A monotonic clock to measure time and a wall clock to show it; never mix the two.

    `monotonic` never goes back and includes the time the machine was suspended, so a lease that expired
    during a suspension counts as expired. `now` is the wall clock in UTC and may jump. Both are safe in any
    thread.
    """

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary point in time, which is the same for all processes until the
        next boot.
        """
        ...

    def now(self) -> datetime:
        """Return the wall clock as an aware datetime in UTC."""
        ...


class SystemClock:
    """`Clock` on the clocks of the machine. Stateless: any thread may share it."""

    def monotonic(self) -> float:
        # BOOTTIME includes suspension, MONOTONIC does not: a laptop that slept through a lease must notice.
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)
