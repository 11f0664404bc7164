"""The machine's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["SystemClock"]


class SystemClock:
    """`Clock` on the machine's own clocks. Stateless, so any thread may share it."""

    def monotonic(self) -> float:
        # BOOTTIME counts suspension, MONOTONIC does not: a laptop that slept through a lease must notice.
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)
