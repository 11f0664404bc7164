"""`JobEngine` on Temporal: our table stores jobs and their fences, Temporal dispatches them to workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cleveragents.contrib.temporal.connection import TemporalConnection
from cleveragents.contrib.temporal.store import TemporalJobStore
from cleveragents.contrib.temporal.worker import TemporalWorker
from cleveragents.core.cancellation import user_reason
from cleveragents.core.clock import Clock
from cleveragents.jobs.engine import WorkerRequest
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.jobs.worker.async_worker import AsyncWorker

__all__ = ["TemporalJobEngine"]


class TemporalJobEngine:
    """Jobs of shared queues go through Temporal; jobs without a queue stay in the submitting process.

    `on_cancelled` is called for cancelled jobs, possibly more than once, after the cancel is stored.
    """

    name = "temporal"
    phases_apart = True

    def __init__(
        self,
        store: TemporalJobStore,
        temporal: TemporalConnection,
        clock: Clock,
        worker_of: Callable[[WorkerRequest], AsyncWorker],
        *,
        queue_bound: int | None = None,
        on_cancelled: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self._store = store
        self._temporal = temporal
        self._clock = clock
        self._worker_of = worker_of
        self._queue_bound = queue_bound
        self._on_cancelled = on_cancelled
        self._workers: list[TemporalWorker] = []

    def submit(self, new: NewJob) -> Job:
        bound = self._queue_bound if new.queue else None
        return self._store.submit(new, now=self._clock.now(), queue_bound=bound)

    def get(self, job_id: str) -> Job:
        return self._store.get(job_id)

    def list(
        self, *, states: Collection[JobState] = (), limit: int = 100, after: str | None = None
    ) -> Sequence[Job]:
        return self._store.list(states=states, limit=limit, after=after)

    def cancel(self, job_id: str, reason: str) -> Job:
        return self._store.request_cancel(job_id, user_reason(reason), now=self._clock.now())

    def run_worker(self, request: WorkerRequest) -> TemporalWorker:
        worker = TemporalWorker(
            self._worker_of(request),
            self._store,
            self._temporal,
            self._clock,
            queues=request.queues,
            concurrency=request.concurrency,
            on_cancelled=self._on_cancelled,
        )
        worker.start()
        self._workers.append(worker)
        return worker

    def drain(self, timeout: float) -> bool:
        deadline = self._clock.monotonic() + timeout
        for worker in self._workers:
            worker.stop_claiming()  # no worker takes a job that another gives back
        ended = [worker.drain(max(0.0, deadline - self._clock.monotonic())) for worker in self._workers]
        return all(ended)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
