"""A job store without a database: passes the `JobStore` contract within one process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from cleveragents.core.errors import QueueFull, UnknownJob
from cleveragents.core.event import DomainEvent
from cleveragents.core.identifiers import IdentifierSource, WorkerIdentity
from cleveragents.jobs.model.job import (
    AttemptOutcome,
    Job,
    JobState,
    Move,
    NewJob,
    claimed,
    ensure_owned,
    ensure_same,
    finished,
    reclaimed,
    requested_cancel,
    submitted,
)
from cleveragents.jobs.ports import Heartbeat, JobClaim, JobHandoff

__all__ = ["InMemoryJobStore"]


class InMemoryJobStore:
    """Jobs in a dict. `events()` returns the events of all moves; `publish` gets each after its move.

    Thread safety:
        Owner: the test that made it; any thread may call any method.
        Lock: `_lock` makes a move one step, for arithmetic only; a read is one atomic look at the dict and
            needs none. `publish` is called outside it, so two threads' events may reach it in either order.
        Guarantee: moves are atomic; each fence of a job is assigned once; each move adds one event.
    Cancel safety: no call waits for anything but the lock.
    """

    def __init__(
        self, identifiers: IdentifierSource, publish: Callable[[DomainEvent], object] | None = None
    ) -> None:
        self._identifiers = identifiers
        self._publish = publish
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._events: list[DomainEvent] = []

    def events(self) -> Sequence[DomainEvent]:
        """Return the events of all moves so far, in order."""
        return tuple(self._events)

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        job_id = self._identifiers.new()
        move = submitted(new, job_id, now)
        with self._lock:
            first = self._of_key(new.key)
            if first is None:
                if queue_bound is not None and self._waiting_in(new.queue) >= queue_bound:
                    raise QueueFull(f"the queue {new.queue!r}", queue_bound)
                event = self._keep(move, now)
        if first is not None:
            ensure_same(first, new)
            return first
        return self._tell(move, event)

    def get(self, job_id: str) -> Job:
        return self._find(job_id)

    def list(
        self,
        *,
        states: Collection[JobState] = (),
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Job]:
        jobs = sorted(self._jobs.copy().values(), key=lambda job: job.id)
        wanted = (job for job in jobs if (not states or job.state in states) and kind in (None, job.kind))
        return [job for job in wanted if after is None or job.id > after][:limit]

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        with self._lock:
            move = self._next(JobClaim(worker, frozenset(kinds), tuple(queues)), now)
            if move is None:
                return None
            event = self._keep(move, now)
        return self._tell(move, event)

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        heard: dict[str, Heartbeat] = {}
        with self._lock:
            for job in self._held(held):
                self._jobs[job.id] = replace(job, beat=job.beat + 1, updated_at=now)
                heard[job.id] = Heartbeat(job.beat + 1, job.cancel_reason)
        return heard

    def cancels(self, held: Mapping[str, int]) -> Mapping[str, str]:
        with self._lock:
            return {job.id: job.cancel_reason for job in self._held(held) if job.cancel_reason is not None}

    def finish(self, job_id: str, fence: int, outcome: AttemptOutcome, *, now: datetime) -> Job:
        with self._lock:
            job = self._find(job_id)
            ensure_owned(job, fence)
            move = finished(job, outcome, now)
            event = self._keep(move, now)
        return self._tell(move, event)

    def finish_and_claim(
        self, job_id: str, fence: int, outcome: AttemptOutcome, claim: JobClaim, *, now: datetime
    ) -> JobHandoff:
        with self._lock:
            job = self._find(job_id)
            ensure_owned(job, fence)
            end = finished(job, outcome, now)
            told = [(end, self._keep(end, now))]
            following = self._next(claim, now)
            if following is not None:
                told.append((following, self._keep(following, now)))
        for move, event in told:
            self._tell(move, event)
        return JobHandoff(end.job, None if following is None else following.job)

    def request_cancel(self, job_id: str, reason: str, *, now: datetime) -> Job:
        with self._lock:
            job = self._find(job_id)
            move = requested_cancel(job, reason, now)
            if move is None:
                return job
            event = self._keep(move, now)
        return self._tell(move, event)

    def reclaim(self, job_id: str, fence: int, beat: int, *, error: str, now: datetime) -> Job:
        with self._lock:
            job = self._find(job_id)
            ensure_owned(job, fence, beat)
            move = reclaimed(job, error, now)
            event = self._keep(move, now)
        return self._tell(move, event)

    def _held(self, held: Mapping[str, int]) -> Sequence[Job]:
        """Return the running jobs that still have their fence in `held`."""
        found = [self._jobs[job_id] for job_id in held if job_id in self._jobs]
        return [job for job in found if job.state is JobState.RUNNING and job.fence == held[job.id]]

    def _next(self, claim: JobClaim, now: datetime) -> Move | None:
        # Jobs are in submission order, and max() returns the first of equals.
        at_work = [job for job in self._jobs.values() if job.state is JobState.RUNNING]
        running = Counter(job.kind for job in at_work)
        taken = Counter(lane.name for job in at_work for lane in job.lanes)
        ready = [
            job
            for job in self._jobs.values()
            if _is_ready(job, claim.kinds, claim.queues, now)
            and (job.at_most is None or running[job.kind] < job.at_most)
            and all(taken[lane.name] < lane.at_most for lane in job.lanes)
        ]
        return claimed(max(ready, key=lambda job: job.priority), claim.worker, now) if ready else None

    def _of_key(self, key: str | None) -> Job | None:
        return next((job for job in self._jobs.values() if key is not None and job.key == key), None)

    def _waiting_in(self, queue: str) -> int:
        return sum(job.state is JobState.QUEUED and job.queue == queue for job in self._jobs.values())

    def _find(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        return job

    def _keep(self, move: Move, now: datetime) -> DomainEvent:
        event = DomainEvent(move.event_type, move.job.id, self._identifiers.new(), now, move.facts)
        self._jobs[move.job.id] = move.job
        self._events.append(event)
        return event

    def _tell(self, move: Move, event: DomainEvent) -> Job:
        if self._publish is not None:
            self._publish(event)
        return move.job


def _is_ready(job: Job, kinds: Collection[str], queues: Collection[str], now: datetime) -> bool:
    if job.state is not JobState.QUEUED or job.not_before > now:
        return False
    if job.queue == "":
        return job.kind in kinds
    return job.queue in queues and (job.kind in kinds or job.kind.partition(":")[0] in kinds)
