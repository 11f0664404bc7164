"""Steps for the circuit breaker and the strategy executor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from behave import given, then, when

from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.core.errors import BreakerOpen
from cleveragents.testing.clock import FakeClock
from tests.races.hammer import hammer

LONG = 60.0


def at_once(*acts: Callable[[], object]) -> list[Any]:
    """What each gives, run on threads that one barrier releases."""
    answers: list[Any] = [None] * len(acts)

    def run(number: int) -> None:
        answers[number] = acts[number]()

    hammer(run, threads=len(acts), seconds_limit=LONG)
    return answers


class Strategy:
    """A context strategy made of a function."""

    def __init__(self, name: str, act: Callable[[], Any]) -> None:
        self.name = name
        self._act = act

    def retrieve(self, request: ContextRequest, cancelled: object) -> Any:
        return self._act()


@given("a circuit breaker that opens after {threshold:d} failure")
@given("a circuit breaker that opens after {threshold:d} failures")
def a_breaker(context: Any, threshold: int) -> None:
    context.clock = FakeClock()
    context.breaker = CircuitBreaker(failure_threshold=threshold, clock=context.clock.monotonic)


@given('a breaker permit for "{name}" is out')
def a_permit(context: Any, name: str) -> None:
    context.permit = context.breaker.acquire(name)


@given('a failure of "{name}" is recorded by the circuit breaker')
@when('a failure of "{name}" is recorded by the circuit breaker')
def record_failure(context: Any, name: str) -> None:
    context.breaker.record_failure(name)


@given("the circuit breaker has cooled down")
def cool_down(context: Any) -> None:
    context.clock.advance(context.breaker.cool_down_seconds)


@when('{threads:d} threads released by a breaker barrier each record {times:d} failures of "{name}"')
def record_many(context: Any, threads: int, times: int, name: str) -> None:
    def fail() -> None:
        for _ in range(times):
            context.breaker.record_failure(name)

    at_once(*[fail] * threads)


@when('a success and a failure of "{name}" are recorded from behind a breaker barrier {times:d} times')
def record_both(context: Any, name: str, times: int) -> None:
    context.seen = []
    breaker = context.breaker
    for _ in range(times):
        breaker.reset(name)
        at_once(lambda: breaker.record_success(name), lambda: breaker.record_failure(name))
        circuit = breaker.statistics().circuits[name]
        context.seen.append((breaker.is_open(name), circuit.consecutive_failures))


@when("the breaker permit reports a success")
def permit_succeeds(context: Any) -> None:
    assert context.permit.success()


@when('{threads:d} threads released by a breaker barrier ask for "{name}"')
def ask(context: Any, threads: int, name: str) -> None:
    def acquire() -> Any:
        try:
            return context.breaker.acquire(name)
        except BreakerOpen:
            return None

    context.permits = at_once(*[acquire] * threads)


@then('the circuit breaker counts {count:d} failures in a row of "{name}"')
def counts(context: Any, count: int, name: str) -> None:
    assert context.breaker.statistics().circuits[name].consecutive_failures == count


@then('the circuit breaker is open for "{name}"')
def is_open(context: Any, name: str) -> None:
    assert context.breaker.is_open(name)


@then("each time the circuit breaker was open exactly if the failure came last")
def one_of_two_states(context: Any) -> None:
    assert set(context.seen) <= {(True, 1), (False, 0)}, set(context.seen)


@then("exactly {count:d} of them gets a breaker permit")
def admitted(context: Any, count: int) -> None:
    assert sum(permit is not None for permit in context.permits) == count


@given("a strategy executor with {threads:d} thread")
def an_executor(context: Any, threads: int) -> None:
    context.clock = FakeClock()
    context.gate = threading.Event()
    context.executor = ParallelStrategyExecutor(max_workers=threads, clock=context.clock.monotonic)
    context.strategies = []

    def clean_up() -> None:
        context.gate.set()
        assert context.executor.close(LONG) == ()

    context.add_cleanup(clean_up)


@given('a context strategy "{name}" that finds something')
def a_good_strategy(context: Any, name: str) -> None:
    context.strategies.append(Strategy(name, lambda: [ContextFragment("a.py", "text", 1.0, name)]))


@given('a context strategy "{name}" that lets the time run out and never answers')
def a_hung_strategy(context: Any, name: str) -> None:
    def hang() -> None:
        context.clock.advance(10.0)
        context.gate.wait(LONG)

    context.strategies.append(Strategy(name, hang))


@when("the strategy executor runs them")
def run_them(context: Any) -> None:
    context.report = context.executor.execute(
        context.strategies, ContextRequest("where?"), deadline_seconds=10.0
    )


@then('the strategy executor reports "{name}" as {status}')
def reports(context: Any, name: str, status: str) -> None:
    found = {report.name: report.status.value for report in context.report.strategies}
    assert found[name] == status, found


@then('closing the strategy executor names "{name}" as still running')
def closing(context: Any, name: str) -> None:
    assert context.executor.close(0.0) == (name,)
