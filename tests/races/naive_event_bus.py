"""The original event bus, and the suggested lock in both places where one could put it.

Each supports the calls that the scenarios make; `ordered` is ignored, because delivery was always inline.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from cleveragents.core.event import DomainEvent, EventType

__all__ = ["LockAroundHandlersBus", "LockAroundSnapshotBus", "PredecessorBus"]

Handler = Callable[[DomainEvent], None]


class PredecessorBus:
    """No lock at all: "callers must provide external synchronization", and none does."""

    def __init__(self, **_: Any) -> None:
        self._subscriptions: dict[EventType, list[Handler]] = {}
        self._audit_log: deque[DomainEvent] = deque(maxlen=1000)
        self._sequence = 0

    def subscribe(self, event_type: EventType, handler: Handler, **_: Any) -> Any:
        if event_type not in self._subscriptions:
            self._subscriptions[event_type] = []
        self._subscriptions[event_type].append(handler)

    def unsubscribe(self, event_type: EventType, handler: Handler) -> bool:
        handlers = self._subscriptions.get(event_type, [])
        if handler in handlers:
            handlers.remove(handler)
            return True
        return False

    def emit(self, event: DomainEvent) -> int:
        sequence = self._sequence + 1
        self._sequence = sequence
        stamped = event.sequenced(sequence)
        self._audit_log.append(stamped)
        for handler in list(self._subscriptions.get(event.event_type, ())):
            handler(stamped)
        return sequence

    @property
    def audit_log(self) -> list[DomainEvent]:
        return [event.sequenced(event.sequence) for event in self._audit_log]

    def count(self) -> int:
        return sum(len(handlers) for handlers in self._subscriptions.values())

    def close(self) -> None:
        """Do nothing: it had no close."""

    def deliver_the_rest(self) -> None:
        """Do nothing: handlers have run when `emit` returns."""


class LockAroundHandlersBus(PredecessorBus):
    """The suggested RLock around everything, including handlers."""

    def __init__(self, **_: Any) -> None:
        super().__init__()
        self._lock = threading.RLock()

    def subscribe(self, event_type: EventType, handler: Handler, **_: Any) -> Any:
        with self._lock:
            super().subscribe(event_type, handler)

    def unsubscribe(self, event_type: EventType, handler: Handler) -> bool:
        with self._lock:
            return super().unsubscribe(event_type, handler)

    def emit(self, event: DomainEvent) -> int:
        with self._lock:
            return super().emit(event)

    @property
    def audit_log(self) -> list[DomainEvent]:
        with self._lock:
            return super().audit_log


class LockAroundSnapshotBus(LockAroundHandlersBus):
    """The same RLock around the shared state only; handlers run after it is released."""

    def emit(self, event: DomainEvent) -> int:
        with self._lock:
            sequence = self._sequence + 1
            self._sequence = sequence
            stamped = event.sequenced(sequence)
            self._audit_log.append(stamped)
            handlers = list(self._subscriptions.get(event.event_type, ()))
        for handler in handlers:
            handler(stamped)
        return sequence
