"""Ordered subscribers of the event bus under explored interleavings: all events arrive, once and in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.races.event_bus_world import (
    EFFORT,
    TYPE,
    MakeScenario,
    OnVirtualTime,
    Served,
    World,
    close,
    emit,
    emit_or_find_closed,
    event,
    listening,
)
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_event_bus import LockAroundSnapshotBus, PredecessorBus


def ordered_emit_and_close(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Events emitted before the close reach an ordered subscriber, too."""

    return OnVirtualTime(
        "emit | close | serve",
        lambda: listening(make_bus, ordered=True),
        [emit_or_find_closed, close, lambda world: world.bus.serve()],
        lambda world: (world.results[0], len(world.seen), world.late),
        allowed=lambda outcome: outcome in ((1, 1, False), ("closed", 0, False)),
        reachable=frozenset({(1, 1, False), ("closed", 0, False)}),
    )


def hand_over(bound: int) -> MakeScenario:
    """Two events through a queue of this bound arrive in order, and no thread misses its wake-up."""

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


def two_subscribe_ordered(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Both ordered subscriptions are active, too."""

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


def two_servers_end(make_bus: Callable[[], Any]) -> Scenario[World]:
    """Threads of ordered subscribers that end concurrently are both removed."""

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


def ordered_emit_and_unsubscribe(make_bus: Callable[[], Any]) -> Scenario[World]:
    """The same for an ordered subscriber, whose handler runs on another thread."""

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


def two_emit_in_order(make_bus: Callable[[], Any]) -> Scenario[World]:
    """An ordered subscriber sees the order of the log."""

    def outcome(world: World) -> Any:
        world.bus.deliver_the_rest()
        return tuple(world.seen), tuple(logged.sequence for logged in world.bus.audit_log)

    return OnVirtualTime(
        "emit | emit, in order",
        lambda: listening(make_bus, ordered=True),
        [emit, emit],
        outcome,
        allowed=lambda outcome: outcome == ((1, 2), (1, 2)),
        reachable=frozenset({((1, 2), (1, 2))}),
    )


HOLD = [
    ordered_emit_and_close,
    hand_over(1),
    hand_over(2),
    two_subscribe_ordered,
    two_servers_end,
    ordered_emit_and_unsubscribe,
    two_emit_in_order,
]

CAUGHT = [(two_emit_in_order, PredecessorBus), (two_emit_in_order, LockAroundSnapshotBus)]


@pytest.mark.parametrize("scenario", HOLD, ids=lambda scenario: scenario.__name__)
def test_holds_in_every_interleaving(scenario: MakeScenario) -> None:
    assert_holds(scenario(Served), effort=EFFORT)


@pytest.mark.parametrize(("scenario", "naive"), CAUGHT, ids=lambda value: value.__name__)
def test_the_same_scenario_catches(scenario: MakeScenario, naive: type[PredecessorBus]) -> None:
    assert_caught(scenario(naive))
