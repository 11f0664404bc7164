"""Job engines: the port, and the embedded engine, which only needs the database.

The port is in this module and not in `ports`, because it refers to job handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from cleveragents.core.cancellation import user_reason
from cleveragents.core.clock import Clock
from cleveragents.core.errors import JobAlreadyEnded
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.jobs.ports import JobHandler, JobStore
from cleveragents.jobs.worker.async_worker import AsyncWorker

__all__ = ["EmbeddedJobEngine", "EngineWorker", "JobEngine", "WorkerRequest"]


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The kinds and queues of jobs that a worker runs.

    The worker runs jobs of any kind from `queues`, and private jobs of the kinds that have a handler. The
    handler of `name` also runs jobs of the kind `name:id`.
    """

    handlers: Mapping[str, JobHandler]
    name: str = "worker"
    queues: tuple[str, ...] = ()
    concurrency: int = 4


class EngineWorker(Protocol):
    """A running worker, until it is drained or closed."""

    def drain(self, timeout: float) -> bool:
        """Claim no more jobs and wait for the running jobs; return whether all ended within the timeout.

        After the timeout, the remaining jobs are stopped and given back, for another worker to continue.
        """
        ...

    def close(self) -> None:
        """Drain without waiting. A second call changes nothing."""
        ...


class JobEngine(Protocol):
    """Submits and runs jobs on one machine or many. Safe in any thread and process.

    A job runs under a fence, a number that increases with each owner: writes of an earlier owner are refused,
    however the engine identifies its workers. A job that `submit` returned survives a kill -9 of all
    processes, and some worker will run it. `list` may return outdated jobs; `get` does not.
    """

    @property
    def name(self) -> str:
        """The name of the engine in the settings."""
        ...

    @property
    def phases_apart(self) -> bool:
        """Whether the engine schedules each phase of a plan as a separate run of its job."""
        ...

    def submit(self, new: NewJob) -> Job:
        """Submit a job. A repeated `key` returns the first job.

        Raises `DuplicateKey` if the content of a repeated key differs, `QueueFull` at the limit of queued
        jobs, and `EngineUnavailable`.
        """
        ...

    def get(self, job_id: str) -> Job:
        """Return a job. Raises `UnknownJob`."""
        ...

    def list(
        self, *, states: Collection[JobState] = (), limit: int = 100, after: str | None = None
    ) -> Sequence[Job]:
        """Return up to `limit` jobs with ids above `after`, oldest first, in any of `states` (empty: all)."""
        ...

    def cancel(self, job_id: str, reason: str) -> Job:
        """Cancel a queued job immediately; signal a running job. Raises `JobAlreadyEnded` or `UnknownJob`."""
        ...

    def run_worker(self, request: WorkerRequest) -> EngineWorker:
        """Start a worker in this process; the caller drains or closes it."""
        ...

    def drain(self, timeout: float) -> bool:
        """Drain all workers that this engine runs in this process."""
        ...

    def close(self) -> None:
        """Close all workers. A second call changes nothing."""
        ...


class EmbeddedJobEngine:
    """`JobEngine` over a job store; its workers are `AsyncWorker`s, made by `make_worker`.

    Thread safety:
        Owner: the code that made it; any thread may call any method. The creator of a worker closes it.
        Lock: none; the list of workers is only appended to, and read as a copy, each in one step.
        Guarantee: a job that `submit` returned is kept, and some worker will run it; each attempt has a
            fence of its own, and writes of an earlier one are refused.
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
        job = self._store.request_cancel(job_id, user_reason(reason), now=self._clock.now())
        for worker in self._running():
            # Immediately, instead of at the worker's next poll.
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
            worker.stop_claiming()  # no worker claims a job that another gives back
        left = [worker.drain(max(0.0, deadline - self._clock.monotonic())) for worker in workers]
        return all(left)

    def close(self) -> None:
        for worker in self._running():
            worker.close()

    def _running(self) -> Sequence[AsyncWorker]:
        return tuple(self._workers)
