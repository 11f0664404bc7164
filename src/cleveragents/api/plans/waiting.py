"""Polling at growing intervals."""

from __future__ import annotations

import time
from collections.abc import Iterator

__all__ = ["LOOK_SECONDS", "until"]

LOOK_SECONDS = 0.1
_LONGEST_LOOK_SECONDS = 1.0


def until(timeout: float | None, what: str) -> Iterator[None]:
    """Yield at growing intervals. `DeadlineExceeded` after the timeout."""
    from cleveragents.core.errors import DeadlineExceeded

    began, pause = time.monotonic(), LOOK_SECONDS
    while True:
        yield
        if timeout is not None and time.monotonic() - began >= timeout:
            raise DeadlineExceeded(what, timeout)
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)
