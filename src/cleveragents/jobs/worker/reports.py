"""Reports of a running worker, for display."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from cleveragents.core.clock import Clock
from cleveragents.core.errors import CleverAgentsError
from cleveragents.jobs.ports import HandlerFunction, WorkerRecord, WorkerRegistry
from cleveragents.jobs.service_thread import ServiceThread
from cleveragents.jobs.worker.async_worker import AsyncJob

__all__ = ["BusyCount", "WorkerReports"]

_CLOSE_SECONDS = 10.0


class BusyCount:
    """The number of running handlers.

    Thread safety:
        Owner: the code that made it; every thread that runs a job counts.
        Lock: `_lock` guards the numbers, for arithmetic only.
        Guarantee: every handler is counted exactly while it runs.
    Cancel safety: counting never waits.
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
        """Return the handler wrapped so that its calls are counted."""

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
    """Reports a worker periodically, from its own thread. Start it, and close it.

    The reports are for display: if one cannot be stored, the worker continues. Any thread may call any
    method; only the last report marks the worker as gone.
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
        """Store the first report, then start the thread that repeats it."""
        self._report()
        self._thread.start()

    def draining(self) -> None:
        """Report that the worker claims no more jobs."""
        self._state = "draining"
        self._thread.wake()

    def close(self) -> None:
        """Report that the worker is gone. A second call changes nothing."""
        self._thread.stop()
        self._thread.join(_CLOSE_SECONDS)
        self._state = "gone"
        with suppress(CleverAgentsError):  # its absence is noticed soon enough
            self._report()

    def _step(self) -> float:
        self._report()
        return self._every_seconds

    def _report(self) -> None:
        now = self._clock.now()
        self._registry.report(replace(self._first, running=self._running(), state=self._state, seen_at=now))
