"""Times two functions alternately and compares them: on a noisy machine, only a ratio is meaningful."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median

__all__ = ["ratio", "seconds_of"]


def seconds_of(work: Callable[[], object]) -> float:
    """Return the wall time of one call, without garbage collection in between."""
    gc.collect()
    gc.disable()
    try:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    finally:
        gc.enable()


def ratio(ours: Callable[[], object], floor: Callable[[], object], *, rounds: int = 9) -> float:
    """Return the median of `ours / floor` over rounds in which both ran back to back.

    Below 1, ours is faster.
    """
    ours()
    floor()
    return median(_pair(ours, floor, swap=n % 2 == 1) for n in range(rounds))


def _pair(ours: Callable[[], object], floor: Callable[[], object], *, swap: bool) -> float:
    if swap:
        below = seconds_of(floor)
        return seconds_of(ours) / below
    above = seconds_of(ours)
    return above / seconds_of(floor)
