"""Real threads, a shared object and an exact total, which lost updates would change."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

__all__ = ["SWITCH_INTERVALS", "attempts", "hammer", "switch_interval"]

SWITCH_INTERVALS = (0.005, 0.000001)
"""CPython's default, and one at which threads switch at nearly every opportunity."""


@contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    """Set the interpreter's thread switch interval during the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def hammer(work: Callable[[int], object], *, threads: int = 8, seconds_limit: float = 60.0) -> None:
    """Run `work(n)` once on each of `threads` threads, all released together; re-raise the first error."""
    barrier = threading.Barrier(threads)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(seconds_limit)
            work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(seconds_limit)
    assert not any(thread.is_alive() for thread in running), "hammer: a thread did not end (deadlock?)"
    if errors:
        raise errors[0]


def attempts(*, seconds_limit: float = 60.0) -> Iterator[int]:
    """Yield numbers until the time is over: a likely but uncertain race is tried until it happens.

    A busy machine rarely wakes the waiting threads, so a fixed number of attempts may meet no race.
    """
    give_up = time.monotonic() + seconds_limit
    for number in count():
        if time.monotonic() > give_up:
            return
        yield number
