"""Subscriptions of handlers on the bus: inline, and ordered on their own thread.

No call starts after an unsubscribe has returned, for inline and for ordered delivery: a call adds itself to
`_calls` *before* it checks whether the subscription is open, and an unsubscribe closes the subscription
*before* it checks for running calls. So either the call sees that the subscription is closed, or the
unsubscribe sees the call. No lock of ours is taken per call: `list.append` and `list.copy` are atomic, under
the GIL and, by the list's own lock, in an interpreter without the GIL.

An ordered handler gets every event in sequence order, one at a time, on its own thread. Each ordered
subscription has a bounded queue and an overflow policy. One thread serves one queue, so a slow handler delays
only itself. The bus adds events under its own lock, so the queue has the order of the sequence numbers. The
thread takes events out in batches and is woken only when it sleeps, so a busy stream costs no signal per
event.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from threading import get_ident
from typing import ClassVar, NamedTuple, Protocol

from msgspec import Struct

from cleveragents.core.errors import QueueFull
from cleveragents.core.event import DomainEvent, EventHandler, EventType

__all__ = [
    "BusStatistics",
    "DeliveryTally",
    "Detach",
    "EventRoute",
    "FullQueue",
    "OrderedQueue",
    "OrderedSubscription",
    "Overflow",
    "Spawn",
    "Subscription",
    "known_type",
    "spawn_daemon",
]


_BATCH = 256
_IDLE_SECONDS = 60.0


class BusStatistics(Struct, frozen=True):
    """A snapshot of the counts of a bus.

    `failures`, `dropped` and `refused` count from the creation of the bus; `waiting` is the current value.

    `dropped` counts events that were emitted but not delivered to a subscriber; `refused` counts events that
    were not emitted at all, because a receiver had no room.
    """

    emitted: int
    subscriptions: int
    failures: int
    dropped: int
    refused: int
    waiting: int


class DeliveryTally:
    """Counts of delivery problems for a whole bus, so that they outlive subscriptions.

    Thread safety:
        Owner: the bus. Lock: `_lock` guards `failures` and `refused`, for an addition at a time; `dropped`
            is counted by `put` alone, which the bus calls under its own lock.
        Guarantee: no failure, no drop and no refusal goes uncounted.
    Cancel safety: no call waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.failures = 0
        self.dropped = 0
        self.refused = 0

    def count_failure(self) -> None:
        """Count a handler call that raised."""
        with self._lock:
            self.failures += 1

    def count_refusal(self) -> None:
        """Count an emit that was refused for lack of room."""
        with self._lock:
            self.refused += 1

    def count_drop(self) -> None:
        """Count an event dropped from a full queue. The caller holds the lock of the bus."""
        self.dropped += 1


Detach = Callable[["Subscription", bool, float], bool]
"""A function `(subscription, wait, timeout)` that does the bus's part of an unsubscribe."""


class Subscription:
    """A handler subscribed to one type of event, or to all (`event_type` None).

    Thread safety:
        Owner: the bus that returned it; any thread may unsubscribe it.
        Lock: `_idle_lock` is for waiting until calls have ended; it is never held while the handler
            runs. `_calls` and `_open` need none, as the module docstring explains.
        Guarantee: after `shut`, no call begins that a following `wait_idle` does not see.
    Cancel safety: a call that raises any exception leaves `_calls`.
    """

    __slots__ = (
        "_calls",
        "_detach",
        "_idle",
        "_idle_lock",
        "_open",
        "_tally",
        "event_type",
        "handler",
        "number",
    )

    # Exceptions of the handler that are not reported.
    _failures: ClassVar[type[BaseException]] = Exception

    def __init__(
        self,
        event_type: EventType | None,
        handler: EventHandler,
        number: int,
        detach: Detach,
        tally: DeliveryTally,
    ) -> None:
        self.event_type = event_type
        self.handler = handler
        self.number = number
        self._detach = detach
        self._tally = tally
        self._open = True
        self._calls: list[int] = []
        self._idle_lock = threading.Lock()
        self._idle = threading.Condition(self._idle_lock)

    def unsubscribe(self, *, wait: bool = True, timeout: float = 5.0) -> bool:
        """End this subscription. See `ReactiveEventBus.unsubscribe`."""
        return self._detach(self, wait, timeout)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe()

    def deliver(self, event: DomainEvent, me: int) -> None:
        """Call the handler on this thread, whose ident is `me`, unless the subscription was shut.

        Exceptions of the handler are logged and counted, and do not propagate. KeyboardInterrupt and similar
        exceptions of an inline handler propagate to the emitter.
        """
        calls = self._calls
        calls.append(me)
        try:
            if self._open:  # guard: nothing starts after an unsubscribe returned
                self.handler(event)
        except BaseException as error:
            if not isinstance(error, self._failures):
                raise
            self._report(event, error)
        finally:
            calls.remove(me)
            if not self._open:
                self._announce_idle()

    def shut(self) -> None:
        """Allow no call to begin from now on."""
        self._open = False

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no other thread is in the handler; return False if the timeout passes first.

        Requires a shut subscription.
        """
        me = get_ident()
        with self._idle_lock:
            return self._idle.wait_for(lambda: not self._called_elsewhere(me), timeout)

    def _called_elsewhere(self, me: int) -> bool:
        # A copy, because an iteration over a list that shrinks skips elements.
        return any(caller != me for caller in self._calls.copy())

    def _announce_idle(self) -> None:
        with self._idle_lock:
            self._idle.notify_all()

    def _report(self, event: DomainEvent, error: BaseException) -> None:
        self._tally.count_failure()
        import structlog

        structlog.get_logger(__name__).warning(
            "event.handler_failed",
            event_type=event.event_type.value,
            sequence=event.sequence,
            handler=getattr(self.handler, "__qualname__", repr(self.handler)),
            error_type=type(error).__name__,
            error=str(error),
        )


def known_type(event_type: EventType | str | None) -> EventType | None:
    """Return the type with this name, or None for all types. Raises `UnknownEventType`."""
    if event_type is None or isinstance(event_type, EventType):
        return event_type
    return EventType.parse(event_type)


class FullQueue(Protocol):
    """A receiver without room for an event."""

    def wait_for_room(self, timeout: float) -> None:
        """Return when there may be room. Raises `QueueFull` if there is none within the timeout."""
        ...


class Overflow(str, Enum):
    """The policy of an emit when the queue of an ordered subscriber is full."""

    BLOCK = "block"
    """Wait for room, up to the bus's `block_seconds`; then raise `QueueFull` without emitting."""
    DROP_OLDEST = "drop_oldest"
    """Drop and count the oldest queued event."""
    RAISE = "raise"
    """Raise `QueueFull` immediately, without emitting."""


Spawn = Callable[[Callable[[], None], str], object]
"""`(target, name)`: starts a thread that runs the target."""


def spawn_daemon(target: Callable[[], None], name: str) -> object:
    """Return a started thread that does not keep the interpreter from ending."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


class OrderedQueue(NamedTuple):
    """The capacity of a queue, and its policy when it is full."""

    bound: int = 10_000
    overflow: Overflow = Overflow.BLOCK


class OrderedSubscription(Subscription):
    """A subscription whose handler is called from a queue, by the thread that runs `serve`.

    At most `bound` events wait, besides the up to 256 that the thread has already taken.

    Thread safety:
        Owner: the bus; it alone calls `put`, under its lock, so room that `has_room` saw stays.
        Lock: `_queue_lock` guards the queue, `_ending` and the two conditions; never held
            while the handler runs. It is taken inside the bus's lock, never the other way round.
        Guarantee: the handler sees all queued events, in order, one at a time; after `finish` it sees
            the rest and then the thread ends; after `shut` the rest is discarded.
    Cancel safety: an emitter that gave up waiting for room has queued nothing.
    """

    __slots__ = (
        "_ended",
        "_ending",
        "_filled",
        "_on_end",
        "_queue",
        "_queue_lock",
        "_room",
        "_settings",
        "_sleeping",
        "_waiting_for_room",
        "server",
    )

    # Only the handler runs on its thread, so a SystemExit there affects only the handler.
    _failures: ClassVar[type[BaseException]] = BaseException

    def __init__(
        self,
        event_type: EventType | None,
        handler: EventHandler,
        number: int,
        detach: Detach,
        tally: DeliveryTally,
        *,
        settings: OrderedQueue,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(event_type, handler, number, detach, tally)
        self.server: int | None = None
        self._settings = settings
        self._on_end = on_end
        self._queue: deque[DomainEvent] = deque()
        self._queue_lock = threading.Lock()
        self._filled = threading.Condition(self._queue_lock)
        self._room = threading.Condition(self._queue_lock)
        self._sleeping = False
        self._waiting_for_room = 0
        self._ending = False
        self._ended = threading.Event()

    @property
    def waiting(self) -> int:
        """The number of queued events."""
        return len(self._queue)

    def has_room(self) -> bool:
        """Whether `put` may be called now."""
        if self._settings.overflow is Overflow.DROP_OLDEST:
            return True
        return len(self._queue) < self._settings.bound

    def put(self, event: DomainEvent) -> None:
        """Queue the event; with the policy `DROP_OLDEST`, drop the oldest event if the queue is full."""
        with self._queue_lock:
            if len(self._queue) >= self._settings.bound:  # guard: the queue stays within its bound
                self._queue.popleft()
                self._tally.count_drop()
            self._queue.append(event)
            if self._sleeping:
                self._sleeping = False
                self._filled.notify()

    def wait_for_room(self, timeout: float) -> None:
        """Return when there is room or the subscription has ended. Raises `QueueFull` after the timeout.

        Raises `QueueFull` immediately if the policy is `RAISE`, or if the caller is the thread that serves
        this queue and would have to make room.
        """
        full = QueueFull(f"the queue of ordered subscriber {self._name()}", self._settings.bound)
        if self._settings.overflow is Overflow.RAISE:  # guard: this policy never waits
            raise full
        if get_ident() == self.server:  # guard: it would wait for itself
            raise full
        with self._queue_lock:
            self._waiting_for_room += 1
            found = self._room.wait_for(lambda: self._ending or self.has_room(), timeout)
            self._waiting_for_room -= 1
        if not found:
            raise full

    def serve(self) -> None:
        """Deliver events until `finish` or `shut`. The body of the subscription's thread."""
        me = get_ident()
        self.server = me
        while batch := self._take():
            for event in batch:
                self.deliver(event, me)
        if self._on_end is not None and self._open:
            self._on_end()

    def end(self) -> None:
        """Mark that no thread serves the queue any more, and wake all waiting threads."""
        self.shut()
        self._ended.set()

    def wait_ended(self, timeout: float) -> bool:
        """Wait until no call runs or will start; return False if the timeout passes first."""
        return self._ended.wait(timeout)

    def finish(self) -> None:
        """Accept no more events; the thread delivers the queued events and then ends."""
        with self._queue_lock:
            self._ending = True
            self._filled.notify()
            self._room.notify_all()

    def shut(self) -> None:
        super().shut()
        with self._queue_lock:
            self._queue.clear()
        self.finish()

    def _take(self) -> list[DomainEvent]:
        with self._queue_lock:
            while not self._queue:
                if self._ending:  # guard: the thread must end
                    return []
                self._sleeping = True
                self._filled.wait(_IDLE_SECONDS)
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            if self._waiting_for_room:
                self._room.notify_all()
            return batch

    def _name(self) -> str:
        return getattr(self.handler, "__qualname__", repr(self.handler))


class EventRoute(NamedTuple):
    """The receivers of one type of event, in the order of their subscriptions."""

    inline: tuple[Subscription, ...]
    ordered: tuple[OrderedSubscription, ...]

    @classmethod
    def to(cls, everyone: tuple[Subscription, ...]) -> EventRoute:
        """Return the route to these subscriptions."""
        in_turn = sorted(everyone, key=lambda subscription: subscription.number)
        return cls(
            tuple(s for s in in_turn if not isinstance(s, OrderedSubscription)),
            tuple(s for s in in_turn if isinstance(s, OrderedSubscription)),
        )

    def first_full(self) -> OrderedSubscription | None:
        """Return an ordered subscriber that has no room, or None."""
        for queue in self.ordered:
            if not queue.has_room():
                return queue
        return None
