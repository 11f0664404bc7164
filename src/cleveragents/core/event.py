"""Domain events: immutable facts in the past tense; and the ports that publish and store them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

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
    """The kinds of events. The value is stored in the audit log, and its meaning never changes."""

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
    PLAN_REBASED = "plan.rebased"
    PLAN_CORRECTED = "plan.corrected"
    PLAN_PUBLISHED = "plan.published"
    PLAN_COMMENT_ADDED = "plan.comment_added"
    PLAN_COMMENT_RESOLVED = "plan.comment_resolved"
    PLAN_COMMENT_DECLINED = "plan.comment_declined"
    PLAN_COMMENT_REOPENED = "plan.comment_reopened"
    CONFLICT_KEPT = "conflict.kept"
    CONFLICT_RESOLVED = "conflict.resolved"
    TOOL_CALL_STARTED = "tool_call.started"
    TOOL_CALL_ENDED = "tool_call.ended"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_GIVEN = "approval.given"
    RULE_ADDED = "rule.added"
    RULE_REVOKED = "rule.revoked"
    MODEL_CHOSEN = "model.chosen"
    CONVERSATION_STARTED = "conversation.started"
    CONVERSATION_DELETED = "conversation.deleted"
    TURN_STARTED = "turn.started"
    TURN_ENDED = "turn.ended"
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
    GRAPH_RUN_PAUSED = "graph.run_paused"

    # Enum's hash is written in Python, and every emit looks up its type in a table.
    __hash__ = str.__hash__

    @classmethod
    def parse(cls, name: str) -> EventType:
        """Return the type with this name.

        Raises `UnknownEventType` with the closest known name if there is none.
        """
        try:
            return cls(name)
        except ValueError:
            near = get_close_matches(str(name), [member.value for member in cls], n=1)
            raise UnknownEventType(str(name), near[0] if near else None) from None


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """One fact. `subject` is the id of the object concerned; `sequence` is 0 until a bus emits the event."""

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
        """Return the same event with its sequence number on a bus.

        Runs in every emit, so it avoids the constructor, whose checks this event has already passed: it fills
        a mutable draft and turns the draft into an event, in a fifth of the time.
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
    """A mutable object with the slots of `DomainEvent`, from which `sequenced` makes an event."""

    __slots__ = DomainEvent.__slots__


class AuditRecord(Struct, frozen=True):
    """An event at its position in the global order of all processes. Positions count from 1."""

    position: int
    event: DomainEvent
    previous_hash: str
    hash: str


class Receipt(Protocol):
    """A handle to the future position of an appended event."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the position of the event once it is sequenced and stored.

        Returns 0 if the event is stored and another machine assigns its position. Raises `DeadlineExceeded`,
        or the error that prevented the write.
        """
        ...


class PreparedEvent(NamedTuple):
    """An event in its stored form: all text, already validated for storage."""

    event_id: str
    event_type: str
    subject: str
    occurred_at: str
    payload: str


class AuditSink(Protocol):
    """The durable end of an event bus. Any thread may append; an append never runs foreign code.

    Appended events are stored in order. `append` calls `prepare` and `append_nowait`, and `wait_for_room`
    while the queue is full. A bus calls these three itself, because it orders events under a lock, and no
    thread may wait under that lock.
    """

    def append(self, event: DomainEvent, timeout: float | None = None) -> Receipt:
        """Queue the event for storage; waits only while the bounded queue is full.

        Raises `QueueFull` if the queue stays full, `Closed`, or `InvalidPayload`; the event is then not
        stored.
        """
        ...

    def prepare(self, event: DomainEvent) -> PreparedEvent:
        """Return the event in its stored form. Raises `InvalidPayload` if it cannot be stored."""
        ...

    def append_nowait(self, prepared: PreparedEvent) -> Receipt:
        """Queue a prepared event. Raises `QueueFull` or `Closed`."""
        ...

    def wait_for_room(self, timeout: float) -> None:
        """Return once the queue has room or is closed. Raises `QueueFull` if it stays full."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Return once all events appended before are sequenced. Raises `DeadlineExceeded`."""
        ...

    def read(self, *, after: int = 0, limit: int = 1000) -> Sequence[AuditRecord]:
        """Return sequenced records above position `after`, in order.

        A reader that passes the last position it got as `after` misses no record and gets none twice.
        """
        ...


class EventPublisher(Protocol):
    """The part of the event bus that a service needs."""

    def emit(self, event: DomainEvent, *, wait: bool = True) -> int:
        """Publish the event and return its sequence number in this process.

        With `wait`, waits for a while until every subscriber and the sink have room. Raises `QueueFull` if a
        subscriber or the sink has no room; the event is then not published, but counted as refused.
        """
        ...
