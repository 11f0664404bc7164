"""Ordered delivery: a handler that sees every event in sequence order, one at a time, on its own thread.

Each ordered subscription has a bounded queue and says what happens when it is full. One thread serves one
queue, so a slow handler delays itself and nobody else. The bus puts events in under its own lock, which is
what makes the order of the queue the order of the sequence numbers; the thread takes them out in batches
and is woken only when it sleeps, so a busy stream costs no signal per event.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from threading import get_ident
from typing import ClassVar, NamedTuple, Protocol

from cleveragents.core.errors import QueueFull
from cleveragents.core.event import DomainEvent, EventHandler, EventType
from cleveragents.events.subscription import DeliveryTally, Detach, Subscription

__all__ = ["Full", "OrderedQueue", "OrderedSubscription", "Overflow", "Route", "Spawn", "spawn_daemon"]

_BATCH = 256
_IDLE_SECONDS = 60.0


class Full(Protocol):
    """Somebody without room for an event."""

    def wait_for_room(self, timeout: float) -> None:
        """Returns when there may be room. `QueueFull` if it stays full."""
        ...


class Overflow(str, Enum):
    """What an emit does that finds an ordered subscriber's queue full."""

    BLOCK = "block"
    """It waits for room, up to the bus's `block_seconds`; then `QueueFull`, and nothing was emitted."""
    DROP_OLDEST = "drop_oldest"
    """The oldest waiting event is dropped and counted."""
    RAISE = "raise"
    """`QueueFull` at once, and nothing was emitted."""


Spawn = Callable[[Callable[[], None], str], object]
"""`(target, name)`: starts a thread that runs the target."""


def spawn_daemon(target: Callable[[], None], name: str) -> object:
    """A started thread that does not keep the interpreter from ending."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


class OrderedQueue(NamedTuple):
    """How many events may wait, and what happens to one too many."""

    bound: int = 10_000
    overflow: Overflow = Overflow.BLOCK


class OrderedSubscription(Subscription):
    """A subscription whose handler is called from a queue, by the thread that runs `serve`.

    At most `bound` events wait, besides the up to 256 that the thread has taken in hand.

    Thread safety:
        Owner: the bus; it alone calls `put`, under its lock, so room that `has_room` saw stays.
        Lock: `_queue_lock` guards the queue, `_ending` and the two conditions; never held
            while the handler runs. It is taken inside the bus's lock, never the other way round.
        Guarantee: the handler sees what was put, in that order, one at a time; after `finish` it sees
            the rest and then the thread ends; after `shut` the rest is discarded.
    Cancel safety: an emitter that gave up waiting for room has put nothing.
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

    # Nobody but the handler runs on its thread, so that a SystemExit there is its own affair, too.
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
        """How many events wait in the queue."""
        return len(self._queue)

    def has_room(self) -> bool:
        """Whether `put` may be called now."""
        if self._settings.overflow is Overflow.DROP_OLDEST:
            return True
        return len(self._queue) < self._settings.bound

    def put(self, event: DomainEvent) -> None:
        """Queues the event; where the policy says so, the oldest one makes room."""
        with self._queue_lock:
            if len(self._queue) >= self._settings.bound:  # guard: the queue stays within its bound
                self._queue.popleft()
                self._tally.count_drop()
            self._queue.append(event)
            if self._sleeping:
                self._sleeping = False
                self._filled.notify()

    def wait_for_room(self, timeout: float) -> None:
        """Returns when there is room or nothing is taken any more; `QueueFull` if it stays full.

        At once if the policy says so, or if the caller is the very thread that would have to make room.
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
        """Delivers until `finish` or `shut`. The body of the subscription's thread."""
        me = get_ident()
        self.server = me
        while batch := self._take():
            for event in batch:
                self.deliver(event, me)
        if self._on_end is not None and self._open:
            self._on_end()

    def end(self) -> None:
        """No thread serves it any more: who waits for room or for the end learns it."""
        self.shut()
        self._ended.set()

    def wait_ended(self, timeout: float) -> bool:
        """Whether it has ended, or ends within the timeout: no call runs or will start."""
        return self._ended.wait(timeout)

    def finish(self) -> None:
        """Nothing more will be put: the thread delivers what waits, and ends."""
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


class Route(NamedTuple):
    """Who gets events of one type, in the order in which they subscribed."""

    inline: tuple[Subscription, ...]
    ordered: tuple[OrderedSubscription, ...]

    @classmethod
    def to(cls, everyone: tuple[Subscription, ...]) -> Route:
        """The route to these."""
        in_turn = sorted(everyone, key=lambda subscription: subscription.number)
        return cls(
            tuple(s for s in in_turn if not isinstance(s, OrderedSubscription)),
            tuple(s for s in in_turn if isinstance(s, OrderedSubscription)),
        )

    def first_full(self) -> OrderedSubscription | None:
        """An ordered subscriber that has no room, if there is one."""
        for queue in self.ordered:
            if not queue.has_room():
                return queue
        return None
