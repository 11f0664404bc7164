"""asyncio's debug mode without its long stacks, for every process of the tests."""

from __future__ import annotations

import asyncio.constants
import linecache
import traceback

__all__ = ["keep_short_stacks"]

_MOST_CALLS = 4
"""The innermost frames are asyncio's own."""


def keep_short_stacks() -> None:
    """Keep one frame of each stack that asyncio records.

    Of the stack of a callback, one call shows where it came from. For every task and future asyncio records
    the whole stack, which took up to 6 % of the time of tests with a server.
    """
    asyncio.constants.DEBUG_STACK_DEPTH = 1
    # asyncio's C code passes no limit. Others, such as `format_stack`, do, and get whole stacks as before.
    traceback.extract_stack.__defaults__ = (None, _MOST_CALLS)
    # For each call it would check whether the source has changed.
    linecache.checkcache = lambda filename=None: None
