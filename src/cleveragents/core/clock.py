"""Time as a parameter."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

__all__ = ["Clock"]


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
