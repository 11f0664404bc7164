"""Where events are published, and where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cleveragents.core.event import DomainEvent

__all__ = ["AuditRecord", "AuditSink", "EventHandler", "EventPublisher", "PreparedEvent", "Receipt"]

EventHandler = Callable[[DomainEvent], None]


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
