"""Ports of the job store and the worker registry, and the handlers of jobs.

The registry is for display only: no lease depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

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


class Heartbeat(Struct, frozen=True):
    """The answer to a heartbeat.

    If `heard` is False, the lease was not renewed, because another transaction holds the job; the owner sends
    the heartbeat again.
    """

    beat: int
    cancel_reason: str | None
    heard: bool = True


class JobClaim(Struct, frozen=True):
    """A request to claim a job: the worker, and the kinds and queues it accepts. See `JobStore.claim`."""

    worker: WorkerIdentity
    kinds: frozenset[str]
    queues: tuple[str, ...] = ()


class JobHandoff(Struct, frozen=True):
    """An ended attempt, and the next job that its worker claimed, if any."""

    ended: Job
    following: Job | None


class JobStore(Protocol):
    """The job table. Every method is one atomic step, from any thread and any process.

    Each move is stored together with its event, in one transaction. A returned result survives a kill -9.
    `now` is always the caller's wall clock. It orders the queue and is displayed; no lease depends on it.
    """

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        """Submit a job. A repeated `key` returns the first job.

        Raises `DuplicateKey` if the content of a repeated key differs. Shared limits are not compared, since
        they follow the settings. Raises `QueueFull` if its queue would hold more than `queue_bound` waiting
        jobs, even with concurrent submissions. Retried or continued jobs are exempt from the limit.
        """
        ...

    def get(self, job_id: str) -> Job:
        """Return the job. Raises `UnknownJob`."""
        ...

    def list(
        self,
        *,
        states: Collection[JobState] = (),
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Job]:
        """Return up to `limit` jobs with ids above `after`, oldest first, in any of `states` (empty: all), of
        this kind (None: any).
        """
        ...

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        """Claim the most urgent queued job of these kinds whose `not_before` has passed, or return None.

        The job is from the queue "" or from one of `queues`; in `queues`, a job of the kind `name:id` also
        matches `name`. Other queues are not touched.

        The most urgent job has the highest priority; of several, it is the oldest. Fence and attempt are
        increased by one, beat is 0. At most one caller ever gets a given fence. A job with a limit is skipped
        while `at_most` jobs of its kind run, whatever their own limits are; the same holds for each of its
        shared limits.
        """
        ...

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        """Increase the beat of each of these jobs by one. `held` maps job ids to fences.

        Jobs that no longer have their fence are unchanged and missing in the result. Never waits: a job that
        another transaction is moving is unchanged, too, and its `Heartbeat` has `heard` False.
        """
        ...

    def cancels(self, held: Mapping[str, int]) -> Mapping[str, str]:
        """Return the cancel reason of each of these jobs that has one. `held` maps job ids to fences."""
        ...

    def finish(self, job_id: str, fence: int, outcome: AttemptOutcome, *, now: datetime) -> Job:
        """End the attempt. Raises `StaleFence`, without any change, if the job no longer has this fence.

        A QUEUED outcome queues the job for another attempt, unless none is left (then it is failed) or a
        cancel was requested (then it is cancelled).
        """
        ...

    def finish_and_claim(
        self, job_id: str, fence: int, outcome: AttemptOutcome, claim: JobClaim, *, now: datetime
    ) -> JobHandoff:
        """Finish an attempt and claim the next job in one step, so that the claim can use the freed place.

        Raises the errors of `finish`, without a claim. May return no job although a job could be claimed; the
        caller then uses `claim`.
        """
        ...

    def request_cancel(self, job_id: str, reason: str, *, now: datetime) -> Job:
        """Cancel a queued job immediately; mark a running job for its owner.

        The first reason is kept, with one exception: a cancel replaces the reason of an earlier stop that
        allows a resume. Any other repeated request for a running job changes nothing and returns the job.
        Raises `JobAlreadyEnded` if there is nothing left to cancel.
        """
        ...

    def reclaim(self, job_id: str, fence: int, beat: int, *, error: str, now: datetime) -> Job:
        """Take a running job from a dead or silent owner if it still has exactly this fence and beat.

        Raises `StaleFence` otherwise. Never waits: raises `StoreBusy` while another transaction moves the
        job. The job is queued again, or failed with `error` if no attempt is left, or cancelled if a cancel
        was requested. The old fence is invalid from then on.
        """
        ...


class WorkerRecord(Struct, frozen=True):
    """The last report of a worker: working, draining or gone.

    `home` names its state directory. `isolation` is the isolation of the commands it runs; None for workers
    of versions that did not report it.
    """

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
    """The workers of all machines. Every method is one atomic step."""

    def report(self, worker: WorkerRecord) -> None:
        """Store the report of a worker; its first and last reports are events."""
        ...

    def list(self) -> Sequence[WorkerRecord]:
        """Return workers, latest first; those gone for long are omitted."""
        ...


@dataclass(frozen=True, slots=True)
class JobHandler:
    """A function that runs jobs of one kind and returns a JSON value.

    `isolation="thread"` calls `run` on a thread of the worker: fast, but it cannot be killed and must watch
    its token. `isolation="process"` runs `target`, an import path `package.module:function`, in a process
    that can be killed with everything it started. An exception is a failure and is retried, except an
    `InvalidRequest`, which fails the job immediately, and a `Cancelled` after its token was cancelled.
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
    """Return the handler of a kind, where `name:id` uses the handler of `name`. Raises `UnknownJobKind`."""
    handler = handlers.get(kind) or handlers.get(_name_of(kind))
    if handler is None:
        raise UnknownJobKind(kind, tuple(sorted(handlers)))
    return handler


def is_for(job: Job, handlers: Mapping[str, JobHandler], queues: Collection[str]) -> bool:
    """Return whether a worker with these handlers and shared queues claims the job."""
    if job.queue == "":
        return job.kind in handlers
    return job.queue in queues and (job.kind in handlers or _name_of(job.kind) in handlers)


def _name_of(kind: str) -> str:
    return kind.partition(":")[0]
