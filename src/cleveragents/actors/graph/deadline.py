"""Time for a part of a run, after which it is cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from cleveragents.core.errors import DeadlineExceeded

__all__ = ["time_left", "within"]

# Of the innermost part with a time, which is no later than that of any around it.
_ends: ContextVar[float | None] = ContextVar("ends", default=None)


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """`DeadlineExceeded` when the block has not ended in time; by then it was cancelled and cleaned up."""
    around = _ends.get()
    ends = None if seconds is None else time.monotonic() + seconds
    here = _ends.set(min((end for end in (around, ends) if end is not None), default=None))
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield
    except TimeoutError as late:
        if seconds is None or not timeout.expired():  # guard: somebody else's timeout is none of ours
            raise
        raise DeadlineExceeded(what, seconds) from late
    finally:
        _ends.reset(here)


def time_left() -> Callable[[], float] | None:
    """Says, on any thread, how many seconds the part of the run has left that this is called in; None where
    it has no end. A thread is not cancelled with its task: it has to look for itself."""
    ends = _ends.get()
    return None if ends is None else lambda: ends - time.monotonic()
