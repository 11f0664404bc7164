"""Keeping a job: heartbeats, and letting go in time when they fail.

No wall clock takes part. The owner measures from the moment *before* it sent its last acknowledged
heartbeat; a peer measures from the moment *after* it first saw that heartbeat; both for a whole lease, each
on its own clock. So the owner's time is over before any peer's is. Beating waits for the store, watching
must not: two threads.
"""

from __future__ import annotations

from collections.abc import Callable

from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.faults import FaultPoints
from cleveragents.application.ports.jobs import JobStore
from cleveragents.application.services.attempt_table import AttemptTable
from cleveragents.application.services.job_attempt import Attempt
from cleveragents.application.services.job_outcome import StopCause
from cleveragents.application.services.worker_log import worker_log
from cleveragents.application.services.worker_options import WorkerOptions
from cleveragents.errors import StaleFence, Unavailable

__all__ = ["LeaseKeeper"]

_SHORTEST_LOOK_SECONDS = 0.01


class LeaseKeeper:
    """Beats for the attempts of a table, and watches their time.

    Thread-safe without a lock of its own: `beat` and `watch` run on a thread each, and what they share is in
    the attempts.
    """

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        table: AttemptTable,
        options: WorkerOptions,
        faults: FaultPoints,
    ) -> None:
        self._store = store
        self._clock = clock
        self._table = table
        self._options = options
        self._faults = faults

    def beat(self) -> None:
        """One round: a heartbeat where one is due, elsewhere a look whether a cancel was requested."""
        for attempt in self._table.running():
            stop = attempt.stopped
            if stop is not None and stop.cause is StopCause.LEASE_LOST:  # guard: what we let go stays let go
                continue
            if attempt.settled:  # guard: a report that never gets through must not keep the job for ever
                continue
            try:
                self._beat_for(attempt)
            except StaleFence as error:
                attempt.stop(StopCause.LEASE_LOST, str(error), self._clock.monotonic())
            except Unavailable as error:
                # Not an end: the lease decides how long we may go without an answer.
                worker_log(attempt.job).warning("job.heartbeat_failed", problem=str(error))
            except Exception:
                # No reason to let the others go unheard.
                logger = worker_log(attempt.job)
                logger.exception("job.heartbeat_failed")

    def watch(self, escalate: Callable[[Attempt], None]) -> float:
        """Stops attempts whose lease is over, escalates those that had their time; seconds to the next."""
        patience = self._options.cancel_grace_seconds / 2
        now = self._clock.monotonic()
        next_look = self._options.heartbeat_seconds
        for attempt in self._table.running():
            if attempt.settled:  # guard: its end is decided, there is nothing left to stop
                continue
            if attempt.lease_until <= now:
                attempt.stop(StopCause.LEASE_LOST, "no heartbeat was acknowledged for a lease", now)
            if attempt.escalate(now, patience):
                escalate(attempt)
            stop = attempt.stopped
            if stop is None:
                next_look = min(next_look, attempt.lease_until - now)
            elif stop.at + patience > now:
                next_look = min(next_look, stop.at + patience - now, max(attempt.lease_until - now, 0.0))
        return max(next_look, _SHORTEST_LOOK_SECONDS)

    def _beat_for(self, attempt: Attempt) -> None:
        job = attempt.job
        sent_at = self._clock.monotonic()
        if sent_at - attempt.renewed_at < self._options.heartbeat_seconds:
            reason = self._look_for_cancel(attempt)
        else:
            self._faults.reach("job.heartbeat.before")
            answer = self._store.heartbeat(job.id, job.fence, now=self._clock.now())
            self._faults.reach("job.heartbeat.after")
            attempt.renewed(sent_at)
            reason = answer.cancel_reason
        if reason is not None:
            attempt.stop(StopCause.CANCEL, reason, self._clock.monotonic())

    def _look_for_cancel(self, attempt: Attempt) -> str | None:
        job = self._store.get(attempt.job.id)
        return job.cancel_reason if job.fence == attempt.job.fence else None
