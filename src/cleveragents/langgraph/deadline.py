"""Time for a part of a run, after which it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cleveragents.errors import DeadlineExceeded

__all__ = ["within"]


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """`DeadlineExceeded` when the block has not ended in time; by then it was cancelled and cleaned up."""
    try:
        async with asyncio.timeout(seconds) as time:
            yield
    except TimeoutError as late:
        if seconds is None or not time.expired():  # guard: somebody else's timeout is none of ours
            raise
        raise DeadlineExceeded(what, seconds) from late
