"""How the demo waits: it looks again and again, and gives up at some time."""

from __future__ import annotations

import time
from collections.abc import Callable

from cleveragents.core.errors import DeadlineExceeded

__all__ = ["until"]

_STEP_SECONDS = 180.0
_LOOK_SECONDS = 0.02


def until(what: str, holds: Callable[[], bool]) -> None:
    """Returns when it holds. `DeadlineExceeded` if that does not come to pass."""
    give_up = time.monotonic() + _STEP_SECONDS
    while not holds():
        if time.monotonic() >= give_up:
            raise DeadlineExceeded(what, _STEP_SECONDS)
        time.sleep(_LOOK_SECONDS)
