"""Jobs as a state machine: pieces of work, each for one worker at a time.

    queued ──claim──▶ running ──▶ succeeded | failed | cancelled
       ▲                 │
       └─ retry, reclaim ┘         queued ──cancel──▶ cancelled

The *fence* counts claims. The holder of the newest fence owns the job; a write under an older fence is
refused. The *beat* counts heartbeats under that fence, so that a peer can detect a silent owner without
comparing the clocks of two machines.

A *move* is a change of state. Each function for a move returns the new job and one event. These functions are
pure and shared by all stores, so that all stores move jobs in the same way; a store adds only atomicity. An
event contains small facts, never the payload or result of a job, which may hold private data. Secrets in
foreign texts (an error, the reason of a cancel) are masked by these functions, before a row or an event
stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.core.cancellation import is_resumable_stop
from cleveragents.core.errors import DuplicateKey, IllegalJobMove, InvalidPayload, JobAlreadyEnded, StaleFence
from cleveragents.core.event import EventType
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze, freeze_object
from cleveragents.core.text.redaction import redact_text

__all__ = [
    "HANDED_ON",
    "AttemptOutcome",
    "HandedOn",
    "Job",
    "JobState",
    "Lane",
    "Move",
    "NewJob",
    "claimed",
    "ensure_job_move",
    "ensure_owned",
    "ensure_same",
    "finished",
    "marker_of",
    "reclaimed",
    "requested_cancel",
    "submitted",
]


_INTEGER_BOUND = 2**31


class JobState(str, Enum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


_MOVES: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.QUEUED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


def ensure_job_move(job_id: str, state: JobState, wanted: JobState) -> None:
    """Raise `IllegalJobMove` unless a job may go from `state` to `wanted`."""
    if wanted not in _MOVES[state]:
        raise IllegalJobMove(job_id, state.value, wanted.value)


class Lane(Struct, frozen=True, order=True):
    """A concurrency limit for a named group of jobs, such as the jobs of a project or a model provider.

    A job does not start while `at_most` other jobs of the group run, even if those jobs have another
    `at_most`.
    """

    name: str
    at_most: int

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise ValueError("at_most must be at least 1")


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to submit. A `key` makes the submission idempotent.

    The job does not start while `at_most` jobs of its kind run, in any process (None: no limit), or while one
    of the shared limits in `lanes` is reached. A job in the queue "" is private: for workers that have a
    handler for its kind. A job in another queue is for every worker of that queue.
    """

    kind: str
    payload: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    priority: int = 0
    max_attempts: int = 3
    key: str | None = None
    at_most: int | None = None
    queue: str = ""
    lanes: tuple[Lane, ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts must be at least 1")
        if self.at_most is not None and self.at_most < 1:
            raise ValueError("at_most must be at least 1")
        if len({lane.name for lane in self.lanes}) < len(self.lanes):
            raise ValueError("a job must not name a shared limit twice")
        object.__setattr__(self, "lanes", tuple(sorted(self.lanes)))
        if not isinstance(self.payload, FrozenObject):
            where = f"payload of a {self.kind} job"
            object.__setattr__(self, "payload", freeze_object(self.payload, where=where))


class AttemptOutcome(Struct, frozen=True):
    """The outcome of an attempt.

    State QUEUED requests another attempt, at `retry_at` or later. With `handed_on`, nothing failed: any
    worker may continue, at `retry_at` or later, and the attempt is not counted.
    """

    state: JobState
    result: JsonValue = None
    error: str | None = None
    retry_at: datetime | None = None
    handed_on: bool = False


class HandedOn(Struct, frozen=True):
    """The return value of a handler that completed and recorded a part of its job. Any worker may continue,
    at `until` or later.

    Not for handlers in a separate process.
    """

    until: datetime | None = None


HANDED_ON = HandedOn()


class Job(Struct, frozen=True):
    """A stored job; a snapshot, never updated in place."""

    id: str
    kind: str
    payload: Mapping[str, JsonValue]
    state: JobState
    priority: int
    attempt: int
    max_attempts: int
    fence: int
    beat: int
    created_at: datetime
    updated_at: datetime
    not_before: datetime
    owner: WorkerIdentity | None = None
    cancel_reason: str | None = None
    result: JsonValue = None
    error: str | None = None
    key: str | None = None
    at_most: int | None = None
    queue: str = ""
    lanes: tuple[Lane, ...] = ()


class Move(Struct, frozen=True):
    """The job after a move, and the event that reports it."""

    job: Job
    event_type: EventType
    facts: Mapping[str, JsonValue]


def submitted(new: NewJob, job_id: str, now: datetime) -> Move:
    """Return a queued job. Raises `InvalidPayload` for values that no database can store."""
    _ensure_storable("kind of a job", new.kind)
    _ensure_storable("key of a job", new.key or "")
    _ensure_storable("queue of a job", new.queue)
    for lane in new.lanes:
        _ensure_storable("shared limit of a job", lane.name)
    bounds = (new.at_most or 0, *(lane.at_most for lane in new.lanes))
    for number in (new.priority, new.max_attempts, *bounds):
        if not -_INTEGER_BOUND <= number < _INTEGER_BOUND:
            raise InvalidPayload(f"a {new.kind} job", f"{number} is out of range")
    job = Job(
        id=job_id,
        kind=new.kind,
        payload=new.payload,
        state=JobState.QUEUED,
        priority=new.priority,
        attempt=0,
        max_attempts=new.max_attempts,
        fence=0,
        beat=0,
        created_at=now,
        updated_at=now,
        not_before=now,
        key=new.key,
        at_most=new.at_most,
        queue=new.queue,
        lanes=new.lanes,
    )
    return Move(job, EventType.JOB_SUBMITTED, {"kind": job.kind, "priority": job.priority})


def marker_of(job_id: str, fence: int) -> str:
    """Return the marker of the processes of one attempt."""
    return f"{job_id}:{fence}"


def ensure_same(job: Job, new: NewJob) -> None:
    """Raise `DuplicateKey` unless `new` repeats the submission of `job`.

    Shared limits may differ: they follow the current settings, and a repeated submission must not fail
    because the settings changed.
    """
    wanted = (new.kind, new.payload, new.priority, new.max_attempts, new.at_most, new.queue)
    if wanted != (job.kind, job.payload, job.priority, job.max_attempts, job.at_most, job.queue):
        raise DuplicateKey(job.key or "")


def claimed(job: Job, worker: WorkerIdentity, now: datetime) -> Move:
    """Return the job claimed by `worker`: a new fence, one more attempt, no beat yet."""
    ensure_job_move(job.id, job.state, JobState.RUNNING)
    running = replace(
        job,
        state=JobState.RUNNING,
        attempt=job.attempt + 1,
        fence=job.fence + 1,
        beat=0,
        owner=worker,
        updated_at=now,
    )
    return Move(running, EventType.JOB_CLAIMED, {**_facts(running), "worker": worker.id})


def ensure_owned(job: Job, fence: int, beat: int | None = None) -> None:
    """Raise `StaleFence` unless the job is running under this fence (and at this beat)."""
    if job.state is not JobState.RUNNING:  # guard: a job that was taken back has no owner
        raise StaleFence(job.id, fence)
    if job.fence != fence:  # guard: the job belongs to a later claim
        raise StaleFence(job.id, fence)
    if beat is not None and job.beat != beat:  # guard: the owner has shown a sign of life
        raise StaleFence(job.id, fence)


def finished(job: Job, outcome: AttemptOutcome, now: datetime) -> Move:
    """Return the job after an attempt.

    An attempt that completed its work has succeeded, even if a cancel was requested.
    """
    ensure_job_move(job.id, job.state, outcome.state)
    error = _tellable(outcome.error)
    if outcome.handed_on:
        # guard: the next part has as many attempts left as this one
        job = replace(job, attempt=job.attempt - 1)
        return _attempt_again(job, error, outcome.retry_at or now, now, EventType.JOB_HANDED_ON)
    if outcome.state is JobState.QUEUED:
        return _attempt_again(job, error, outcome.retry_at or now, now, EventType.JOB_RETRIED)
    result = freeze(outcome.result, where=f"result of a {job.kind} job")
    return _ended(replace(job, result=result), outcome.state, error, now)


def reclaimed(job: Job, error: str, now: datetime) -> Move:
    """Return the job after it was taken from its owner: queued, failed or cancelled."""
    return _attempt_again(job, _tellable(error), now, now, EventType.JOB_RECLAIMED)


def requested_cancel(job: Job, reason: str, now: datetime) -> Move | None:
    """Cancel a queued job, or mark a running job; return None if the job is already marked.

    A cancel also replaces the reason of an earlier stop that allows a resume. Raises `JobAlreadyEnded`.
    """
    if job.state.ended:
        raise JobAlreadyEnded(job.id, job.state.value)
    heard = job.cancel_reason
    if heard is not None and (is_resumable_stop(reason) or not is_resumable_stop(heard)):
        return None
    asked = replace(job, cancel_reason=_tellable(reason), updated_at=now)
    if job.state is JobState.QUEUED:
        return _ended(asked, JobState.CANCELLED, None, now)
    return Move(asked, EventType.JOB_CANCEL_REQUESTED, {**_facts(asked), "reason": asked.cancel_reason})


def _attempt_again(job: Job, error: str | None, at: datetime, now: datetime, told: EventType) -> Move:
    if job.cancel_reason is not None:
        return _ended(job, JobState.CANCELLED, error, now)
    if job.attempt >= job.max_attempts:
        return _ended(job, JobState.FAILED, error, now)
    queued = replace(job, state=JobState.QUEUED, owner=None, error=error, not_before=at, updated_at=now)
    return Move(queued, told, {**_facts(queued), "error": error})


_ENDINGS: Mapping[JobState, EventType] = {
    JobState.SUCCEEDED: EventType.JOB_SUCCEEDED,
    JobState.FAILED: EventType.JOB_FAILED,
    JobState.CANCELLED: EventType.JOB_CANCELLED,
}


def _ended(job: Job, state: JobState, error: str | None, now: datetime) -> Move:
    ended = replace(job, state=state, owner=None, error=error, updated_at=now)
    facts = _facts(ended)
    if error is not None:
        facts["error"] = error
    if state is JobState.CANCELLED:
        facts["reason"] = ended.cancel_reason
    return Move(ended, _ENDINGS[state], facts)


def _facts(job: Job) -> dict[str, JsonValue]:
    return {"kind": job.kind, "attempt": job.attempt, "fence": job.fence}


def _ensure_storable(where: str, text: str) -> None:
    if _storable(text) != text:
        raise InvalidPayload(where, "the text contains a NUL or a lone surrogate")


def _tellable(text: str | None) -> str | None:
    """Return the text with secrets masked: messages contain addresses, settings and other private data."""
    return None if text is None else _storable(redact_text(text))


def _storable(text: str) -> str:
    """Return the text in a form that every database accepts; file names in messages may hold any bytes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
