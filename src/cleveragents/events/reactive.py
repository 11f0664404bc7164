"""The event bus of a process.

An emit takes effect in one short critical section: the event gets its sequence number, enters the audit log,
the durable sink and the queues of ordered subscribers, and the set of its inline handlers is fixed, as an
immutable tuple. Handlers run outside it. So the audit log, the sequence numbers and ordered delivery have the
same order, and no emit runs another emit's handlers. A handler may emit, subscribe, unsubscribe or close, and
may take any lock of the application, without a deadlock in the bus.

An emit that a required receiver cannot accept (a full queue, a sink that refuses) raises, and nothing is
emitted: no number is used, and no handler sees the event.

`stand_back` prevents lock convoys. The interpreter gives a released lock to a thread that sleeps on it before
that thread can run. Once some threads sleep on a lock that all of them need repeatedly, every other thread
finds the lock taken and falls asleep, too. Each acquisition then costs a thread switch; without a convoy, a
thread takes a free lock thousands of times between two switches. A convoy starts when a thread is interrupted
while it holds the lock, and ends only when a thread stays away from the lock for a moment.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, cast

from cleveragents.core.errors import CleverAgentsError, Closed, DeadlineExceeded, QueueFull
from cleveragents.core.event import AuditSink, DomainEvent, EventHandler, EventType, PreparedEvent, Receipt
from cleveragents.events.subscription import (
    BusStatistics,
    DeliveryTally,
    EventRoute,
    FullQueue,
    OrderedQueue,
    OrderedSubscription,
    Overflow,
    Spawn,
    Subscription,
    known_type,
    spawn_daemon,
)

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["ReactiveEventBus", "stand_back"]


_NAME = "the event bus"
_LONG_AGO = 0.0

_STAND_BACK_SECONDS = 0.0001


class ReactiveEventBus:
    """Publishes events to the handlers of this process, and to a durable sink if given.

    Thread safety:
        Owner: the code that built it closes it; any thread and any handler may use it.
        Lock: `_lock` guards the sequence number, the audit log, the table of subscriptions and
            the closed flag. It is held for arithmetic only, never while a handler, a log call or I/O runs.
            Queue locks of ordered subscribers and of the sink are taken inside it, never around it.
        Guarantee: sequence numbers count 1, 2, 3… without a gap, and the audit log is in their order.
            Every handler subscribed before an emit begins gets the event, unless it is unsubscribed
            first. When `unsubscribe` returned, its handler runs in no other thread and starts in none; when
            `close(wait=True)` returned, this holds for every handler.
    Cancel safety: an emit that raises `QueueFull` or `Closed` emitted nothing. An unsubscribe or close that
        timed out has taken effect: nothing new starts; only calls that had begun may still run.
    """

    def __init__(
        self,
        *,
        sink: AuditSink | None = None,
        audit_log_limit: int = 1000,
        block_seconds: float = 5.0,
        spawn: Spawn = spawn_daemon,
    ) -> None:
        self._sink = sink
        self._block_seconds = block_seconds
        self._spawn = spawn
        self._lock = threading.Lock()
        self._landed = threading.Condition(self._lock)
        self._sequence = 0
        self._subscribed = 0
        self._audit_log: deque[DomainEvent] = deque(maxlen=audit_log_limit)
        self._subscriptions: dict[EventType | None, tuple[Subscription, ...]] = {}
        self._routes: dict[EventType, EventRoute] = {}
        self._ordered: tuple[OrderedSubscription, ...] = ()
        self._flights: list[int] = []
        self._closed = False
        self._tally = DeliveryTally()

    # ── Emitting ──────────────────────────────────────────────────────────────────────────────────

    def emit(
        self,
        event: DomainEvent,
        receipts: list[Receipt] | None = None,
        *,
        kept: bool = False,
        wait: bool = True,
    ) -> int:
        """Publish the event; return its sequence number when all inline handlers have returned.

        The sink's receipt, to wait on later, is appended to `receipts` if given. `kept` means that the event
        is already in the outbox, so the sink is skipped. Raises `Closed`; `QueueFull` if an ordered
        subscriber or the sink had no room in time, or immediately without `wait`; `InvalidPayload` if the
        sink cannot store the event. In these cases nothing was emitted.
        """
        me = get_ident()
        prepared = None if kept or self._sink is None else self._sink.prepare(event)
        give_up = None if wait else _LONG_AGO
        while True:
            before = self._sequence
            with self._lock:
                if self._closed:  # guard: a closed bus emits nothing
                    raise Closed(_NAME)
                route = self._routes.get(event.event_type) or self._route(event.event_type)
                inline, ordered = route
                full: FullQueue | None = route.first_full() if ordered else None
                if full is None and prepared is not None:
                    full = self._append(prepared, receipts)
                if full is None:
                    sequence = self._sequence + 1
                    self._sequence = sequence
                    stamped = event.sequenced(sequence)
                    self._audit_log.append(stamped)
                    for queue in ordered:
                        queue.put(stamped)
                    if inline:
                        self._flights.append(me)
                    break
            give_up = self._wait_for_room(full, give_up)
        if inline:
            self._deliver(inline, stamped, me)
        if wait and sequence > before + 1:  # other threads held the lock in between
            stand_back()
        return sequence

    def relay(self, events: Sequence[DomainEvent]) -> None:
        """Emit the events that a transaction added to the outbox.

        Use it as a commit listener of the database.

        If a subscriber has no room for an event, the refusal is logged and counted; the event is stored
        anyway, and the other events are not affected. After the first refusal, the committing thread no
        longer waits for room.
        """
        patient = True
        for event in events:
            try:
                self.emit(event, kept=True, wait=patient)
            except QueueFull as full:
                patient = False
                known = event.event_type.value
                import structlog

                structlog.get_logger(__name__).warning(
                    "event.not_relayed", event_type=known, subject=event.subject, error=str(full)
                )

    def emit_durably(self, event: DomainEvent, *, timeout: float = 30.0) -> int:
        """Emit the event, then wait until the sink has stored it; return its position in the audit log.

        An error of `Receipt.wait` means that the event was emitted but may not be stored.
        """
        if self._sink is None:
            raise Closed("the durable audit log (this bus has none)")
        receipts: list[Receipt] = []
        self.emit(event, receipts)
        return receipts[0].wait(timeout)

    def _append(self, prepared: PreparedEvent, receipts: list[Receipt] | None) -> FullQueue | None:
        # Under the lock, so that events are stored in the order of their numbers.
        sink = cast(AuditSink, self._sink)
        try:
            receipt = sink.append_nowait(prepared)
        except QueueFull:
            return sink
        if receipts is not None:
            receipts.append(receipt)
        return None

    def _wait_for_room(self, full: FullQueue, give_up: float | None) -> float:
        now = time.monotonic()
        deadline = now + self._block_seconds if give_up is None else give_up
        try:
            full.wait_for_room(max(0.0, deadline - now))
        except CleverAgentsError:
            self._tally.count_refusal()
            raise
        return deadline

    def _deliver(self, inline: tuple[Subscription, ...], event: DomainEvent, me: int) -> None:
        try:
            for subscription in inline:
                subscription.deliver(event, me)
        finally:
            self._flights.remove(me)
            if self._closed:
                with self._lock:
                    self._landed.notify_all()

    def _route(self, event_type: EventType) -> EventRoute:
        # Under the lock: derived from the table, and dropped at each change of it.
        route = EventRoute.to(self._subscriptions.get(event_type, ()) + self._subscriptions.get(None, ()))
        self._routes[event_type] = route
        return route

    # ── Subscribing ───────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        event_type: EventType | str | None,
        handler: EventHandler,
        *,
        ordered: bool = False,
        bound: int = OrderedQueue().bound,
        overflow: Overflow = Overflow.BLOCK,
    ) -> Subscription:
        """Call the handler with every event of this type (None: of any) emitted from now on.

        An inline handler runs in the emitting thread, before `emit` returns, and concurrently in several
        threads if they emit concurrently. An ordered handler runs on its own thread, in sequence order, one
        event at a time; `bound` and `overflow` control how far it may fall behind. Raises `UnknownEventType`
        or `Closed`.
        """
        if ordered:
            return self._subscribe_ordered(event_type, handler, OrderedQueue(bound, overflow))
        known = known_type(event_type)
        with self._lock:
            subscription = Subscription(known, handler, self._next_number(), self._detach, self._tally)
            self._enter(subscription)
        return subscription

    def stream(
        self,
        event_type: EventType | str | None = None,
        *,
        bound: int = OrderedQueue().bound,
        overflow: Overflow = Overflow.BLOCK,
    ) -> Observable[DomainEvent]:
        """Return the events as an Observable; each observer is an ordered subscriber.

        An observer gets events emitted after it subscribed. Disposing its subscription ends it, without
        waiting for a running `on_next`; closing the bus completes it. An exception in an observer is logged
        and counted.
        """
        from cleveragents.events.stream import observable_of

        known = known_type(event_type)
        queue = OrderedQueue(bound, overflow)
        return observable_of(lambda on_next, on_end: self._subscribe_ordered(known, on_next, queue, on_end))

    def unsubscribe(
        self,
        subscription: Subscription | EventType | str | None,
        handler: EventHandler | None = None,
        *,
        wait: bool = True,
        timeout: float = 5.0,
    ) -> bool:
        """End a subscription; given a type and a handler, the oldest subscription that matches them.

        Waits at most `timeout` seconds for running calls in other threads, then raises `DeadlineExceeded`.
        After it returns, the handler runs in no other thread and starts in none. It does not wait inside a
        handler of this bus (two handlers could wait for each other), or with `wait=False` (for example, under
        a lock that the handler takes). In these cases no new call begins, but calls that had begun may still
        run. Events still queued for an ordered subscriber are discarded. Returns False if the subscription
        had already ended.
        """
        if isinstance(subscription, Subscription):
            return self._detach(subscription, wait, timeout)
        known = known_type(subscription)
        for candidate in self._subscriptions.get(known, ()):
            if candidate.handler == handler and self._detach(candidate, wait, timeout):
                return True
        return False

    def _subscribe_ordered(
        self,
        event_type: EventType | str | None,
        handler: EventHandler,
        queue: OrderedQueue,
        on_end: Callable[[], None] | None = None,
    ) -> OrderedSubscription:
        if queue.bound < 1:
            raise ValueError("an ordered subscriber's queue needs room for at least one event")
        known = known_type(event_type)
        with self._lock:
            number = self._next_number()
            subscription = OrderedSubscription(
                known, handler, number, self._detach, self._tally, settings=queue, on_end=on_end
            )
            self._enter(subscription)
            self._ordered = (*self._ordered, subscription)
        # Outside the lock, because starting a thread blocks; events emitted meanwhile are queued.
        try:
            self._spawn(lambda: self._serve(subscription), f"event-bus-ordered-{number}")
        except BaseException:
            self._forget(subscription)
            raise
        return subscription

    def _serve(self, subscription: OrderedSubscription) -> None:
        try:
            subscription.serve()
        finally:
            self._forget(subscription)

    def _forget(self, subscription: OrderedSubscription) -> None:
        # A queue without a consumer would fill up, and then refuse every emit.
        with self._lock:
            self._leave(subscription)
            self._ordered = tuple(other for other in self._ordered if other is not subscription)
        subscription.end()

    def _next_number(self) -> int:
        self._subscribed += 1
        return self._subscribed

    def _enter(self, subscription: Subscription) -> None:
        if self._closed:  # guard: a closed bus accepts no subscriber
            raise Closed(_NAME)
        known = subscription.event_type
        after = (*self._subscriptions.get(known, ()), subscription)
        self._subscriptions = {**self._subscriptions, known: after}
        self._routes = {}

    def _detach(self, subscription: Subscription, wait: bool, timeout: float) -> bool:
        with self._lock:
            found = self._leave(subscription)
        subscription.shut()
        waits = wait and not self._inside_handler()  # two handlers could wait for each other
        if waits and not subscription.wait_idle(timeout):  # guard: no call may run when this returns
            raise DeadlineExceeded("a running call of an unsubscribed handler", timeout)
        return found

    def _leave(self, subscription: Subscription) -> bool:
        known = subscription.event_type
        before = self._subscriptions.get(known, ())
        after = tuple(other for other in before if other is not subscription)
        self._subscriptions = {**self._subscriptions, known: after}
        self._routes = {}
        return len(after) < len(before)

    def _inside_handler(self) -> bool:
        me = get_ident()
        if any(subscription.server == me for subscription in self._ordered):
            return True
        # A copy, because a search in a list that shrinks skips elements.
        return me in self._flights.copy()

    # ── Closing ───────────────────────────────────────────────────────────────────────────────────

    def close(self, *, wait: bool = True, timeout: float = 10.0) -> None:
        """Refuse new events and subscribers; closing twice is harmless.

        With `wait`, all events emitted before are delivered first, and after it returns no handler runs or
        will start. If that takes longer than `timeout`, it raises `DeadlineExceeded` and discards the queued
        events, and only calls that had begun may still run. Inside a handler, `close` cannot wait for that
        handler: it returns immediately, and delivery completes in the background. Without `wait`, no further
        call starts, and queued events are discarded.
        """
        with self._lock:
            self._closed = True
            everyone = [s for group in self._subscriptions.values() for s in group]
            ordered = self._ordered
        if not wait:
            for subscription in everyone:
                subscription.shut()
            return
        for subscription in ordered:
            subscription.finish()
        if self._inside_handler():
            return
        give_up = time.monotonic() + timeout
        if not self._wait_delivered(ordered, give_up):
            for subscription in everyone:
                subscription.shut()
            raise DeadlineExceeded("closing the event bus", timeout)

    def _wait_delivered(self, ordered: tuple[OrderedSubscription, ...], give_up: float) -> bool:
        with self._lock:
            landed = self._landed.wait_for(lambda: not self._flights, give_up - time.monotonic())
        for subscription in ordered:
            landed = subscription.wait_ended(max(0.0, give_up - time.monotonic())) and landed
        return landed

    # ── Inspection ────────────────────────────────────────────────────────────────────────────────

    @property
    def audit_log(self) -> tuple[DomainEvent, ...]:
        """Return the latest events, oldest first, each with its sequence number, as an immutable snapshot."""
        # deque.copy is atomic, and the deque is in order whenever no thread is inside the lock.
        return tuple(self._audit_log.copy())

    def statistics(self) -> BusStatistics:
        """Return the current counts. Takes no lock: the table of subscriptions is replaced, never changed."""
        everyone = [s for group in self._subscriptions.values() for s in group]
        return BusStatistics(
            emitted=self._sequence,
            subscriptions=len(everyone),
            failures=self._tally.failures,
            dropped=self._tally.dropped,
            refused=self._tally.refused,
            waiting=sum(s.waiting for s in everyone if isinstance(s, OrderedSubscription)),
        )


def stand_back() -> None:
    """Sleep for a moment after a contended acquisition, so that threads waiting for the lock get it first."""
    time.sleep(_STAND_BACK_SECONDS)
