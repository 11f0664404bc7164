"""Wait for a condition that only a look can tell: the state of another process, a server or a database.

Within one process, use an event or a barrier instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["wait_until"]

_PAUSE_SECONDS = 0.01


def wait_until(
    holds: Callable[[], bool], *, what: str | Callable[[], str] = "the condition", seconds: float = 240.0
) -> None:
    """Return when the condition holds; raise AssertionError after the time limit. `what` names the condition
    in that error.
    """
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends:
            waited_for = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds:g} s for {waited_for}")
        time.sleep(_PAUSE_SECONDS)
