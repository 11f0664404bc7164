"""The port of job engines: one machine with its database, or a distributed engine.

It is here and not among the ports, because it names handlers of jobs.

Jobs on our own database: the engine that needs nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from cleveragents.core.cancellation import said_by_somebody
from cleveragents.core.clock import Clock
from cleveragents.core.errors import JobAlreadyEnded
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.jobs.ports import JobHandler, JobStore
from cleveragents.jobs.worker.async_worker import AsyncWorker

__all__ = ["EmbeddedJobEngine", "EngineWorker", "JobEngine", "WorkerRequest"]


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """A worker to be run: it takes jobs of `queues`, whatever their kind, and those of the kinds that have a
    handler of their own. A kind `name:id` is run by the handler of `name`."""

    handlers: Mapping[str, JobHandler]
    name: str = "worker"
    queues: tuple[str, ...] = ()
    concurrency: int = 4


class EngineWorker(Protocol):
    """A worker that runs, until it is drained or closed."""

    def drain(self, timeout: float) -> bool:
        """Takes no more jobs and lets running ones end; True if all did. Past the time, the rest are told to
        stop and are given back, for another worker to go on with."""
        ...

    def close(self) -> None:
        """Drains without waiting. A second call changes nothing."""
        ...


class JobEngine(Protocol):
    """Jobs, wherever they run. From any thread and any process.

    A job runs under a fence: whoever was given it later has a higher one, and what the earlier one writes is
    refused, however the engine tells its workers apart. What `submit` returned survives a kill -9 of
    everybody, and is run by some worker in the end. `list` may lag behind; `get` does not.
    """

    @property
    def name(self) -> str:
        """As the settings call it."""
        ...

    @property
    def phases_apart(self) -> bool:
        """Whether it wants a job back at the end of each phase of its plan, and hands out the next one."""
        ...

    def submit(self, new: NewJob) -> Job:
        """A queued job. A repeated `key` returns the first job; with other content, `DuplicateKey`.
        `QueueFull` when as many as the settings allow are queued; `EngineUnavailable`."""
        ...

    def get(self, job_id: str) -> Job:
        """`UnknownJob`."""
        ...

    def list(
        self, *, states: Collection[JobState] = (), limit: int = 100, after: str | None = None
    ) -> Sequence[Job]:
        """Jobs by id, oldest first, in any of the states (all, if none is named), after that id."""
        ...

    def cancel(self, job_id: str, reason: str) -> Job:
        """A queued job is cancelled at once; of a running one, the code that runs is told.
        `JobAlreadyEnded`, `UnknownJob`."""
        ...

    def run_worker(self, request: WorkerRequest) -> EngineWorker:
        """Starts a worker in this process; whoever asks for it drains or closes it."""
        ...

    def drain(self, timeout: float) -> bool:
        """Drains all workers that this engine runs in this process."""
        ...

    def close(self) -> None:
        """Closes them. A second call changes nothing."""
        ...


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
