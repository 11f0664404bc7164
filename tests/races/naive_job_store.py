"""Naive job stores: find a job, then take it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec.structs import replace as changed
from sqlalchemy import insert, select, update

from cleveragents.core.identifiers import WorkerIdentity
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
from cleveragents.jobs.ports import Heartbeat
from cleveragents.jobs.store.rows import job_of, row_of
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database
from cleveragents.storage.tables import jobs
from cleveragents.testing.clock import CountingIdentifiers

__all__ = [
    "CountInEachProcessJobStore",
    "CountLanesThenClaimJobStore",
    "CountThenClaimJobStore",
    "LockedStepsJobStore",
    "NaiveJobStore",
    "SelectThenUpdateJobStore",
]


class NaiveJobStore:
    """Every move reads the job, decides, and writes it back; nothing locks it in between."""

    def __init__(self) -> None:
        self._identifiers = CountingIdentifiers("id")
        self._kept: dict[str, Job] = {}
        self._moves: list[object] = []

    def _step(self) -> AbstractContextManager[object]:
        return nullcontext()

    def events(self) -> list[object]:
        return list(self._moves)

    def get(self, job_id: str) -> Job:
        with self._step():
            return self._kept[job_id]

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        with self._step():
            first = next((job for job in list(self._kept.values()) if new.key and job.key == new.key), None)
        if first is not None:
            ensure_same(first, new)
            return first
        return self._keep(submitted(new, self._identifiers.new(), now))

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        with self._step():
            ready = [job for job in list(self._kept.values()) if job.state is JobState.QUEUED]
        return self._keep(claimed(ready[0], worker, now)) if ready else None

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        heard = {}
        for job_id, fence in held.items():
            job = self.get(job_id)
            if job.state is JobState.RUNNING and job.fence == fence:
                with self._step():
                    self._kept[job_id] = changed(job, beat=job.beat + 1)
                heard[job_id] = Heartbeat(job.beat + 1, job.cancel_reason)
        return heard

    def finish(self, job_id: str, fence: int, outcome: AttemptOutcome, *, now: datetime) -> Job:
        job = self.get(job_id)
        ensure_owned(job, fence)
        return self._keep(finished(job, outcome, now))

    def request_cancel(self, job_id: str, reason: str, *, now: datetime) -> Job:
        job = self.get(job_id)
        move = requested_cancel(job, reason, now)
        return job if move is None else self._keep(move)

    def reclaim(self, job_id: str, fence: int, beat: int, *, error: str, now: datetime) -> Job:
        job = self.get(job_id)
        ensure_owned(job, fence, beat)
        return self._keep(reclaimed(job, error, now))

    def _keep(self, move: Move) -> Job:
        with self._step():
            self._kept[move.job.id] = move.job
            self._moves.append(move.event_type)
        return move.job


class LockedStepsJobStore(NaiveJobStore):
    """The lock-only fix: every access to the dict is locked, but not the decision between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self._steps_lock = threading.Lock()

    def _step(self) -> AbstractContextManager[object]:
        return self._steps_lock


class SelectThenUpdateJobStore:
    """The same on a database: a SELECT, a decision, and an UPDATE that trusts it."""

    def __init__(self, database: Database, between: Callable[[], Any]) -> None:
        self._database = database
        self._identifiers = CountingIdentifiers("id")
        self._between = between

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        job = submitted(new, self._identifiers.new(), now).job
        self._database.write(lambda connection: connection.execute(insert(jobs), row_of(job)))
        return job

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        with self._database.read() as connection:
            row = connection.execute(select(jobs).where(jobs.c.state == "queued").limit(1)).mappings().first()
        self._between()
        if row is None:
            return None
        job = claimed(job_of(row), worker, now).job
        statement = update(jobs).where(jobs.c.id == job.id).values(row_of(job))
        self._database.write(lambda connection: connection.execute(statement))
        return job


class CountThenClaimJobStore(SqlJobStore):
    """Counts running jobs and then claims, like code that limits jobs outside of the store."""

    bound = 1

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        return super().submit(replace(new, at_most=None), now=now)

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        running = [job for job in self.list(states=[JobState.RUNNING]) if job.kind in kinds]
        if len(running) >= self.bound:
            return None
        return super().claim(worker, kinds, now=now)


class CountLanesThenClaimJobStore(SqlJobStore):
    """The same for lanes: counts first, in a separate transaction."""

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        return super().submit(replace(new, lanes=()), now=now)

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        if self._running() >= 1:
            return None
        return super().claim(worker, kinds, now=now, queues=queues)

    def _running(self) -> int:
        return len(self.list(states=[JobState.RUNNING]))


class CountInEachProcessJobStore(CountLanesThenClaimJobStore):
    """Counts exactly, under a lock, but only the claims of its own process."""

    def __init__(self, database: Database, identifiers: CountingIdentifiers) -> None:
        super().__init__(database, identifiers)
        self._claim_lock = threading.Lock()
        self._mine = 0

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        with self._claim_lock:
            if self._mine >= 1:
                return None
            job = SqlJobStore.claim(self, worker, kinds, now=now, queues=queues)
            self._mine += job is not None
            return job
