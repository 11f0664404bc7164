"""A worker that others can see: what it says of itself, as long as it works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cleveragents.core.clock import Clock
from cleveragents.core.errors import CleverAgentsError
from cleveragents.jobs.ports import HandlerFunction, WorkerRecord, WorkerRegistry
from cleveragents.jobs.service_thread import ServiceThread
from cleveragents.jobs.worker.async_worker import AsyncJob

__all__ = ["BusyCount", "WorkerReports"]

_CLOSE_SECONDS = 10.0


class BusyCount:
    """How many handlers run.

    Thread safety:
        Owner: who made it; every thread that runs a job counts.
        Lock: `_lock` guards the numbers, for arithmetic only.
        Guarantee: every handler that began is counted once, and is not any more when it is over.
    Cancel safety: counting waits for nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._ended = 0

    @property
    def running(self) -> int:
        return self._running

    @property
    def ended(self) -> int:
        return self._ended

    def counted(self, run: HandlerFunction) -> HandlerFunction:
        """The same handler, counted."""

        def counting(job: AsyncJob) -> object:
            with self._lock:
                self._running += 1
            try:
                return run(job)
            finally:
                with self._lock:
                    self._running -= 1
                    self._ended += 1

        return counting


class WorkerReports:
    """Reports a worker again and again, from a thread of its own. Start it, and close it.

    What it says is for people: where it cannot be kept, the worker goes on all the same.
    Any thread may call any method; only the last report says that the worker is gone.
    """

    def __init__(
        self,
        registry: WorkerRegistry,
        clock: Clock,
        first: WorkerRecord,
        running: Callable[[], int],
        *,
        every_seconds: float,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._first = first
        self._running = running
        self._every_seconds = every_seconds
        self._state = first.state
        self._thread = ServiceThread(f"{first.name}-reports", self._step, pause_seconds=every_seconds)

    def start(self) -> None:
        """The first report is kept when this returns."""
        self._report()
        self._thread.start()

    def draining(self) -> None:
        """It takes no more jobs."""
        self._state = "draining"
        self._thread.wake()

    def close(self) -> None:
        """Says that the worker is gone. A second call changes nothing."""
        self._thread.stop()
        self._thread.join(_CLOSE_SECONDS)
        self._state = "gone"
        with suppress(CleverAgentsError):  # it is missed soon enough
            self._report()

    def _step(self) -> float:
        self._report()
        return self._every_seconds

    def _report(self) -> None:
        now = self._clock.now()
        self._registry.report(replace(self._first, running=self._running(), state=self._state, seen_at=now))
