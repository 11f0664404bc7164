"""Real threads, a shared object, an exact total: what lost updates cannot survive."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

__all__ = ["SWITCH_INTERVALS", "attempts", "hammer", "switch_interval"]

SWITCH_INTERVALS = (0.005, 0.000001)
"""CPython's default, and one at which threads change at nearly every opportunity."""


@contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    """The interpreter switches threads at this interval while the block runs."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def hammer(work: Callable[[int], object], *, threads: int = 8, seconds_limit: float = 60.0) -> None:
    """Runs `work(n)` once on each of `threads` threads, all released at once; re-raises the first error."""
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
    """Numbers until the time is over: what is likely, not certain, is tried until it happens.

    A busy machine seldom wakes the waiting threads, and then a fixed number of attempts meets no race.
    """
    give_up = time.monotonic() + seconds_limit
    for number in count():
        if time.monotonic() > give_up:
            return
        yield number
