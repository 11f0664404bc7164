"""The job table with shared queues dispatched by Temporal.

The row in the table is the job's record and fence, as without Temporal. So code that reads a job, or writes
on behalf of one, need not know the engine. A submission is stored first and sent to Temporal second. If the
process is killed in between, or Temporal is unavailable, a worker finds the row later and sends it to
Temporal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from cleveragents.contrib.temporal.connection import TemporalConnection
from cleveragents.core.errors import EngineUnavailable
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, NewJob
from cleveragents.jobs.ports import Heartbeat, JobClaim, JobHandoff
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.jobs.worker.log import worker_log

__all__ = ["TemporalJobStore", "kept_queue"]

_OURS = "temporal/"


def kept_queue(queue: str) -> str:
    """Return the name of a Temporal queue in the table, from which no worker claims."""
    return f"{_OURS}{queue}"


class TemporalJobStore:
    """A `JobStore` that dispatches jobs of shared queues by Temporal. Stateless except for the table and the
    connection, so any thread may share it.
    """

    def __init__(
        self,
        table: SqlJobStore,
        temporal: TemporalConnection,
        phase_of: Callable[[Job], str],
        goal_of: Callable[[Job], str] = lambda job: "",
    ) -> None:
        self._goal_of = goal_of
        self.table = table
        self.phase_of = phase_of
        self._temporal = temporal

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        if not new.queue:
            return self.table.submit(new, now=now, queue_bound=queue_bound)
        kept = replace(new, queue=kept_queue(new.queue))
        job = _shown(self.table.submit(kept, now=now, queue_bound=queue_bound))
        if job.state is JobState.QUEUED:
            try:
                self.tell(job)
            except EngineUnavailable as error:
                # It is stored: a worker sends it to Temporal as soon as that answers.
                worker_log(job).warning("job.start_failed", problem=str(error))
        return job

    def tell(self, job: Job) -> None:
        """Start a workflow for the job, unless one is running. Raises `EngineUnavailable`."""
        job = _shown(job)
        if self._temporal.start(job, self.phase_of(job), self._goal_of(job)):
            worker_log(job).warning(
                "temporal.workflow_moved", why="an older version of cleveragents had started the workflow"
            )

    def get(self, job_id: str) -> Job:
        return _shown(self.table.get(job_id))

    def list(
        self,
        *,
        states: Collection[JobState] = (),
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Job]:
        found = self.table.list(states=states, kind=kind, limit=limit, after=after)
        return [_shown(job) for job in found]

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        return self.table.claim(worker, kinds, now=now, queues=queues)

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        return self.table.heartbeats(held, now=now)

    def cancels(self, held: Mapping[str, int]) -> Mapping[str, str]:
        return self.table.cancels(held)

    def finish(self, job_id: str, fence: int, outcome: AttemptOutcome, *, now: datetime) -> Job:
        return _shown(self.table.finish(job_id, fence, outcome, now=now))

    def finish_and_claim(
        self, job_id: str, fence: int, outcome: AttemptOutcome, claim: JobClaim, *, now: datetime
    ) -> JobHandoff:
        turn = self.table.finish_and_claim(job_id, fence, outcome, claim, now=now)
        return structs.replace(turn, ended=_shown(turn.ended))

    def request_cancel(self, job_id: str, reason: str, *, now: datetime) -> Job:
        job = self.table.request_cancel(job_id, reason, now=now)
        if job.queue.startswith(_OURS):
            # The owner also sees it in the row, at its next heartbeat.
            with suppress(EngineUnavailable):
                self._temporal.cancel(job)
        return _shown(job)

    def reclaim(self, job_id: str, fence: int, beat: int, *, error: str, now: datetime) -> Job:
        return _shown(self.table.reclaim(job_id, fence, beat, error=error, now=now))


def _shown(job: Job) -> Job:
    """Return the job with the queue name that it was submitted with."""
    return structs.replace(job, queue=job.queue.removeprefix(_OURS))
