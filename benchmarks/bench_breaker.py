"""A permit of the circuit breaker (acquire and settle), compared with pybreaker's call, with
1 and 8 threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pybreaker

from benchmarks.ratio import ratio
from cleveragents.context.executor import CircuitBreaker

CALLS = 20_000
THREADS = 8


def _nothing() -> None:
    """The guarded function; its cost is included in both."""


def _under_permits(breaker: CircuitBreaker, calls: int) -> None:
    for _ in range(calls):
        permit = breaker.acquire("s")
        _nothing()
        permit.success()


def _under_pybreaker(breaker: pybreaker.CircuitBreaker, calls: int) -> None:
    for _ in range(calls):
        breaker.call(_nothing)


def _on_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(CALLS // THREADS,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class BreakerPermit:
    """Aim: at most 1."""

    unit = "ratio"

    def setup(self) -> None:
        self.ours = CircuitBreaker()
        self.floor = pybreaker.CircuitBreaker()

    def track_permit_1_thread_ratio(self) -> float:
        return ratio(lambda: _under_permits(self.ours, CALLS), lambda: _under_pybreaker(self.floor, CALLS))

    def track_permit_8_threads_ratio(self) -> float:
        return ratio(
            lambda: _on_threads(lambda calls: _under_permits(self.ours, calls)),
            lambda: _on_threads(lambda calls: _under_pybreaker(self.floor, calls)),
        )
