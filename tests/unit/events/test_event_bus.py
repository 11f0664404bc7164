"""The guarantees of the event bus, with one thread at a time if that is enough."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest
import structlog

from cleveragents.core.errors import Closed, DeadlineExceeded, QueueFull, UnknownEventType
from cleveragents.core.event import DomainEvent, EventType, PreparedEvent
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.events.subscription import DeliveryTally, Overflow

TYPE = EventType.JOB_CLAIMED
OTHER = EventType.JOB_FAILED
SOON = 20.0


def event(event_type: EventType = TYPE, **payload: object) -> DomainEvent:
    return DomainEvent(event_type, "subject", "id", datetime(2026, 1, 1, tzinfo=UTC), payload)


@pytest.fixture
def bus() -> Iterator[ReactiveEventBus]:
    bus = ReactiveEventBus(block_seconds=0.05)
    yield bus
    bus.close()


class Gate:
    """A handler that reports when it was entered and blocks until released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.seen: list[int] = []

    def __call__(self, event: DomainEvent) -> None:
        self.entered.set()
        assert self.leave.wait(SOON)
        self.seen.append(event.sequence)


def in_background(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_handlers_get_their_type_and_all_types_in_the_order_they_subscribed(bus: ReactiveEventBus) -> None:
    seen: list[str] = []
    bus.subscribe(None, lambda e: seen.append("all"))
    bus.subscribe("job.claimed", lambda e: seen.append("claimed"))
    bus.subscribe(OTHER, lambda e: seen.append("failed"))
    assert [bus.emit(event()), bus.emit(event(OTHER))] == [1, 2]
    assert seen == ["all", "claimed", "all", "failed"]


def test_handlers_get_immutable_events_that_are_in_the_log(bus: ReactiveEventBus) -> None:
    original = event(deep={"list": [1, 2]})
    got: list[DomainEvent] = []
    bus.subscribe(TYPE, got.append)
    bus.emit(original)
    assert got[0] is bus.audit_log[0]
    assert (original.sequence, got[0].sequence) == (0, 1)
    assert got[0] == DomainEvent(TYPE, "subject", "id", original.occurred_at, {"deep": {"list": (1, 2)}}, 1)
    with pytest.raises(FrozenInstanceError):
        got[0].subject = "another"


def test_the_log_keeps_the_latest_only() -> None:
    bus = ReactiveEventBus(audit_log_limit=3)
    for _ in range(5):
        bus.emit(event())
    assert [logged.sequence for logged in bus.audit_log] == [3, 4, 5]


def test_an_unknown_type_is_refused_with_the_nearest_known_one(bus: ReactiveEventBus) -> None:
    with pytest.raises(UnknownEventType, match=r"job\.claimed"):
        bus.subscribe("job.claimd", print)
    with pytest.raises(UnknownEventType):
        bus.unsubscribe("nothing like it", print)
    with pytest.raises(UnknownEventType):
        bus.stream("nothing like it")


def test_a_failing_handler_is_logged_and_counted_and_affects_no_other(bus: ReactiveEventBus) -> None:
    def fail(_: DomainEvent) -> None:
        raise ValueError("no")

    seen: list[int] = []
    subscription = bus.subscribe(TYPE, fail)
    bus.subscribe(TYPE, lambda e: seen.append(e.sequence))
    with structlog.testing.capture_logs() as logs:
        bus.emit(event())
    assert seen == [1]
    assert logs[0]["event"] == "event.handler_failed"
    assert (logs[0]["event_type"], logs[0]["error_type"], logs[0]["sequence"]) == (
        "job.claimed",
        "ValueError",
        1,
    )
    subscription.unsubscribe()
    assert bus.statistics().failures == 1


def test_an_interrupt_in_a_handler_reaches_the_emitter_and_leaves_no_trace(bus: ReactiveEventBus) -> None:
    def interrupt(_: DomainEvent) -> None:
        raise KeyboardInterrupt

    subscription = bus.subscribe(TYPE, interrupt)
    with pytest.raises(KeyboardInterrupt):
        bus.emit(event())
    assert subscription.unsubscribe(timeout=0)  # would wait if the call were still running


def test_a_system_exit_in_an_ordered_handler_is_a_failure_and_delivery_continues(
    bus: ReactiveEventBus,
) -> None:
    def leave(e: DomainEvent) -> None:
        attempts.append(e.sequence)
        sys.exit(3)

    attempts: list[int] = []
    bus.subscribe(TYPE, leave, ordered=True, bound=100)
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            bus.emit(event())
        bus.close()
    assert attempts == [1, 2, 3, 4, 5]
    assert bus.statistics().failures == 5
    assert {entry["error_type"] for entry in logs} == {"SystemExit"}


def test_a_subscriber_whose_thread_dies_is_removed_and_blocks_no_emit() -> None:
    """A failing log is not a failure of the handler: it ends the thread."""

    def fail(_: DomainEvent) -> None:
        raise MemoryError

    class BrokenTally(DeliveryTally):
        def count_failure(self) -> None:
            raise MemoryError

    threads: list[threading.Thread] = []

    def spawn(target: Callable[[], None], name: str) -> None:
        def run() -> None:
            with pytest.raises(MemoryError):
                target()

        threads.append(in_background(run))

    bus = ReactiveEventBus(spawn=spawn, block_seconds=0.05)
    bus._tally = BrokenTally()
    bus.subscribe(TYPE, fail, ordered=True, bound=1)
    bus.emit(event())
    threads[0].join(SOON)
    assert [bus.emit(event()) for _ in range(3)] == [2, 3, 4]
    assert bus.statistics().subscriptions == 0
    bus.close(timeout=SOON)


def test_a_subscriber_that_gets_no_thread_is_not_subscribed() -> None:
    def refuse(target: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")

    bus = ReactiveEventBus(spawn=refuse, block_seconds=0.05)
    with pytest.raises(RuntimeError, match="new thread"):
        bus.subscribe(TYPE, print, ordered=True, bound=1)
    assert [bus.emit(event()) for _ in range(3)] == [1, 2, 3]
    assert bus.statistics().subscriptions == 0
    bus.close(timeout=SOON)


def test_unsubscribing_by_type_and_handler_takes_one_and_says_whether_there_was_one(
    bus: ReactiveEventBus,
) -> None:
    seen: list[int] = []

    def handler(e: DomainEvent) -> None:
        seen.append(e.sequence)

    bus.subscribe(TYPE, handler)
    bus.subscribe(TYPE, handler)
    assert bus.unsubscribe(TYPE, handler)
    bus.emit(event())
    assert bus.unsubscribe(TYPE, handler)
    assert not bus.unsubscribe(TYPE, handler)
    bus.emit(event())
    assert seen == [1]


def test_a_subscription_is_a_context_manager(bus: ReactiveEventBus) -> None:
    seen: list[int] = []
    with bus.subscribe(TYPE, lambda e: seen.append(e.sequence)) as subscription:
        bus.emit(event())
    bus.emit(event())
    assert seen == [1]
    assert not subscription.unsubscribe()


def test_a_handler_may_emit_subscribe_unsubscribe_itself_and_close(bus: ReactiveEventBus) -> None:
    seen: list[str] = []

    def once(e: DomainEvent) -> None:
        seen.append(f"once {e.sequence}")
        assert bus.unsubscribe(first)
        bus.subscribe(OTHER, lambda e: seen.append(f"new {e.sequence}"))
        bus.emit(event(OTHER))
        bus.close()
        with pytest.raises(Closed):
            bus.emit(event())

    first = bus.subscribe(TYPE, once)
    bus.subscribe(TYPE, lambda e: seen.append(f"second {e.sequence}"))
    bus.emit(event())
    assert seen == ["once 1", "new 2", "second 1"]
    assert bus.statistics().failures == 0


def test_unsubscribe_waits_for_a_call_in_progress_elsewhere(bus: ReactiveEventBus) -> None:
    gate = Gate()
    subscription = bus.subscribe(TYPE, gate)
    emitting = in_background(lambda: bus.emit(event()))
    assert gate.entered.wait(SOON)
    with pytest.raises(DeadlineExceeded):
        bus.unsubscribe(subscription, timeout=0.01)
    assert not bus.unsubscribe(subscription, wait=False)
    gate.leave.set()
    assert not subscription.unsubscribe(timeout=SOON)  # again, and this time the call has ended
    assert gate.seen == [1]
    emitting.join(SOON)


def test_two_handlers_that_unsubscribe_each_other_do_not_wait_for_each_other(bus: ReactiveEventBus) -> None:
    both = threading.Barrier(2)

    def unsubscribe_other(e: DomainEvent) -> None:
        both.wait(SOON)
        others[e.event_type].unsubscribe(timeout=SOON)

    one = bus.subscribe(TYPE, unsubscribe_other)
    two = bus.subscribe(OTHER, unsubscribe_other, ordered=True)
    others = {TYPE: two, OTHER: one}
    threads = [in_background(lambda t=t: bus.emit(event(t))) for t in (TYPE, OTHER)]
    for thread in threads:
        thread.join(SOON / 2)
    assert not any(thread.is_alive() for thread in threads)
    assert bus.statistics().subscriptions == 0


def test_an_ordered_handler_gets_what_was_emitted_before_close_and_nothing_is_emitted_after() -> None:
    bus = ReactiveEventBus()
    gate = Gate()
    bus.subscribe(TYPE, gate, ordered=True)
    for _ in range(3):
        bus.emit(event())
    assert gate.entered.wait(SOON)
    closing = in_background(bus.close)
    gate.leave.set()
    closing.join(SOON)
    assert gate.seen == [1, 2, 3]
    with pytest.raises(Closed):
        bus.emit(event())
    with pytest.raises(Closed):
        bus.subscribe(TYPE, gate)
    with pytest.raises(Closed):
        bus.subscribe(TYPE, gate, ordered=True)
    bus.close()


def test_close_takes_effect_before_an_emit_or_after_it_never_in_its_middle() -> None:
    """An emit takes effect when it appends to the sink: close has to wait there."""

    class StallingSink:
        def prepare(self, event: DomainEvent) -> PreparedEvent:
            return PreparedEvent("id", "type", "subject", "time", "{}")

        def append_nowait(self, prepared: PreparedEvent) -> None:
            closing.append(in_background(bus.close))
            # The absence of an event can only be checked for a limited time.
            assert not subscription.wait_ended(0.2)

    closing: list[threading.Thread] = []
    seen: list[int] = []
    bus = ReactiveEventBus(sink=StallingSink())
    subscription = bus.subscribe(TYPE, lambda e: seen.append(e.sequence), ordered=True)
    assert bus.emit(event()) == 1
    closing[0].join(SOON)
    assert seen == [1]


def test_close_discards_queued_events_after_its_timeout() -> None:
    bus = ReactiveEventBus()
    gate = Gate()
    bus.subscribe(TYPE, gate, ordered=True)
    bus.emit(event())
    bus.emit(event())
    assert gate.entered.wait(SOON)
    with pytest.raises(DeadlineExceeded):
        bus.close(timeout=0.01)
    gate.leave.set()
    bus.close(timeout=SOON)
    assert gate.seen == [1]


def test_close_waits_for_an_emit_in_progress_and_without_wait_starts_nothing_more() -> None:
    bus = ReactiveEventBus()
    gate = Gate()
    late: list[int] = []
    bus.subscribe(TYPE, gate)
    bus.subscribe(TYPE, lambda e: late.append(e.sequence))
    emitting = in_background(lambda: bus.emit(event()))
    assert gate.entered.wait(SOON)
    with pytest.raises(DeadlineExceeded):
        bus.close(timeout=0.01)
    gate.leave.set()
    emitting.join(SOON)
    bus.close(wait=False)
    assert (gate.seen, late) == ([1], [])


class TestOverflow:
    """A queue of two, whose handler is blocked with a third event."""

    @pytest.fixture
    def gate(self) -> Iterator[Gate]:
        gate = Gate()
        yield gate
        gate.leave.set()

    def fill(self, bus: ReactiveEventBus, gate: Gate, overflow: Overflow) -> None:
        bus.subscribe(TYPE, gate, ordered=True, bound=2, overflow=overflow)
        bus.emit(event())
        assert gate.entered.wait(SOON)
        bus.emit(event())
        bus.emit(event())

    @pytest.mark.parametrize("overflow", [Overflow.RAISE, Overflow.BLOCK])
    def test_a_refused_event_is_not_emitted_at_all(
        self, bus: ReactiveEventBus, gate: Gate, overflow: Overflow
    ) -> None:
        inline: list[int] = []
        bus.subscribe(TYPE, lambda e: inline.append(e.sequence))
        self.fill(bus, gate, overflow)
        with pytest.raises(QueueFull):
            bus.emit(event())
        assert inline == [logged.sequence for logged in bus.audit_log] == [1, 2, 3]
        gate.leave.set()
        bus.close()
        assert gate.seen == [1, 2, 3]

    def test_raise_does_not_wait(self, gate: Gate) -> None:
        bus = ReactiveEventBus(block_seconds=10 * SOON)
        self.fill(bus, gate, Overflow.RAISE)
        refused = threading.Event()

        def emit() -> None:
            with pytest.raises(QueueFull):
                bus.emit(event())
            refused.set()

        emitting = in_background(emit)
        assert refused.wait(SOON)
        emitting.join(SOON)
        gate.leave.set()
        bus.close()

    def test_block_waits_for_room(self, gate: Gate) -> None:
        bus = ReactiveEventBus(block_seconds=SOON)
        self.fill(bus, gate, Overflow.BLOCK)
        emitting = in_background(lambda: bus.emit(event()))
        gate.leave.set()
        emitting.join(SOON)
        bus.close()
        assert gate.seen == [1, 2, 3, 4]

    def test_an_emit_without_wait_is_refused_immediately_and_counted(self, gate: Gate) -> None:
        bus = ReactiveEventBus(block_seconds=10 * SOON)
        self.fill(bus, gate, Overflow.BLOCK)
        refused = threading.Event()

        def emit() -> None:
            with pytest.raises(QueueFull):
                bus.emit(event(), wait=False)
            refused.set()

        emitting = in_background(emit)
        assert refused.wait(SOON)
        emitting.join(SOON)
        assert (bus.statistics().emitted, bus.statistics().refused) == (3, 1)
        gate.leave.set()
        bus.close()

    def test_a_full_subscriber_does_not_affect_other_events_of_a_commit(
        self, bus: ReactiveEventBus, gate: Gate
    ) -> None:
        seen: list[EventType] = []
        bus.subscribe(OTHER, lambda e: seen.append(e.event_type))
        self.fill(bus, gate, Overflow.BLOCK)
        with structlog.testing.capture_logs() as logs:
            bus.relay([event(), event(), event(OTHER)])
        assert seen == [OTHER]
        assert [entry["event"] for entry in logs] == ["event.not_relayed"] * 2
        assert bus.statistics().refused == 2

    def test_drop_oldest_drops_and_counts(self, bus: ReactiveEventBus, gate: Gate) -> None:
        self.fill(bus, gate, Overflow.DROP_OLDEST)
        bus.emit(event())
        assert (bus.statistics().dropped, bus.statistics().waiting) == (1, 2)
        gate.leave.set()
        bus.close()
        assert gate.seen == [1, 3, 4]

    def test_closing_the_bus_wakes_an_emitter_that_waits_for_room(self, gate: Gate) -> None:
        bus = ReactiveEventBus(block_seconds=SOON)
        self.fill(bus, gate, Overflow.BLOCK)
        answer: list[type[BaseException]] = []

        def emit() -> None:
            try:
                bus.emit(event())
            except Closed:
                answer.append(Closed)

        emitting = in_background(emit)
        bus.close(wait=False)
        emitting.join(SOON)
        assert answer == [Closed]

    def test_an_ordered_handler_never_waits_for_itself(self, gate: Gate) -> None:
        bus = ReactiveEventBus(block_seconds=SOON)
        answers: list[str] = []

        def emit_twice(_: DomainEvent) -> None:
            if not answers:
                answers.append("first")
                bus.emit(event())
                with pytest.raises(QueueFull):
                    bus.emit(event())
                answers.append("refused")
                done.set()

        done = threading.Event()
        bus.subscribe(TYPE, emit_twice, ordered=True, bound=1)
        bus.emit(event())
        assert done.wait(SOON / 2)
        bus.close()
        assert answers == ["first", "refused"]

    def test_refuses_a_queue_without_room(self, bus: ReactiveEventBus) -> None:
        with pytest.raises(ValueError, match="at least one"):
            bus.subscribe(TYPE, print, ordered=True, bound=0)


class TestStream:
    """The bus as a reactivex Observable."""

    def test_each_observer_gets_later_events_in_order_until_the_end(self) -> None:
        bus = ReactiveEventBus()
        early: list[object] = []
        late: list[object] = []
        stream = bus.stream(TYPE)
        stream.subscribe(lambda e: early.append(e.sequence), on_completed=lambda: early.append("end"))
        bus.emit(event())
        stream.subscribe(lambda e: late.append(e.sequence), on_completed=lambda: late.append("end"))
        bus.emit(event())
        bus.emit(event(OTHER))
        bus.close()
        assert (early, late) == ([1, 2, "end"], [2, "end"])

    def test_an_observer_that_raises_does_not_starve_others(self) -> None:
        bus = ReactiveEventBus()
        seen: list[int] = []
        bus.stream().subscribe(lambda e: [][1])
        bus.stream().subscribe(lambda e: seen.append(e.sequence))
        bus.emit(event())
        bus.emit(event())
        bus.close()
        assert seen == [1, 2]
        assert bus.statistics().failures == 2

    def test_operators_may_dispose_in_the_middle(self) -> None:
        bus = ReactiveEventBus()
        seen: list[int] = []
        done = threading.Event()
        from reactivex import operators as ops

        bus.stream().pipe(ops.take(2)).subscribe(lambda e: seen.append(e.sequence), on_completed=done.set)
        for _ in range(4):
            bus.emit(event())
        assert done.wait(SOON)
        assert bus.statistics().subscriptions == 0
        bus.close()
        assert seen == [1, 2]
