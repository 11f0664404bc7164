"""Naive workers: each has a race that the worker's tests must catch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cleveragents.jobs.model.job import Job, JobState, finished, reclaimed
from cleveragents.jobs.worker.attempt import Attempt, AttemptTable, Stop, StopCause
from cleveragents.jobs.worker.lease import JobRecovery
from cleveragents.testing.job_store import InMemoryJobStore

__all__ = ["LockOnlyAttempt", "SlotGivenAwayTable", "UncountedTable", "UnfencedStore", "WallClockRecovery"]


class UnfencedStore(InMemoryJobStore):
    """Locks every step but checks no fence: the last writer wins."""

    def finish(self, job_id: str, fence: int, outcome: Any, *, now: Any) -> Job:
        with self._lock:
            move = finished(self._find(job_id), outcome, now)
            event = self._keep(move, now)
        return self._tell(move, event)

    def reclaim(self, job_id: str, fence: int, beat: int, *, error: str, now: Any) -> Job:
        with self._lock:
            move = reclaimed(self._find(job_id), error, now)
            event = self._keep(move, now)
        return self._tell(move, event)


class WallClockRecovery(JobRecovery):
    """Takes a job whose `updated_at` is a lease ago, by the wall clock."""

    def sweep(self) -> int:
        reclaimed = 0
        for job in self._store.list(states=(JobState.RUNNING,)):
            if self._clock.now() - job.updated_at >= timedelta(seconds=self._lease_seconds):
                reclaimed += self._reclaim(job, "its time is over", owner_is_dead=False)
        return reclaimed


class LockOnlyAttempt(Attempt):
    """Locks every step but not the decision: a stop is checked before the end, and both may happen."""

    def settle(self) -> tuple[Stop | None] | None:
        with self._lock:
            settled = self._settled
        if settled:
            return None
        with self._lock:
            self._settled = True
            return (self._stop,)

    def stop(self, cause: StopCause, reason: str, now: float) -> bool:
        with self._lock:
            settled = self._settled
        if settled:
            return False
        with self._lock:
            self._stop = Stop(cause, reason, now)
        self.view.token.cancel(reason)
        return True


class UncountedTable(AttemptTable):
    """Checks for room, claims, and counts afterwards."""

    def reserve(self) -> bool:
        with self._changed:
            return self._accepting and len(self._attempts) < self._options.concurrency

    def release(self) -> None:
        return

    def admit(self, attempt: Attempt) -> bool:
        with self._changed:
            self._attempts.add(attempt)
            return not self._abandoning


class SlotGivenAwayTable(AttemptTable):
    """Frees the slot of an attempt, and takes one for the next."""

    def follow(self, ended: Attempt, attempt: Attempt) -> bool:
        self.leave(ended)
        with self._changed:
            self._attempts.add(attempt)
            return not self._abandoning
