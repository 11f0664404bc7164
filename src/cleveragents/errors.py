"""Every deliberate error of CleverAgents, in four families by what the caller can do next.

* CleverAgentsError
  * InvalidRequest: fix the request
    * PlanError: the plan cannot do this now
      * NoActiveChangeset
      * AmbiguousChangeset
      * ForeignChangeset
    * ChangesetClosed
    * UnknownChangeset
    * DuplicateKey
    * UnknownEventType
    * InvalidPayload
    * UnknownJob
    * UnknownJobKind
    * UnknownGraph
    * BlockingOnLoop
    * IllegalJobMove
    * ConfigurationError
    * DatabaseUnusable
  * Conflict: somebody else was faster: reload and decide again
    * StaleWrite
    * StaleFence
    * JobAlreadyEnded
  * Unavailable: wait, then try again
    * StoreBusy
    * StoreFull
    * OutcomeUnknown
    * QueueFull
    * BreakerOpen
    * Closed
    * DeadlineExceeded
    * Cancelled
  * Fault: report it
    * AuditLogBroken
    * HandlerFailed
    * GraphFailed
    * LoopStopped
    * DatabaseFailed

Facts are fields; the message says what happened, to what, and what to do about it. Each error
survives pickling, because it may have to cross from a job's process to its worker.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

__all__ = [
    "AmbiguousChangeset",
    "AuditLogBroken",
    "BlockingOnLoop",
    "BreakerOpen",
    "Cancelled",
    "ChangesetClosed",
    "CleverAgentsError",
    "Closed",
    "ConfigurationError",
    "Conflict",
    "DatabaseFailed",
    "DatabaseUnusable",
    "DeadlineExceeded",
    "DuplicateKey",
    "Fault",
    "ForeignChangeset",
    "GraphFailed",
    "HandlerFailed",
    "IllegalJobMove",
    "InvalidPayload",
    "InvalidRequest",
    "JobAlreadyEnded",
    "LoopStopped",
    "NoActiveChangeset",
    "OutcomeUnknown",
    "PlanError",
    "QueueFull",
    "StaleFence",
    "StaleWrite",
    "StoreBusy",
    "StoreFull",
    "Unavailable",
    "UnknownChangeset",
    "UnknownEventType",
    "UnknownGraph",
    "UnknownJob",
    "UnknownJobKind",
]


@dataclass(eq=False)
class CleverAgentsError(Exception):
    """The root: `except CleverAgentsError` catches every error we raise on purpose."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[type[CleverAgentsError], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


class InvalidRequest(CleverAgentsError):
    """The request itself is wrong; the same request fails again."""

    exit_code = 2


class Conflict(CleverAgentsError):
    """The world moved since you looked; reload and decide again."""

    exit_code = 75


class Unavailable(CleverAgentsError):
    """Right request, wrong moment."""

    exit_code = 75


class Fault(CleverAgentsError):
    """Something is broken that no caller can mend."""


# ── Plans and changesets ──────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class PlanError(InvalidRequest):
    """The plan cannot do what was asked in its present situation."""

    plan_id: str
    reason: str

    def __str__(self) -> str:
        return f"plan {self.plan_id}: {self.reason}"


@dataclass(eq=False)
class NoActiveChangeset(PlanError):
    """A change was to be recorded, and no changeset is open."""

    reason: str = "no changeset is active; call start_changeset() first"


@dataclass(eq=False)
class AmbiguousChangeset(PlanError):
    """Several changesets are open and none is current here: filing the change would be a guess."""

    reason: str = "several changesets are active and none is current here"
    active: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"plan {self.plan_id}: {self.reason} ({', '.join(self.active)}); "
            "pass changeset=… to say which one is meant"
        )


@dataclass(eq=False)
class ForeignChangeset(PlanError):
    """A plan records only into changesets of its own."""

    reason: str = "the changeset belongs to another plan"
    changeset_id: str = ""

    def __str__(self) -> str:
        return f"plan {self.plan_id}: {self.reason} ({self.changeset_id}); pass a handle of this plan"


@dataclass(eq=False)
class ChangesetClosed(InvalidRequest):
    """A closed changeset is immutable."""

    changeset_id: str

    def __str__(self) -> str:
        return f"changeset {self.changeset_id} is closed; start a new one to record more changes"


@dataclass(eq=False)
class UnknownChangeset(InvalidRequest):
    """No changeset of that id exists in this store."""

    changeset_id: str

    def __str__(self) -> str:
        return f"there is no changeset {self.changeset_id!r}"


@dataclass(eq=False)
class DuplicateKey(InvalidRequest):
    """An idempotency key came back with different content: a retry must repeat what it retries."""

    key: str

    def __str__(self) -> str:
        return f"key {self.key!r} was used before for something else; use a fresh key"


# ── Events ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class UnknownEventType(InvalidRequest):
    """An event's type is not one of `EventType`."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"{self.name!r} is not a known event type{hint}"


@dataclass(eq=False)
class InvalidPayload(InvalidRequest):
    """A payload holds something JSON cannot carry."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; use only JSON values (text, numbers, lists, objects)"


@dataclass(eq=False)
class AuditLogBroken(Fault):
    """The audit log is not what it was when it was written."""

    position: int
    problem: str

    def __str__(self) -> str:
        return f"audit log, row {self.position}: {self.problem}"


# ── Jobs ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class UnknownJob(InvalidRequest):
    """No job of that id exists in this store."""

    job_id: str

    def __str__(self) -> str:
        return f"there is no job {self.job_id!r}; `agents jobs list` shows those that exist"


@dataclass(eq=False)
class UnknownJobKind(InvalidRequest):
    """No handler is registered for a job's kind."""

    kind: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"no handler for jobs of kind {self.kind!r} (known: {known})"


@dataclass(eq=False)
class IllegalJobMove(InvalidRequest):
    """The state machine of a job has no such move."""

    job_id: str
    state: str
    wanted: str

    def __str__(self) -> str:
        return f"job {self.job_id} is {self.state} and cannot become {self.wanted}"


@dataclass(eq=False)
class JobAlreadyEnded(Conflict):
    """The job had ended before the request came; nothing was changed."""

    exit_code = 1  # trying again will not help

    job_id: str
    state: str

    def __str__(self) -> str:
        return f"job {self.job_id} already {self.state}; nothing was changed"


@dataclass(eq=False)
class StaleFence(Conflict):
    """The job belongs to somebody else now: this worker lost its lease, and its write was refused."""

    job_id: str
    fence: int

    def __str__(self) -> str:
        return (
            f"job {self.job_id}: fencing token {self.fence} is out of date, another worker owns the "
            "job; the write was refused, stop working on it"
        )


@dataclass(eq=False)
class HandlerFailed(Fault):
    """A job's handler raised; the job carries this as its durable error."""

    kind: str
    problem: str

    def __str__(self) -> str:
        return f"the {self.kind} handler failed: {self.problem}"


# ── Graph runs ────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class UnknownGraph(InvalidRequest):
    """No graph of that name was given to the bridge."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"there is no graph {self.name!r} (known: {known})"


@dataclass(eq=False)
class BlockingOnLoop(InvalidRequest):
    """A wait on an event loop's own thread for something that only this loop can do."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} on the event loop's own thread would wait for itself; await it instead"


@dataclass(eq=False)
class GraphFailed(Fault):
    """A graph run ended with an error that is not ours; the original is its `__cause__`."""

    graph: str
    problem: str

    def __str__(self) -> str:
        return f"graph {self.graph!r} failed: {self.problem}"


@dataclass(eq=False)
class LoopStopped(Fault):
    """Somebody stopped the event loop under the runs it was serving."""

    what: str

    def __str__(self) -> str:
        return f"the event loop of {self.what} was stopped from outside; close it and make a new one"


# ── Stores, queues, time ──────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class StaleWrite(Conflict):
    """Someone else saved the object after you read it."""

    id: str
    expected: int

    def __str__(self) -> str:
        return f"{self.id!r} is no longer at version {self.expected}; reload it and try again"


@dataclass(eq=False)
class StoreBusy(Unavailable):
    """The database stayed busy for longer than the write was prepared to wait."""

    waited_seconds: float

    def __str__(self) -> str:
        return f"the database was busy for {self.waited_seconds:.0f} s; nothing was written, try again"


@dataclass(eq=False)
class StoreFull(Unavailable):
    """The disk, or a quota, has no room for the write."""

    location: str

    def __str__(self) -> str:
        return f"no space left for {self.location}; nothing was written, free some and try again"


@dataclass(eq=False)
class OutcomeUnknown(Unavailable):
    """A commit was under way and its answer never came: the write may have been kept, or not."""

    location: str
    problem: str

    def __str__(self) -> str:
        return f"{self.location}: {self.problem}; the write may have been kept or not, look before trying again"


@dataclass(eq=False)
class DatabaseFailed(Fault):
    """The database answered with an error that nobody foresaw."""

    location: str
    problem: str

    def __str__(self) -> str:
        return f"{self.location} failed: {self.problem}; nothing was written, please report it"


@dataclass(eq=False)
class DatabaseUnusable(InvalidRequest):
    """What the configured URL points at cannot serve as our database."""

    location: str
    problem: str

    def __str__(self) -> str:
        return f"cannot use {self.location} as the database: {self.problem}"


@dataclass(eq=False)
class QueueFull(Unavailable):
    """A bounded queue has no room and its policy is to refuse."""

    queue: str
    bound: int

    def __str__(self) -> str:
        return f"{self.queue} holds its limit of {self.bound}; wait until some of it is done"


@dataclass(eq=False)
class BreakerOpen(Unavailable):
    """A circuit breaker refuses the call for now."""

    name: str
    retry_after_seconds: float

    def __str__(self) -> str:
        return f"{self.name!r} failed too often; refused for another {self.retry_after_seconds:.1f} s"


@dataclass(eq=False)
class Closed(Unavailable):
    """The component was closed; it takes no new work."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} is closed"


@dataclass(eq=False)
class DeadlineExceeded(Unavailable):
    """The time allowed for a step has passed."""

    what: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.what} did not end within {self.seconds:g} s"


@dataclass(eq=False)
class Cancelled(Unavailable):
    """The work was cancelled; `reason` says by whom or why."""

    exit_code = 130

    reason: str | None = None

    def __str__(self) -> str:
        return f"cancelled: {self.reason}" if self.reason else "cancelled"


# ── Configuration ─────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class ConfigurationError(InvalidRequest):
    """A setting is unknown, malformed or out of range."""

    source: str
    problem: str

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}"
