"""The cancellation token, compared with its floor, a bare `threading.Event`."""

from __future__ import annotations

import threading

from benchmarks.ratio import ratio
from cleveragents.jobs.worker.async_worker import CancellationToken

__all__ = ["Cancellation"]

_POLLS = 200_000
_MOVES = 20_000


class Cancellation:
    """Every job polls in its loops; cancel and reset happen once per run."""

    unit = "ratio"

    def setup(self) -> None:
        self.token = CancellationToken()
        self.event = threading.Event()

    def track_is_cancelled_ratio(self) -> float:
        """`is_cancelled` compared with `Event.is_set`. Aim: at most 2.5."""
        return ratio(self._poll_token, self._poll_event)

    def track_cancel_reset_ratio(self) -> float:
        """`cancel` and `reset` compared with `Event.set` and `Event.clear`. Aim: at most 5."""
        return ratio(self._move_token, self._move_event)

    def _poll_token(self) -> bool:
        token = self.token
        seen = False
        for _ in range(_POLLS):
            seen = token.is_cancelled
        return seen

    def _poll_event(self) -> bool:
        event = self.event
        seen = False
        for _ in range(_POLLS):
            seen = event.is_set()
        return seen

    def _move_token(self) -> None:
        token = self.token
        for _ in range(_MOVES):
            token.cancel()
            token.reset()

    def _move_event(self) -> None:
        event = self.event
        for _ in range(_MOVES):
            event.set()
            event.clear()
