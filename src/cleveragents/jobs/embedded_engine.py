"""Jobs on our own database: the engine that needs nothing but that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from cleveragents.core.cancellation import said_by_somebody
from cleveragents.core.clock import Clock
from cleveragents.core.errors import JobAlreadyEnded
from cleveragents.jobs.engine import WorkerRequest
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.worker.async_worker import AsyncWorker

__all__ = ["EmbeddedJobEngine"]


class EmbeddedJobEngine:
    """`JobEngine` over a job store; its workers are `AsyncWorker`s, made by `make_worker`.

    Thread safety:
        Owner: who made it; any thread may call any method. Who made the workers closes them.
        Lock: none; the list of workers is only appended to, and looked at as a copy, each in one step.
        Guarantee: what `submit` returned is kept, and some worker runs it in the end; each attempt has a
            fence of its own, and what an earlier one writes is refused.
    Cancel safety: an interrupted `drain` may be called again.
    """

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        make_worker: Callable[[WorkerRequest], AsyncWorker],
        *,
        queue_bound: int | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._make_worker = make_worker
        self._queue_bound = queue_bound
        self._workers: list[AsyncWorker] = []

    @property
    def name(self) -> str:
        return "embedded"

    @property
    def phases_apart(self) -> bool:
        return False

    def submit(self, new: NewJob) -> Job:
        bound = self._queue_bound if new.queue else None
        job = self._store.submit(new, now=self._clock.now(), queue_bound=bound)
        for worker in self._running():
            worker.wake()
        return job

    def get(self, job_id: str) -> Job:
        return self._store.get(job_id)

    def list(
        self, *, states: Collection[JobState] = (), limit: int = 100, after: str | None = None
    ) -> Sequence[Job]:
        return self._store.list(states=states, limit=limit, after=after)

    def cancel(self, job_id: str, reason: str) -> Job:
        job = self._store.request_cancel(job_id, said_by_somebody(reason), now=self._clock.now())
        for worker in self._running():
            # At once, and not only when the worker looks next.
            with suppress(JobAlreadyEnded):
                worker.cancel(job_id, reason)
        return job

    def run_worker(self, request: WorkerRequest) -> AsyncWorker:
        worker = self._make_worker(request)
        self._workers.append(worker)
        worker.start()
        return worker

    def drain(self, timeout: float) -> bool:
        deadline = self._clock.monotonic() + timeout
        workers = self._running()
        for worker in workers:
            worker.stop_claiming()  # none takes what another gives back
        left = [worker.drain(max(0.0, deadline - self._clock.monotonic())) for worker in workers]
        return all(left)

    def close(self) -> None:
        for worker in self._running():
            worker.close()

    def _running(self) -> Sequence[AsyncWorker]:
        return tuple(self._workers)
