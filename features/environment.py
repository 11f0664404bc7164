"""Around every feature: nothing is left behind. asyncio runs in debug mode."""

from __future__ import annotations

import os
from typing import Any

from tests.leaks import take_baseline
from tests.short_stacks import keep_short_stacks

os.environ["PYTHONASYNCIODEBUG"] = "1"
keep_short_stacks()


def before_feature(context: Any, feature: Any) -> None:
    context.baseline = take_baseline()


def after_feature(context: Any, feature: Any) -> None:
    leaks = context.baseline.leaks()
    assert not leaks, f"{feature.name} left behind: {'; '.join(leaks)}"
