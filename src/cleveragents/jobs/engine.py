"""The port of job engines: one machine with its database, or a distributed engine.

It is here and not among the ports, because it names handlers of jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleveragents.jobs.handlers import JobHandler
from cleveragents.jobs.model.job import Job, JobState, NewJob

__all__ = ["EngineWorker", "JobEngine", "WorkerRequest"]


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
