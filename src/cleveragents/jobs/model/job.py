"""Jobs: one piece of work for one worker at a time, as a state machine.

    queued ──claim──▶ running ──▶ succeeded | failed | cancelled
       ▲                 │
       └─ retry, reclaim ┘         queued ──cancel──▶ cancelled

The *fence* counts claims. Whoever holds the newest fence owns the job; a write under an older one is
refused. The *beat* counts heartbeats under that fence, so that a peer can see a silent owner without
comparing two machines' clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from cleveragents.core.errors import IllegalJobMove
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze_object
from cleveragents.core.worker_identity import WorkerIdentity

__all__ = [
    "HANDED_ON",
    "HandedOn",
    "Job",
    "JobState",
    "Lane",
    "NewJob",
    "Outcome",
    "ensure_job_move",
]


class JobState(str, Enum):
    """Where a job stands."""

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
    """Raises `IllegalJobMove` unless a job may go from `state` to `wanted`."""
    if wanted not in _MOVES[state]:
        raise IllegalJobMove(job_id, state.value, wanted.value)


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """Something that many jobs share, such as a project or a provider of models. A job in it is not begun
    while `at_most` jobs in the lane run, whatever their own bounds are."""

    name: str
    at_most: int

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise ValueError("at_most must be at least 1")


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be submitted. A `key` makes the submission idempotent. It is not begun while `at_most` jobs of
    its kind run, in whatever process; None is no bound.

    In the `queue` "" it is for whoever names its kind; in any other, for every worker of that queue. It is
    begun only while all of its `lanes` have a place.
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
            raise ValueError("a job is in a lane once")
        object.__setattr__(self, "lanes", tuple(sorted(self.lanes)))
        if not isinstance(self.payload, FrozenObject):
            where = f"payload of a {self.kind} job"
            object.__setattr__(self, "payload", freeze_object(self.payload, where=where))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. `retry_at` with state QUEUED asks for another attempt from then on; if it was
    `handed_on`, nothing failed, and that is not counted as one more."""

    state: JobState
    result: JsonValue = None
    error: str | None = None
    retry_at: datetime | None = None
    handed_on: bool = False


@dataclass(frozen=True, slots=True)
class HandedOn:
    """What a handler returns that did a part of its job, of which there is a record: any worker may go on.
    Not for handlers that run in a process of their own."""


HANDED_ON = HandedOn()


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the store holds it; a snapshot, never updated in place."""

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
