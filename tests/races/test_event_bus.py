"""The event bus under explored interleavings: its guarantees hold, and its predecessors are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cleveragents.events.subscription import DeliveryTally
from tests.races.event_bus_world import (
    EFFORT,
    OTHER,
    TYPE,
    MakeScenario,
    OnVirtualTime,
    Served,
    World,
    close,
    count,
    emit,
    emit_or_find_closed,
    event,
    listening,
)
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_event_bus import LockAroundHandlersBus, LockAroundSnapshotBus, PredecessorBus

LOGGED = 12


def two_subscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Both subscriptions are active."""

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


def subscribe_and_unsubscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """One is added, another removed: the first is active, the second is not."""

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

    def unsubscribe(world: World) -> None:
        world.bus.unsubscribe(TYPE, world.handle)
        world.ended = True

    return OnVirtualTime(
        "emit | unsubscribe",
        lambda: listening(make_bus),
        [lambda world: world.bus.emit(event()), unsubscribe],
        lambda world: (len(world.seen), world.late),
        allowed=lambda outcome: not outcome[1],
        reachable=frozenset({(0, False), (1, False)}),
    )


def emit_and_subscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """A handler subscribed before an emit began gets the event."""

    def subscribe_then_emit(world: World) -> None:
        world.bus.subscribe(TYPE, world.results.append)
        world.bus.emit(event())

    return OnVirtualTime(
        "emit | subscribe, emit",
        lambda: listening(make_bus),
        [lambda world: world.bus.emit(event()), subscribe_then_emit],
        lambda world: (len(world.seen), len(world.results)),
        allowed=lambda outcome: outcome[0] == 2 and outcome[1] >= 1,
        reachable=frozenset({(2, 1), (2, 2)}),
    )


def two_emit(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Numbers are gapless, and the log is in their order."""

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


def read_log_and_emit(make_bus: Callable[[], Any]) -> Scenario[World]:
    """The log can be read at any time; the result is a prefix of it."""
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
    """One thread emits under an application lock that another thread's handler needs: both end."""

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
    """Events emitted before the close are delivered; when `close` returned nothing runs any more."""

    return OnVirtualTime(
        "emit | close",
        lambda: listening(make_bus),
        [emit_or_find_closed, close],
        lambda world: (world.results[0], len(world.seen), world.late),
        allowed=lambda outcome: outcome in ((1, 1, False), ("closed", 0, False)),
        reachable=frozenset({(1, 1, False), ("closed", 0, False)}),
    )


HOLD = [
    two_subscribe,
    subscribe_and_unsubscribe,
    two_fail,
    emit_and_unsubscribe,
    emit_and_subscribe,
    two_emit,
    read_log_and_emit,
    emit_under_an_application_lock,
    emit_and_close,
]

CAUGHT = [
    (two_subscribe, PredecessorBus),
    (emit_and_unsubscribe, PredecessorBus),
    (two_emit, PredecessorBus),
    (read_log_and_emit, PredecessorBus),
    (emit_and_close, PredecessorBus),
    (emit_under_an_application_lock, LockAroundHandlersBus),
    (emit_and_unsubscribe, LockAroundSnapshotBus),
]


@pytest.mark.parametrize("scenario", HOLD, ids=lambda scenario: scenario.__name__)
def test_holds_in_every_interleaving(scenario: MakeScenario) -> None:
    assert_holds(scenario(Served), effort=EFFORT)


@pytest.mark.parametrize(("scenario", "naive"), CAUGHT, ids=lambda value: value.__name__)
def test_the_same_scenario_catches(scenario: MakeScenario, naive: type[PredecessorBus]) -> None:
    assert_caught(scenario(naive))
