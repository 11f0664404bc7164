"""A bus under test and a record of its handlers, for every file that explores the event bus.

Threads serve ordered subscribers, but an explorer must own every thread. So a worker of the scenario serves
here: `Served` is a bus whose threads are functions that wait to be run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cleveragents.core.errors import Closed
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.events.reactive import ReactiveEventBus
from tests.races.explorers import Scenario
from tests.races.naive_event_bus import PredecessorBus

__all__ = [
    "EFFORT",
    "OTHER",
    "TYPE",
    "MakeScenario",
    "OnVirtualTime",
    "Served",
    "World",
    "close",
    "count",
    "emit",
    "emit_or_find_closed",
    "event",
    "listening",
]

EFFORT = 24
# Emitters and subscribers wait with deadlines.
OnVirtualTime = partial(Scenario, clock="virtual")
TYPE = EventType.JOB_CLAIMED
OTHER = EventType.JOB_FAILED


def event(event_type: EventType = TYPE) -> DomainEvent:
    return DomainEvent(event_type, "subject", "id", datetime(2026, 1, 1, tzinfo=UTC))


class Served(ReactiveEventBus):
    """Our bus, whose ordered subscribers are served by the caller of `serve`."""

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
    """A bus, and the events that its handlers saw."""

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


MakeScenario = Callable[[Callable[[], Any]], Scenario[World]]


def listening(make_bus: Callable[[], Any], **options: Any) -> World:
    """Return a world with a subscribed handler."""
    world = World(make_bus)
    world.bus.subscribe(TYPE, world.handle, **options)
    return world


def emit(world: World) -> None:
    """Emit, and record the number."""
    world.results.append(world.bus.emit(event()))


def emit_or_find_closed(world: World) -> None:
    """Emit, and record the number or that the bus was closed."""
    try:
        emit(world)
    except Closed:
        world.results.append("closed")


def close(world: World) -> None:
    """Close the bus; a handler that runs after this is late."""
    world.bus.close()
    world.ended = True
