"""One attempt at a job, as the threads of its worker share it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cleveragents.jobs.model.job import Job
from cleveragents.jobs.process.ports import JobProcess
from cleveragents.jobs.worker.outcome import Stop, StopCause

if TYPE_CHECKING:
    from cleveragents.jobs.worker.async_worker import AsyncJob

__all__ = ["Attempt", "marker_of"]


def marker_of(job_id: str, fence: int) -> str:
    """The name that the processes of one attempt carry."""
    return f"{job_id}:{fence}"


class Attempt:
    """Who may stop it, who may end it, and until when it is ours.

    Thread safety:
        Owner: the worker that claimed the job; its threads share it.
        Lock: `_lock` guards stop, settlement and lease; held for assignments only.
        Guarantee: exactly one caller of `settle` gets to report how it ended, with the strongest stop that
            came before; a stop that comes after changes nothing and says so; the lease never goes back.
    Cancel safety: no call waits.
    """

    def __init__(self, job: Job, view: AsyncJob, *, claimed_at: float, lease_seconds: float) -> None:
        self.job = job
        self.view = view
        self.marker = marker_of(job.id, job.fence)
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._lease_seconds = lease_seconds
        self._renewed_at = claimed_at
        self._stop: Stop | None = None
        self._settled = False
        self._escalated = False
        self._process: JobProcess | None = None

    @property
    def renewed_at(self) -> float:
        """When the last heartbeat that the store acknowledged was sent."""
        return self._renewed_at

    @property
    def lease_until(self) -> float:
        """When the owner has to let go of the job, unless it is renewed."""
        return self._renewed_at + self._lease_seconds

    @property
    def stopped(self) -> Stop | None:
        return self._stop

    @property
    def settled(self) -> bool:
        """Whether somebody has taken it on to report how it ended."""
        return self._settled

    def renewed(self, sent_at: float) -> None:
        """The store acknowledged a heartbeat sent then."""
        with self._lock:
            self._renewed_at = max(self._renewed_at, sent_at)
            process = self._process
            until = self.lease_until
        if process is not None:
            process.renew(until)

    def stop(self, cause: StopCause, reason: str, now: float) -> bool:
        """Tells the handler to stop; True if that was news."""
        with self._lock:
            if self._settled:  # guard: how it ended is decided
                return False
            if self._stop is not None and self._stop.cause >= cause:  # guard: the stronger stays
                return False
            self._stop = Stop(cause, reason, now)
            process = self._process
        self.view.token.cancel(reason)
        if process is not None:
            process.cancel(reason)
        return True

    def attach(self, process: JobProcess) -> None:
        """From now on renewals and stops reach the process, too; those that came before do so now."""
        # Enter first, then look; a stop or renewal is noted first and then looks for a process. One of the
        # two finds the other, whichever is faster, so no lock is needed.
        self._process = process
        process.renew(self.lease_until)
        stop = self._stop
        if stop is not None:  # guard: it was stopped before there was a process to tell
            process.cancel(stop.reason)

    def detach(self) -> None:
        """The process is over."""
        self._process = None

    def settle(self) -> tuple[Stop | None] | None:
        """The stop (if any) under which it ended, for the one caller that may report it; else None."""
        with self._lock:
            if self._settled:  # guard: one end, one report
                return None
            self._settled = True
            return (self._stop,)

    def escalate(self, now: float, patience_seconds: float) -> bool:
        """True once, when it was told to stop and had its time; at once if the lease is lost."""
        with self._lock:
            if self._stop is None or self._escalated or self._settled:  # guard: once, and only while it runs
                return False
            urgent = self._stop.cause is StopCause.LEASE_LOST
            if not urgent and now < self._stop.at + patience_seconds:
                return False
            self._escalated = True
            return True

    def not_escalated(self) -> None:
        """What `escalate` allowed could not be begun; it will be allowed again."""
        # No lock: whoever was allowed it is the only one with a say in it.
        self._escalated = False
