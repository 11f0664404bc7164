"""The event bus as a whole: its handler set is linearizable, and under hammers every total is exact."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.core.event import DomainEvent
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.events.subscription import Overflow
from tests.races.event_bus_world import (
    TYPE,
    OnVirtualTime,
    Served,
    count,
    event,
)
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.linearizability import Call, History, is_linearizable, run_programs
from tests.races.naive_event_bus import PredecessorBus

# ── The set of handlers is linearizable ───────────────────────────────────────────────────────────

CALLS = st.sampled_from([Call("subscribe", ("a",)), Call("unsubscribe", ("a",)), Call("count")])
PROGRAMS = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=2, max_size=2)


def no_op(_: DomainEvent) -> None:
    """Return a handler that is equal to itself only."""


def perform(bus: Any, call: Call) -> Any:
    if call.name == "subscribe":
        bus.subscribe(TYPE, no_op)
        return None
    if call.name == "unsubscribe":
        return bus.unsubscribe(TYPE, no_op)
    return count(bus)


def handlers(count: int, call: Call) -> tuple[int, Any]:
    """The sequential model: the number of handlers."""
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
    assert_holds(programs_on(Served, programs), effort=4)


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
    began, release = threading.Event(), threading.Event()

    def slow(_: DomainEvent) -> None:
        began.set()
        release.wait(60)

    bus.subscribe(TYPE, lambda e: [][1])
    bus.subscribe(TYPE, slow, ordered=True, bound=10, overflow=Overflow.DROP_OLDEST)
    bus.emit(event())
    assert began.wait(60)  # the serving thread is busy from here on, and takes nothing more
    hammer(lambda number: [bus.emit(event()) for _ in range(100)])
    waiting = bus.statistics().waiting
    release.set()
    bus.close()
    assert waiting == 10
    assert bus.statistics().dropped == 800 - 10
    assert bus.statistics().failures == 801


def test_a_thread_that_waited_for_the_bus_stands_back_unless_it_may_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = ReactiveEventBus()
    patient, stood_back = set[int](), set[int]()
    monkeypatch.setattr(time, "sleep", lambda _: stood_back.add(threading.get_ident()))
    give_up = time.monotonic() + 60

    def emit(number: int) -> None:
        wait = number % 2 == 0
        if wait:
            patient.add(threading.get_ident())
        while not stood_back and time.monotonic() < give_up:
            for _ in range(200):
                bus.emit(event(), wait=wait)

    with switch_interval(SWITCH_INTERVALS[1]):
        hammer(emit, seconds_limit=90.0)
    assert stood_back, "a convoy would never end"
    assert stood_back <= patient
