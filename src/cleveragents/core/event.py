"""Events: facts in the past tense, immutable, the same for every reader.

Where events are published, and where they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple, Protocol

from cleveragents.core.errors import UnknownEventType
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze_object

__all__ = [
    "AuditRecord",
    "AuditSink",
    "DomainEvent",
    "EventHandler",
    "EventPublisher",
    "EventType",
    "PreparedEvent",
    "Receipt",
]


class EventType(str, Enum):
    """What can have happened. The value is what the audit log stores; it never changes meaning."""

    JOB_SUBMITTED = "job.submitted"
    JOB_CLAIMED = "job.claimed"
    JOB_SUCCEEDED = "job.succeeded"
    JOB_FAILED = "job.failed"
    JOB_RETRIED = "job.retried"
    JOB_RECLAIMED = "job.reclaimed"
    JOB_HANDED_ON = "job.handed_on"
    JOB_CANCEL_REQUESTED = "job.cancel_requested"
    JOB_CANCELLED = "job.cancelled"
    CHANGESET_STARTED = "changeset.started"
    CHANGESET_CLOSED = "changeset.closed"
    PLAN_CREATED = "plan.created"
    PLAN_MOVED = "plan.moved"
    PLAN_DELETED = "plan.deleted"
    PLAN_SPAWNED = "plan.spawned"
    PLAN_MERGED = "plan.merged"
    PLAN_CORRECTED = "plan.corrected"
    CONFLICT_KEPT = "conflict.kept"
    CONFLICT_RESOLVED = "conflict.resolved"
    TOOL_CALL_STARTED = "tool_call.started"
    TOOL_CALL_ENDED = "tool_call.ended"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_GIVEN = "approval.given"
    CHECK_ENDED = "check.ended"
    REVIEW_CHANGED = "review.changed"
    SANDBOX_CREATED = "sandbox.created"
    SANDBOX_REMOVED = "sandbox.removed"
    APPLY_STARTED = "apply.started"
    APPLY_ENDED = "apply.ended"
    TRUST_GIVEN = "trust.given"
    TRUST_REVOKED = "trust.revoked"
    DECISION_MADE = "decision.made"
    DECISION_SUPERSEDED = "decision.superseded"
    MODEL_CALL_STARTED = "model_call.started"
    MODEL_CALL_ENDED = "model_call.ended"
    BUDGET_OPENED = "budget.opened"
    BUDGET_RAISED = "budget.raised"
    BUDGET_NEARLY_SPENT = "budget.nearly_spent"
    BREAKER_OPENED = "breaker.opened"
    BREAKER_CLOSED = "breaker.closed"
    WORKER_JOINED = "worker.joined"
    WORKER_LEFT = "worker.left"
    PROJECT_ADDED = "project.added"
    PROJECT_REMOVED = "project.removed"
    MEMBER_SET = "member.set"
    MEMBER_REMOVED = "member.removed"
    RESOURCE_ADDED = "resource.added"
    RESOURCE_REMOVED = "resource.removed"
    USER_ADDED = "user.added"
    USER_REMOVED = "user.removed"
    ACCESS_GIVEN = "access.given"
    ACCESS_REVOKED = "access.revoked"
    GRAPH_RUN_STARTED = "graph.run_started"
    GRAPH_RUN_SUCCEEDED = "graph.run_succeeded"
    GRAPH_RUN_FAILED = "graph.run_failed"
    GRAPH_RUN_CANCELLED = "graph.run_cancelled"

    # Enum's own hash is written in Python, and every emit looks its type up in a table.
    __hash__ = str.__hash__

    @classmethod
    def parse(cls, name: str) -> EventType:
        """The type of that name; `UnknownEventType`, with the nearest known one, if there is none."""
        try:
            return cls(name)
        except ValueError:
            near = get_close_matches(str(name), [member.value for member in cls], n=1)
            raise UnknownEventType(str(name), near[0] if near else None) from None


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """One fact. `subject` is the id of what it happened to; `sequence` is 0 until a bus emitted it."""

    event_type: EventType
    subject: str
    event_id: str
    occurred_at: datetime
    payload: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    sequence: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.event_type, EventType):
            object.__setattr__(self, "event_type", EventType.parse(self.event_type))
        if not isinstance(self.payload, FrozenObject):
            where = f"payload of {self.event_type.value}"
            object.__setattr__(self, "payload", freeze_object(self.payload, where=where))

    def sequenced(self, sequence: int) -> DomainEvent:
        """The same fact, as the `sequence`-th that a bus emitted.

        Every emit pays for this, so it is written as a draft, which is not frozen, and then becomes an
        event: a fifth of the constructor's price, whose checks this event has passed already.
        """
        draft: Any = _Draft()
        draft.event_type = self.event_type
        draft.subject = self.subject
        draft.event_id = self.event_id
        draft.occurred_at = self.occurred_at
        draft.payload = self.payload
        draft.sequence = sequence
        draft.__class__ = DomainEvent
        stamped: DomainEvent = draft
        return stamped


EventHandler = Callable[[DomainEvent], None]


class _Draft:
    """The slots of an event, in the same layout, while nobody else can see it."""

    __slots__ = DomainEvent.__slots__


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An event at its place in the one order that all processes share. Positions count from 1."""

    position: int
    event: DomainEvent
    previous_hash: str
    hash: str


class Receipt(Protocol):
    """The promise of a position for an appended event."""

    def wait(self, timeout: float | None = None) -> int:
        """The event's position, once it is sequenced and kept. `DeadlineExceeded`, or why it failed.

        0 where it is kept, and another machine gives it its position.
        """
        ...


class PreparedEvent(NamedTuple):
    """An event in the form in which it is kept: all text, already found fit to be stored."""

    event_id: str
    event_type: str
    subject: str
    occurred_at: str
    payload: str


class AuditSink(Protocol):
    """The durable end of an event bus. Any thread may append; an append never runs foreign code.

    What was appended is kept in that order. `append` is `prepare`, then `append_nowait`, then
    `wait_for_room` as often as need be; a bus calls the parts, because it orders events under a lock in
    which nobody may wait.
    """

    def append(self, event: DomainEvent, timeout: float | None = None) -> Receipt:
        """Queues the event to be kept; waits only while the bounded queue is full.

        `QueueFull` if it stayed full, `Closed`, `InvalidPayload`; then the event is not kept.
        """
        ...

    def prepare(self, event: DomainEvent) -> PreparedEvent:
        """The event as it will be kept; `InvalidPayload` if it cannot be."""
        ...

    def append_nowait(self, prepared: PreparedEvent) -> Receipt:
        """Queues a prepared event. `QueueFull`, `Closed`."""
        ...

    def wait_for_room(self, timeout: float) -> None:
        """Returns when the queue is not full, or is closed. `QueueFull` if it stayed full."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Returns when all that was appended before is sequenced. `DeadlineExceeded`."""
        ...

    def read(self, *, after: int = 0, limit: int = 1000) -> Sequence[AuditRecord]:
        """Sequenced records with a position above `after`, in order: a cursor never skips or repeats."""
        ...


class EventPublisher(Protocol):
    """What a service needs of the bus."""

    def emit(self, event: DomainEvent, *, wait: bool = True) -> int:
        """Publishes the event; returns its sequence number in this process.

        `QueueFull` when somebody has no room for it; `wait` says whether to wait for that first. Then
        nothing was published, and the publisher has counted it.
        """
        ...
