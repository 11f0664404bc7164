"""Around every feature: nothing is left behind. asyncio runs in debug mode."""

from __future__ import annotations

import asyncio.constants
import linecache
import os
from typing import Any

from tests.leaks import take_baseline

os.environ["PYTHONASYNCIODEBUG"] = "1"
# Of the stack that it keeps with every callback, one call tells whose it is.
asyncio.constants.DEBUG_STACK_DEPTH = 1
linecache.checkcache = lambda filename=None: None


def before_feature(context: Any, feature: Any) -> None:
    context.baseline = take_baseline()


def after_feature(context: Any, feature: Any) -> None:
    leaks = context.baseline.leaks()
    assert not leaks, f"{feature.name} left behind: {'; '.join(leaks)}"
