"""The guarantees of the circuit breaker, one call at a time."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import pytest

from cleveragents.context.executor import CircuitBreaker
from cleveragents.core.circuit_breaker import BreakerEvents, BreakerState, BreakerTransition
from cleveragents.core.errors import BreakerOpen, Cancelled
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.testing.clock import CountingIdentifiers, FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker(cool_down_seconds=30.0, trial_lease_seconds=60.0, clock=clock.monotonic)


def trip(breaker: CircuitBreaker, name: str = "s") -> None:
    for _ in range(breaker.failure_threshold):
        breaker.record_failure(name)


def state(breaker: CircuitBreaker, name: str = "s") -> BreakerState:
    return breaker.statistics().circuits[name].state


def test_opens_at_the_threshold_and_for_that_name_alone() -> None:
    breaker = CircuitBreaker()
    assert breaker.failure_threshold == 3
    for expected in (False, False, True):
        breaker.record_failure("s")
        assert breaker.is_open("s") is expected
    assert not breaker.is_open("other")
    breaker.acquire("other")


def test_a_success_forgets_the_failures_before_it(breaker: CircuitBreaker) -> None:
    for _ in range(5):
        breaker.record_failure("s")
        breaker.record_failure("s")
        breaker.acquire("s").success()
    assert not breaker.is_open("s")


def test_refuses_with_the_time_that_is_left(breaker: CircuitBreaker, clock: FakeClock) -> None:
    trip(breaker)
    clock.advance(10.0)
    with pytest.raises(BreakerOpen) as refused:
        breaker.acquire("s")
    assert (refused.value.name, refused.value.retry_after_seconds) == ("s", 20.0)


def test_failures_while_open_are_counted_and_do_not_prolong_it(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    trip(breaker)
    clock.advance(29.0)
    breaker.record_failure("s")
    clock.advance(1.0)
    assert not breaker.is_open("s")
    assert breaker.statistics().circuits["s"].consecutive_failures == 4


def test_after_the_cool_down_one_trial_decides(breaker: CircuitBreaker, clock: FakeClock) -> None:
    trip(breaker)
    clock.advance(30.0)
    assert not breaker.is_open("s"), "somebody could get the trial"
    trial = breaker.acquire("s")
    assert breaker.is_open("s"), "nobody else can"
    assert state(breaker) is BreakerState.HALF_OPEN
    trial.failure()
    assert state(breaker) is BreakerState.OPEN
    clock.advance(30.0)
    breaker.acquire("s").success()
    assert state(breaker) is BreakerState.CLOSED
    breaker.record_failure("s")
    assert not breaker.is_open("s"), "closing forgot the failures"


def test_a_failure_without_a_permit_is_a_failed_trial_once_cooled(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    trip(breaker)
    clock.advance(30.0)
    breaker.record_failure("s")
    assert breaker.is_open("s")
    clock.advance(30.0)
    breaker.record_success("s")
    assert state(breaker) is BreakerState.CLOSED


def test_a_hung_trial_loses_its_lease(breaker: CircuitBreaker, clock: FakeClock) -> None:
    trip(breaker)
    clock.advance(30.0)
    hung = breaker.acquire("s")
    clock.advance(60.0)
    second = breaker.acquire("s")
    assert hung.success(), "it is settled by this,"
    assert state(breaker) is BreakerState.HALF_OPEN, "and says nothing for the second"
    second.failure()
    assert state(breaker) is BreakerState.OPEN


@pytest.mark.parametrize(
    "cancellation", [Cancelled("stop"), asyncio.CancelledError(), concurrent.futures.CancelledError()]
)
def test_a_cancellation_is_not_a_failure(
    breaker: CircuitBreaker, clock: FakeClock, cancellation: BaseException
) -> None:
    for _ in range(5):
        assert breaker.acquire("s").failure(cancellation)
    assert not breaker.is_open("s")
    trip(breaker)
    clock.advance(30.0)
    breaker.acquire("s").failure(cancellation)
    breaker.acquire("s").success()
    assert state(breaker) is BreakerState.CLOSED


def test_a_reset_makes_permits_stale(breaker: CircuitBreaker) -> None:
    permits = [breaker.acquire("s") for _ in range(3)]
    breaker.reset("s")
    for permit in permits:
        permit.failure(ValueError("late"))
    circuit = breaker.statistics().circuits["s"]
    assert (circuit.stale, circuit.failures, circuit.consecutive_failures) == (3, 0, 0)


def test_reset_all_closes_everything(breaker: CircuitBreaker) -> None:
    trip(breaker, "a")
    trip(breaker, "b")
    breaker.reset_all()
    assert not breaker.is_open("a")
    assert not breaker.is_open("b")
    breaker.reset("unknown")


def test_statistics_are_exact_and_frozen(breaker: CircuitBreaker, clock: FakeClock) -> None:
    out = breaker.acquire("s")
    breaker.acquire("s").success()
    breaker.acquire("s").release()
    for _ in range(3):
        breaker.acquire("s").failure()
    with pytest.raises(BreakerOpen):
        breaker.acquire("s")
    clock.advance(30.0)
    breaker.acquire("s").success()
    out.failure()
    before = breaker.statistics()
    circuit = before.circuits["s"]
    assert (circuit.state, circuit.consecutive_failures) == (BreakerState.CLOSED, 0)
    assert (circuit.opened, circuit.trials, circuit.refused) == (1, 1, 1)
    assert (circuit.admitted, circuit.in_flight) == (7, 0)
    assert (circuit.successes, circuit.failures, circuit.released, circuit.stale) == (2, 3, 1, 1)
    breaker.acquire("s")
    assert before.circuits["s"] == circuit
    frozen: Any = before.circuits
    with pytest.raises(TypeError):
        frozen["s"] = circuit


@pytest.mark.parametrize(
    "wrong",
    [
        {"failure_threshold": 0},
        {"cool_down_seconds": -1.0},
        {"cool_down_seconds": float("nan")},
        {"trial_lease_seconds": 0.0},
        {"trial_lease_seconds": float("inf")},
    ],
)
def test_refuses_numbers_that_make_no_breaker(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CircuitBreaker(**wrong)


# ── Announcements ─────────────────────────────────────────────────────────────────────────────────


def test_a_listener_may_use_the_breaker_and_may_fail(clock: FakeClock) -> None:
    heard: list[BreakerState] = []

    def listen(transition: BreakerTransition) -> None:
        heard.append(transition.state)
        if transition.state is BreakerState.OPEN:
            breaker.reset("s")
            raise RuntimeError("a listener's trouble is not the caller's")

    breaker = CircuitBreaker(failure_threshold=1, clock=clock.monotonic, on_transition=listen)
    breaker.record_failure("s")
    assert heard == [BreakerState.OPEN, BreakerState.CLOSED]
    breaker.record_failure("s")
    assert len(heard) == 4, "it still listens"


def test_an_interrupted_listener_does_not_silence_the_next(clock: FakeClock) -> None:
    heard: list[str] = []

    def listen(transition: BreakerTransition) -> None:
        heard.append(transition.name)
        if transition.name == "a":
            raise KeyboardInterrupt

    breaker = CircuitBreaker(failure_threshold=1, clock=clock.monotonic, on_transition=listen)
    with pytest.raises(KeyboardInterrupt):
        breaker.record_failure("a")
    breaker.record_failure("b")
    assert heard == ["a", "b"]


def test_a_slow_listener_loses_the_oldest_transitions_and_they_are_counted() -> None:
    heard: list[BreakerTransition] = []

    def listen(transition: BreakerTransition) -> None:
        heard.append(transition)
        if len(heard) == 1:
            for _ in range(600):
                breaker.record_success("s")
                breaker.record_failure("s")

    breaker = CircuitBreaker(failure_threshold=1, on_transition=listen)
    breaker.record_failure("s")
    assert len(heard) == 1 + 1024
    assert breaker.statistics().unannounced_lost == 1200 - 1024
    assert heard[-1].state is BreakerState.OPEN


def test_openings_and_closings_become_events(clock: FakeClock) -> None:
    class Publisher:
        def __init__(self) -> None:
            self.events: list[DomainEvent] = []

        def emit(self, event: DomainEvent, *, wait: bool) -> int:
            assert not wait
            self.events.append(event)
            return len(self.events)

    publisher = Publisher()
    breaker = CircuitBreaker(
        failure_threshold=1,
        clock=clock.monotonic,
        on_transition=BreakerEvents(publisher, clock, CountingIdentifiers()),
    )
    breaker.record_failure("s")
    clock.advance(30.0)
    breaker.acquire("s").success()
    assert [(e.event_type, e.subject) for e in publisher.events] == [
        (EventType.BREAKER_OPENED, "s"),
        (EventType.BREAKER_CLOSED, "s"),
    ]
    assert publisher.events[0].payload["consecutive_failures"] == 1
