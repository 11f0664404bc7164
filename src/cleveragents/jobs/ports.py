"""Where jobs are kept, claimed and ended.

Who works: for people to look at. No lease depends on it.

What runs a kind of job, and where.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from cleveragents.core.errors import ConfigurationError, UnknownJobKind
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, NewJob

if TYPE_CHECKING:
    from cleveragents.jobs.worker.async_worker import AsyncJob

__all__ = [
    "AttemptOutcome",
    "HandlerFunction",
    "Heartbeat",
    "JobClaim",
    "JobHandler",
    "JobHandoff",
    "JobStore",
    "WorkerRecord",
    "WorkerRegistry",
    "handler_for",
    "is_for",
]


HandlerFunction = Callable[["AsyncJob"], object]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an owner learns by reporting that it lives. One that was not `heard` kept no lease: somebody holds
    the job just now, and the owner reports again."""

    beat: int
    cancel_reason: str | None
    heard: bool = True


@dataclass(frozen=True, slots=True)
class JobClaim:
    """Who wants a job, and which: as for `JobStore.claim`."""

    worker: WorkerIdentity
    kinds: frozenset[str]
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobHandoff:
    """An attempt that ended, and the job that its worker goes on with, if there was one."""

    ended: Job
    following: Job | None


class JobStore(Protocol):
    """The job table. Every method is one atomic step, from any thread and any process.

    Each move is kept together with its event, in one transaction. What a method returned survives a
    kill -9. `now` is always the caller's wall clock: it orders the queue and is shown to people; no
    lease depends on it.
    """

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        """A queued job. A repeated `key` returns the first job; with other content, `DuplicateKey`. Lanes are
        not compared: their bounds follow the settings.

        `QueueFull` when its queue would hold more than `queue_bound` jobs that wait; never by one more,
        whoever submits beside it. What is tried again or goes on is let in without a bound.
        """
        ...

    def get(self, job_id: str) -> Job:
        """The job as it stands. `UnknownJob`."""
        ...

    def list(
        self, *, states: Collection[JobState] = (), limit: int = 100, after: str | None = None
    ) -> Sequence[Job]:
        """Jobs by id, oldest first, in any of the states (all, if none is named), after that id."""
        ...

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        """The most urgent queued job of these kinds whose `not_before` has come, now running and owned.

        It is one of the queue "", or of the queues that are named: there, a kind `name:id` counts as one of
        `name`, too. What is in another queue is not touched.

        Highest priority first, then oldest. Fence and attempt are raised by one, beat is 0. At most
        one caller ever gets a given fence. A job with a bound is passed over while `at_most` jobs of its
        kind run, whatever their own bounds are: it never makes one more. The same holds for each of its
        lanes. None: there is nothing to do.
        """
        ...

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        """Raises the beat of each of these jobs, given with their fences, by one. A job that is no longer its
        fence's stays as it is, and is not among the answers. Waits for nobody: one that somebody else is
        about to move stays as it is, too, and its answer says that it was not heard."""
        ...

    def cancels(self, held: Mapping[str, int]) -> Mapping[str, str]:
        """Of these jobs, given with their fences: the reasons of those of which a cancel was requested."""
        ...

    def finish(self, job_id: str, fence: int, outcome: AttemptOutcome, *, now: datetime) -> Job:
        """Ends the attempt. `StaleFence` when the job is no longer this fence's; then nothing changed.

        A QUEUED outcome puts the job back for another attempt, unless none is left (then it is
        failed) or a cancel was requested (then it is cancelled).
        """
        ...

    def finish_and_claim(
        self, job_id: str, fence: int, outcome: AttemptOutcome, claim: JobClaim, *, now: datetime
    ) -> JobHandoff:
        """`finish` and then `claim`, in one step: the place that the one leaves is free for the other.

        Where `finish` would raise, this does, and nothing is claimed. It may follow that there is no job
        though one could be claimed: whoever has room for it then asks by `claim`.
        """
        ...

    def request_cancel(self, job_id: str, reason: str, *, now: datetime) -> Job:
        """A queued job is cancelled at once; a running one is marked for its owner to see.

        The first reason stays, unless it was a mere stop and this one is not. `JobAlreadyEnded` when there
        is nothing left to cancel; a second request for a job still running changes nothing and returns it
        as it is.
        """
        ...

    def reclaim(self, job_id: str, fence: int, beat: int, *, error: str, now: datetime) -> Job:
        """Takes a running job from an owner found dead or silent, provided it still stands at exactly
        that fence and beat; otherwise `StaleFence`. Waits for nobody: `StoreBusy` while another moves it.

        It is queued again at once, or failed with `error` if no attempt is left, or cancelled if a
        cancel was requested. The old fence is worthless from then on.
        """
        ...


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker as it last said it is: working, draining or gone. `home` names its state directory.
    `isolation` is that of the commands it runs; None for workers of versions that did not report it."""

    id: str
    name: str
    host: str
    pid: int
    home: str
    engine: str
    queue: str
    concurrency: int
    running: int
    state: str
    started_at: datetime
    seen_at: datetime
    isolation: str | None = None


class WorkerRegistry(Protocol):
    """Workers of all machines. Every method is one atomic step."""

    def report(self, worker: WorkerRecord) -> None:
        """Keeps what the worker says of itself; the first and the last report of one are events."""
        ...

    def list(self) -> Sequence[WorkerRecord]:
        """The latest first; those that went long ago are forgotten."""
        ...


@dataclass(frozen=True, slots=True)
class JobHandler:
    """A function that runs jobs of one kind and returns a JSON value.

    `isolation="thread"` calls `run` on a thread of the worker: quick, but nothing can end it; it must watch
    its token. `isolation="process"` runs `target`, an import path `package.module:function`, in a process
    that is ended for real, with everything it started.
    What it raises is a failure and is tried again, except an `InvalidRequest`, which fails at once, and a
    `Cancelled` after its token was cancelled.
    """

    run: HandlerFunction | None = None
    target: str | None = None
    isolation: Literal["thread", "process"] = "thread"

    def __post_init__(self) -> None:
        if self.isolation == "thread" and self.run is None:
            raise ConfigurationError("job handler", "isolation 'thread' needs run=<function>")
        if self.isolation == "process" and ":" not in (self.target or ""):
            raise ConfigurationError("job handler", "isolation 'process' needs target='package.module:name'")


def handler_for(kind: str, handlers: Mapping[str, JobHandler]) -> JobHandler:
    """The handler of that kind; or of `name`, if that is `name:id`. `UnknownJobKind`."""
    handler = handlers.get(kind) or handlers.get(_name_of(kind))
    if handler is None:
        raise UnknownJobKind(kind, tuple(sorted(handlers)))
    return handler


def is_for(job: Job, handlers: Mapping[str, JobHandler], queues: Collection[str]) -> bool:
    """Whether a worker with these handlers claims it, if it takes from those shared queues."""
    if job.queue == "":
        return job.kind in handlers
    return job.queue in queues and (job.kind in handlers or _name_of(job.kind) in handlers)


def _name_of(kind: str) -> str:
    return kind.partition(":")[0]
