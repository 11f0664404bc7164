"""Where events are published, and where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleveragents.domain.event import DomainEvent

__all__ = ["AuditRecord", "AuditSink", "EventPublisher", "Receipt"]


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
        """The event's position, once it is sequenced and kept. `DeadlineExceeded`, or why it failed."""
        ...


class AuditSink(Protocol):
    """The durable end of an event bus. Any thread may append; an append never runs foreign code."""

    def append(self, event: DomainEvent) -> Receipt:
        """Queues the event to be kept; waits only while the bounded queue is full. `Closed`."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Returns when all that was appended before is sequenced. `DeadlineExceeded`."""
        ...

    def read(self, *, after: int = 0, limit: int = 1000) -> Sequence[AuditRecord]:
        """Sequenced records with a position above `after`, in order: a cursor never skips or repeats."""
        ...


class EventPublisher(Protocol):
    """What a service needs of the bus."""

    def emit(self, event: DomainEvent) -> int:
        """Publishes the event; returns its sequence number in this process."""
        ...


EventHandler = Callable[[DomainEvent], None]
