"""The event bus under explored interleavings: what it promises holds, and what it replaces is caught.

Ordered subscribers are served by threads; an explorer must own every thread, so here a worker of the
scenario serves: `Served` is a bus whose threads are functions that wait to be run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.domain.event import DomainEvent, EventType
from cleveragents.errors import Closed
from cleveragents.infrastructure.events.dispatch import Overflow
from cleveragents.infrastructure.events.reactive import ReactiveEventBus
from cleveragents.infrastructure.events.subscription import DeliveryTally
from tests.races.explorers import Scenario, assert_caught, assert_holds, explore
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.linearizability import Call, History, is_linearizable, run_programs
from tests.races.naive_event_bus import LockAroundHandlersBus, LockAroundSnapshotBus, PredecessorBus

EFFORT = 24
# Emitters and subscribers wait with deadlines.
OnVirtualTime = partial(Scenario, clock="virtual")
LOGGED = 12
TYPE = EventType.JOB_CLAIMED
OTHER = EventType.JOB_FAILED


def event(event_type: EventType = TYPE) -> DomainEvent:
    return DomainEvent(event_type, "subject", "id", datetime(2026, 1, 1, tzinfo=UTC))


class Served(ReactiveEventBus):
    """Our bus, whose ordered subscribers are served by whoever calls `serve`."""

    def __init__(self, **parameters: Any) -> None:
        self.servers: list[Callable[[], None]] = []
        super().__init__(spawn=lambda target, name: self.servers.append(target), **parameters)

    def serve(self) -> None:
        for server in self.servers:
            server()

    def deliver_the_rest(self) -> None:
        for subscription in self._ordered:
            subscription.finish()
        self.serve()


def count(bus: Any) -> int:
    return bus.count() if isinstance(bus, PredecessorBus) else bus.statistics().subscriptions


class World:
    """A bus, and what its handlers saw."""

    def __init__(self, make_bus: Callable[[], Any]) -> None:
        self.bus = make_bus()
        self.seen: list[int] = []
        self.ended = False
        self.late = False
        self.results: list[Any] = []
        self.app_lock = threading.Lock()

    def handle(self, event: DomainEvent) -> None:
        self.late = self.late or self.ended
        self.seen.append(event.sequence)

    def handle_under_app_lock(self, event: DomainEvent) -> None:
        with self.app_lock:
            self.seen.append(event.sequence)


# ── Scenarios ─────────────────────────────────────────────────────────────────────────────────────


def two_subscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Both subscriptions stand."""

    def subscribe(world: World) -> None:
        world.bus.subscribe(TYPE, world.handle)

    def outcome(world: World) -> int:
        world.bus.emit(event())
        return len(world.seen)

    return OnVirtualTime(
        "subscribe | subscribe",
        lambda: World(make_bus),
        [subscribe, subscribe],
        outcome,
        allowed=lambda calls: calls == 2,
        reachable=frozenset({2}),
    )


def two_subscribe_ordered(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Both ordered subscriptions stand, too."""

    def subscribe(world: World) -> None:
        world.bus.subscribe(TYPE, world.handle, ordered=True)

    def outcome(world: World) -> int:
        world.bus.emit(event())
        world.bus.deliver_the_rest()
        return len(world.seen)

    return OnVirtualTime(
        "subscribe ordered | subscribe ordered",
        lambda: World(make_bus),
        [subscribe, subscribe],
        outcome,
        allowed=lambda calls: calls == 2,
        reachable=frozenset({2}),
    )


def subscribe_and_unsubscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """One comes, another goes: the one is there, the other is not."""

    def setup() -> World:
        world = World(make_bus)
        world.bus.subscribe(TYPE, world.results.append)
        return world

    def outcome(world: World) -> tuple[int, int, int]:
        world.bus.emit(event())
        return count(world.bus), len(world.seen), len(world.results)

    return OnVirtualTime(
        "subscribe | unsubscribe",
        setup,
        [
            lambda world: world.bus.subscribe(TYPE, world.handle),
            lambda world: world.bus.unsubscribe(TYPE, world.results.append),
        ],
        outcome,
        allowed=lambda outcome: outcome == (1, 1, 0),
        reachable=frozenset({(1, 1, 0)}),
    )


def two_servers_end(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Threads of ordered subscribers that end at once are both forgotten."""

    def setup() -> World:
        world = World(make_bus)
        for _ in range(2):
            world.bus.subscribe(TYPE, world.handle, ordered=True).finish()
        return world

    return OnVirtualTime(
        "serve | serve",
        setup,
        [lambda world: world.bus.servers[0](), lambda world: world.bus.servers[1]()],
        lambda world: len(world.bus._ordered),
        allowed=lambda left: left == 0,
        reachable=frozenset({0}),
    )


def two_fail(make_bus: Callable[[], Any]) -> Scenario[DeliveryTally]:
    """Each failure is counted."""
    return OnVirtualTime(
        "fail | fail",
        DeliveryTally,
        [DeliveryTally.count_failure, DeliveryTally.count_failure],
        lambda tally: tally.failures,
        allowed=lambda failures: failures == 2,
        reachable=frozenset({2}),
    )


def emit_and_unsubscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """The handler runs or does not, but never after the unsubscribe returned."""

    def setup() -> World:
        world = World(make_bus)
        world.bus.subscribe(TYPE, world.handle)
        return world

    def unsubscribe(world: World) -> None:
        world.bus.unsubscribe(TYPE, world.handle)
        world.ended = True

    return OnVirtualTime(
        "emit | unsubscribe",
        setup,
        [lambda world: world.bus.emit(event()), unsubscribe],
        lambda world: (len(world.seen), world.late),
        allowed=lambda outcome: not outcome[1],
        reachable=frozenset({(0, False), (1, False)}),
    )


def ordered_emit_and_unsubscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """The same for an ordered subscriber, whose handler another thread calls."""

    def setup() -> World:
        world = World(make_bus)
        world.results.append(world.bus.subscribe(TYPE, world.handle, ordered=True))
        world.bus.emit(event())
        return world

    def unsubscribe(world: World) -> None:
        world.results[0].unsubscribe()
        world.ended = True

    return OnVirtualTime(
        "serve | unsubscribe",
        setup,
        [lambda world: world.bus.serve(), unsubscribe],
        lambda world: (len(world.seen), world.late),
        allowed=lambda outcome: not outcome[1],
        reachable=frozenset({(0, False), (1, False)}),
    )


def emit_and_subscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Who was subscribed before an emit began gets it."""

    def setup() -> World:
        world = World(make_bus)
        world.bus.subscribe(TYPE, world.handle)
        return world

    def subscribe_then_emit(world: World) -> None:
        world.bus.subscribe(TYPE, world.results.append)
        world.bus.emit(event())

    return OnVirtualTime(
        "emit | subscribe, emit",
        setup,
        [lambda world: world.bus.emit(event()), subscribe_then_emit],
        lambda world: (len(world.seen), len(world.results)),
        allowed=lambda outcome: outcome[0] == 2 and outcome[1] >= 1,
        reachable=frozenset({(2, 1), (2, 2)}),
    )


def two_emit(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Numbers are gapless, and the log is in their order."""

    def emit(world: World) -> None:
        world.results.append(world.bus.emit(event()))

    return OnVirtualTime(
        "emit | emit",
        lambda: World(make_bus),
        [emit, emit],
        lambda world: (
            tuple(sorted(world.results)),
            tuple(logged.sequence for logged in world.bus.audit_log),
        ),
        allowed=lambda outcome: outcome == ((1, 2), (1, 2)),
        reachable=frozenset({((1, 2), (1, 2))}),
    )


def two_emit_in_order(make_bus: Callable[[], Any]) -> Scenario[World]:
    """A subscriber that asked for order sees the order of the log."""

    def setup() -> World:
        world = World(make_bus)
        world.bus.subscribe(TYPE, world.handle, ordered=True)
        return world

    def emit(world: World) -> None:
        world.results.append(world.bus.emit(event()))

    def outcome(world: World) -> Any:
        world.bus.deliver_the_rest()
        return tuple(world.seen), tuple(logged.sequence for logged in world.bus.audit_log)

    return OnVirtualTime(
        "emit | emit, in order",
        setup,
        [emit, emit],
        outcome,
        allowed=lambda outcome: outcome == ((1, 2), (1, 2)),
        reachable=frozenset({((1, 2), (1, 2))}),
    )


def read_log_and_emit(make_bus: Callable[[], Any]) -> Scenario[World]:
    """The log can be read at any time; what is read is a beginning of it."""
    before = tuple(range(1, LOGGED + 1))
    after = (*before, LOGGED + 1)

    def setup() -> World:
        world = World(make_bus)
        for _ in range(LOGGED):
            world.bus.emit(event())
        return world

    def read(world: World) -> None:
        try:
            world.results.append(tuple(logged.sequence for logged in world.bus.audit_log))
        except RuntimeError as error:
            world.results.append(str(error))

    return OnVirtualTime(
        "read the log | emit",
        setup,
        [read, lambda world: world.bus.emit(event())],
        lambda world: world.results[0],
        allowed=lambda outcome: outcome in (before, after),
        reachable=frozenset({before, after}),
    )


def emit_under_an_application_lock(make_bus: Callable[[], Any]) -> Scenario[World]:
    """One thread emits under a lock of the application that another's handler needs: both end."""

    def setup() -> World:
        world = World(make_bus)
        world.bus.subscribe(TYPE, world.handle_under_app_lock)
        return world

    def emit_under_lock(world: World) -> None:
        with world.app_lock:
            world.bus.emit(event(OTHER))

    return OnVirtualTime(
        "emit | lock, emit",
        setup,
        [lambda world: world.bus.emit(event()), emit_under_lock],
        lambda world: len(world.seen),
        allowed=lambda calls: calls == 1,
        reachable=frozenset({1}),
    )


def emit_and_close(make_bus: Callable[[], Any]) -> Scenario[World]:
    """What was emitted before the end is delivered; when `close` returned nothing runs any more."""

    def setup() -> World:
        world = World(make_bus)
        world.bus.subscribe(TYPE, world.handle)
        return world

    def emit(world: World) -> None:
        try:
            world.results.append(world.bus.emit(event()))
        except Closed:
            world.results.append("closed")

    def close(world: World) -> None:
        world.bus.close()
        world.ended = True

    return OnVirtualTime(
        "emit | close",
        setup,
        [emit, close],
        lambda world: (world.results[0], len(world.seen), world.late),
        allowed=lambda outcome: outcome in ((1, 1, False), ("closed", 0, False)),
        reachable=frozenset({(1, 1, False), ("closed", 0, False)}),
    )


def hand_over(bound: int) -> Callable[[Callable[[], Any]], Scenario[World]]:
    """Two events go through a queue of that bound: both arrive, in order, and nobody sleeps through it."""

    def scenario(make_bus: Callable[..., Any]) -> Scenario[World]:
        def setup() -> World:
            world = World(lambda: make_bus(block_seconds=500.0))
            world.results.append(world.bus.subscribe(TYPE, world.handle, ordered=True, bound=bound))
            return world

        def emit(world: World) -> None:
            world.bus.emit(event())
            world.bus.emit(event())
            world.results[0].finish()

        def serve(world: World) -> None:
            began = time.monotonic()
            world.bus.serve()
            world.results.append(time.monotonic() - began < 30.0)

        return OnVirtualTime(
            f"emit, emit | serve, bound {bound}",
            setup,
            [emit, serve],
            lambda world: (tuple(world.seen), world.results[1]),
            allowed=lambda outcome: outcome == ((1, 2), True),
            reachable=frozenset({((1, 2), True)}),
        )

    scenario.__name__ = f"hand_over_{bound}"
    return scenario


def ordered_emit_and_close(make_bus: Callable[[], Any]) -> Scenario[World]:
    """What was emitted before the end reaches an ordered subscriber, too."""

    def setup() -> World:
        world = World(make_bus)
        world.bus.subscribe(TYPE, world.handle, ordered=True)
        return world

    def emit(world: World) -> None:
        try:
            world.results.append(world.bus.emit(event()))
        except Closed:
            world.results.append("closed")

    def close(world: World) -> None:
        world.bus.close()
        world.ended = True

    return OnVirtualTime(
        "emit | close | serve",
        setup,
        [emit, close, lambda world: world.bus.serve()],
        lambda world: (world.results[0], len(world.seen), world.late),
        allowed=lambda outcome: outcome in ((1, 1, False), ("closed", 0, False)),
        reachable=frozenset({(1, 1, False), ("closed", 0, False)}),
    )


HOLD = [
    ordered_emit_and_close,
    hand_over(1),
    hand_over(2),
    two_subscribe,
    two_subscribe_ordered,
    subscribe_and_unsubscribe,
    two_servers_end,
    two_fail,
    emit_and_unsubscribe,
    ordered_emit_and_unsubscribe,
    emit_and_subscribe,
    two_emit,
    two_emit_in_order,
    read_log_and_emit,
    emit_under_an_application_lock,
    emit_and_close,
]

CAUGHT = [
    (two_subscribe, PredecessorBus),
    (emit_and_unsubscribe, PredecessorBus),
    (two_emit, PredecessorBus),
    (two_emit_in_order, PredecessorBus),
    (read_log_and_emit, PredecessorBus),
    (emit_and_close, PredecessorBus),
    (emit_under_an_application_lock, LockAroundHandlersBus),
    (emit_and_unsubscribe, LockAroundSnapshotBus),
    (two_emit_in_order, LockAroundSnapshotBus),
]


@pytest.mark.parametrize("scenario", HOLD, ids=lambda scenario: scenario.__name__)
def test_holds_in_every_interleaving(scenario: Callable[[Callable[[], Any]], Scenario[World]]) -> None:
    assert_holds(scenario(Served), effort=EFFORT)


@pytest.mark.parametrize(("scenario", "naive"), CAUGHT, ids=lambda value: value.__name__)
def test_the_same_scenario_catches(
    scenario: Callable[[Callable[[], Any]], Scenario[World]], naive: type[PredecessorBus]
) -> None:
    assert_caught(scenario(naive))


# ── The set of handlers is linearizable ───────────────────────────────────────────────────────────

CALLS = st.sampled_from([Call("subscribe", ("a",)), Call("unsubscribe", ("a",)), Call("count")])
PROGRAMS = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=2, max_size=2)


def no_op(_: DomainEvent) -> None:
    """A handler that is equal to itself only."""


def perform(bus: Any, call: Call) -> Any:
    if call.name == "subscribe":
        bus.subscribe(TYPE, no_op)
        return None
    if call.name == "unsubscribe":
        return bus.unsubscribe(TYPE, no_op)
    return count(bus)


def handlers(count: int, call: Call) -> tuple[int, Any]:
    """The sequential model: how many handlers there are."""
    if call.name == "subscribe":
        return count + 1, None
    if call.name == "unsubscribe":
        return max(0, count - 1), count > 0
    return count, count


def programs_on(make_bus: Callable[[], Any], programs: Sequence[Sequence[Call]]) -> Scenario[Any]:
    return OnVirtualTime(
        "handler set",
        lambda: (make_bus(), History()),
        run_programs(programs, perform),
        lambda state: is_linearizable(state[1].operations, 0, handlers),
        allowed=lambda linearizable: bool(linearizable),
    )


@settings(max_examples=4, deadline=None, database=None, derandomize=True)
@given(programs=PROGRAMS)
def test_any_two_programs_on_the_handler_set_are_linearizable(programs: list[list[Call]]) -> None:
    for exploration in explore(programs_on(Served, programs), effort=4):
        assert exploration.violation is None, exploration.violation


def test_linearizability_catches_the_lost_subscription() -> None:
    programs = [[Call("subscribe", ("a",)), Call("count")], [Call("subscribe", ("a",)), Call("count")]]
    assert_caught(programs_on(PredecessorBus, programs))


# ── Hammers ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_hammered_by_emitters_and_subscribers_every_total_is_exact(interval: float) -> None:
    rounds = 300
    bus = ReactiveEventBus(audit_log_limit=100_000)
    inline: list[int] = []
    ordered: list[int] = []
    bus.subscribe(TYPE, lambda e: inline.append(e.sequence))
    bus.subscribe(TYPE, lambda e: ordered.append(e.sequence), ordered=True)

    def emit(number: int) -> None:
        for _ in range(rounds):
            bus.emit(event())

    def come_and_go(number: int) -> None:
        for _ in range(rounds // 3):
            mine: list[int] = []
            subscription = bus.subscribe(TYPE, lambda e, mine=mine: mine.append(e.sequence))
            own = bus.emit(event())
            assert own in mine, "who was subscribed before an emit gets it"
            bus.unsubscribe(subscription)
            calls = len(mine)
            bus.emit(event())
            assert len(mine) == calls, "nothing runs after the unsubscribe"

    with switch_interval(interval):
        hammer(lambda number: emit(number) if number % 2 else come_and_go(number))
    bus.close()
    total = 4 * rounds + 4 * 2 * (rounds // 3)
    everything = list(range(1, total + 1))
    assert sorted(inline) == everything
    assert ordered == everything
    assert [logged.sequence for logged in bus.audit_log] == everything
    assert bus.statistics().emitted == total


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
@pytest.mark.parametrize("bound", [1, 7])
def test_hammered_through_a_small_queue_nothing_is_lost_or_reordered(interval: float, bound: int) -> None:
    bus = ReactiveEventBus(block_seconds=60.0)
    seen: list[int] = []
    bus.subscribe(None, lambda e: seen.append(e.sequence), ordered=True, bound=bound)
    with switch_interval(interval):
        hammer(lambda number: [bus.emit(event()) for _ in range(100)])
    bus.close()
    assert seen == list(range(1, 801))


def test_hammered_by_failing_handlers_every_failure_and_drop_is_counted() -> None:
    bus = ReactiveEventBus()
    release = threading.Event()
    bus.subscribe(TYPE, lambda e: [][1])
    bus.subscribe(TYPE, lambda e: release.wait(60), ordered=True, bound=10, overflow=Overflow.DROP_OLDEST)
    hammer(lambda number: [bus.emit(event()) for _ in range(100)])
    waiting = bus.statistics().waiting
    release.set()
    bus.close()
    delivered_or_taken = 800 - bus.statistics().dropped
    assert waiting == 10
    assert 11 <= delivered_or_taken <= 10 + 256
    assert bus.statistics().failures == 800
