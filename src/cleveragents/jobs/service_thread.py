"""A thread that repeats one step until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cleveragents.core.errors import Unavailable
from cleveragents.jobs.worker.log import worker_log

__all__ = ["ServiceThread", "start_daemon"]


def start_daemon(name: str, work: Callable[[], None]) -> None:
    """Run `work` on a thread that does not keep the interpreter from ending."""
    threading.Thread(target=work, name=name, daemon=True).start()


class ServiceThread:
    """Calls `step` repeatedly; after each call, waits for the seconds that `step` returned, or until woken.

    After an exception in a step, which is logged, the next step follows `pause_seconds` later, so that a busy
    database does not end a worker. For a series of `Unavailable` errors, only the beginning and the end are
    logged. Any thread may call `wake` and `stop`; the state is in two events.
    """

    def __init__(self, name: str, step: Callable[[], float], *, pause_seconds: float) -> None:
        self._step = step
        self._pause_seconds = pause_seconds
        self._away: type[Unavailable] | None = None
        self._wakeup = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def name(self) -> str:
        return self._thread.name

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wakeup.set()

    def stop(self) -> None:
        """Stop after the current step."""
        self._stopping.set()
        self._wakeup.set()

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; return whether the thread has ended (or never started)."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            # Cleared before the step, so that a wake during the step is not lost.
            self._wakeup.clear()
            if self._stopping.is_set():  # guard: after the clear, which may have swallowed the stop's wake
                return
            self._wakeup.wait(self._tried())

    def _tried(self) -> float:
        try:
            pause = self._step()
        except Unavailable as error:
            # Once, however long it lasts: two lines a second would flood the log.
            if type(error) is not self._away:
                said = str(error)
                worker_log().warning("worker.step_waits", service=self._thread.name, error=said)
            self._away = type(error)
            return self._pause_seconds
        except Exception:
            logger = worker_log()
            logger.exception("worker.step_failed", service=self._thread.name)
            return self._pause_seconds
        if self._away is not None:
            worker_log().warning("worker.step_goes_on", service=self._thread.name)
            self._away = None
        return pause
