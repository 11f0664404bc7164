"""How long who asks is ready to wait."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cleveragents.context.strategy import CancelSignal
from cleveragents.core.errors import Cancelled

__all__ = ["Patience"]


@dataclass(frozen=True, slots=True)
class Patience:
    """Ends at `deadline`, by the monotonic clock, or when the work is cancelled."""

    deadline: float | None = None
    cancelled: CancelSignal | None = None

    @staticmethod
    def of(seconds: float | None, cancelled: CancelSignal | None) -> Patience:
        return Patience(None if seconds is None else time.monotonic() + seconds, cancelled)

    @property
    def is_over(self) -> bool:
        """Whether the time is up. `Cancelled`."""
        if self.cancelled is not None and self.cancelled.is_cancelled:
            raise Cancelled("the index was being opened")
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def half(self) -> Patience:
        """Ends when half of the time that is left has passed."""
        if self.deadline is None:
            return self
        now = time.monotonic()
        return Patience(now + (self.deadline - now) / 2, self.cancelled)

    def seconds(self, at_most: float) -> float:
        """How long the next wait may be."""
        if self.deadline is None:
            return at_most
        return max(0.0, min(at_most, self.deadline - time.monotonic()))
