"""How long git is waited for while a place is looked at.

A repository can make git wait for ever, with a pipe in the place of one of its files.
"""

from __future__ import annotations

import time

from cleveragents.context.index.patience import Patience
from cleveragents.git.exchange import SecondsLeft

__all__ = ["git_seconds"]

_MOST_SECONDS = 60.0
_LEAST_SECONDS = 1.0


def git_seconds(patience: Patience, most: float = _MOST_SECONDS) -> SecondsLeft:
    """For one command: half of the time that there is patience for, but no longer than `most`, so that
    something is left for what comes after. When the time is up there is still a second, in which a healthy
    repository answers: what is indexed can be used then."""
    began = time.monotonic()
    patience = patience.half

    def left() -> float:
        now = time.monotonic()
        least = began + min(most, _LEAST_SECONDS) - now
        if patience.is_over:  # guard: who gave up is not waited for
            return least
        return max(least, patience.seconds(began + most - now))

    return left
