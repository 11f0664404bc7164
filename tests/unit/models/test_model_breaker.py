"""The circuit breaker and the deadline around a model: which failures count, and for which provider."""

from __future__ import annotations

import asyncio

import pytest

from cleveragents.context.executor import CircuitBreaker
from cleveragents.core.errors import ModelRefused, ModelUnavailable
from cleveragents.models.model_wrappers import BreakingModel, DeadlineModel
from cleveragents.testing.clock import FakeClock
from tests.model_stand import FACTS, REPLY, REQUEST, EndingModel, unavailable


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker(failure_threshold=2, cool_down_seconds=30, clock=clock.monotonic)


def fail(model: BreakingModel, error: type[Exception] = ModelUnavailable) -> Exception:
    with pytest.raises(error) as caught:
        asyncio.run(model.reply(REQUEST))
    return caught.value


def test_calls_to_a_failing_provider_are_paused(clock: FakeClock, breaker: CircuitBreaker) -> None:
    inner = EndingModel([unavailable(), unavailable()])
    model = BreakingModel(inner, breaker, "test")
    fail(model)
    fail(model)
    clock.advance(10)
    refused = fail(model)
    assert isinstance(refused, ModelUnavailable)
    assert refused.retry_after_seconds == 20
    assert "calls are paused for 20 s" in str(refused)
    assert inner.calls == 2
    clock.advance(20)
    assert asyncio.run(model.reply(REQUEST)) is REPLY


def test_all_models_of_a_provider_share_its_failures(breaker: CircuitBreaker) -> None:
    one = BreakingModel(EndingModel([unavailable()]), breaker, "test")
    other = BreakingModel(EndingModel([unavailable()]), breaker, "test")
    elsewhere = BreakingModel(EndingModel(), breaker, "elsewhere")
    fail(one)
    fail(other)
    assert "calls are paused" in str(fail(one))
    assert asyncio.run(elsewhere.reply(REQUEST)) is REPLY


def test_an_answer_forgets_failures(breaker: CircuitBreaker) -> None:
    inner = EndingModel([unavailable(), REPLY, unavailable(), REPLY])
    model = BreakingModel(inner, breaker, "test")
    for _ in range(2):
        fail(model)
        assert asyncio.run(model.reply(REQUEST)) is REPLY
    assert inner.calls == 4


def test_refusals_do_not_count(breaker: CircuitBreaker) -> None:
    model = BreakingModel(EndingModel([ModelRefused("m", "no") for _ in range(5)]), breaker, "test")
    for _ in range(5):
        fail(model, ModelRefused)
    assert asyncio.run(model.reply(REQUEST)) is REPLY
    assert breaker.statistics().circuits["test"].failures == 0


def test_cancellations_do_not_count_and_jam_nothing(clock: FakeClock, breaker: CircuitBreaker) -> None:
    """The trial of a half-open breaker is cancelled; the next call may try immediately."""
    inner = EndingModel([unavailable(), unavailable()])
    model = BreakingModel(inner, breaker, "test")
    fail(model)
    fail(model)
    clock.advance(30)

    async def cancelled() -> None:
        inner.ends.append(asyncio.Event())
        call = asyncio.ensure_future(model.reply(REQUEST))
        await asyncio.wait({call}, timeout=0.01)
        call.cancel()
        await asyncio.wait({call}, timeout=30)
        assert call.cancelled()

    asyncio.run(cancelled())
    assert asyncio.run(model.reply(REQUEST)) is REPLY


def test_wrapped_models_pass_their_facts_on(breaker: CircuitBreaker) -> None:
    for model in (BreakingModel(EndingModel(), breaker, "test"), DeadlineModel(EndingModel(), 1)):
        assert (model.facts, model.count_tokens(REQUEST)) == (FACTS, 42)


def test_an_answer_that_takes_too_long_is_an_error() -> None:
    async def late() -> int:
        inner = EndingModel([asyncio.Event()])
        with pytest.raises(ModelUnavailable, match=r"no answer within 0\.01 s") as caught:
            await DeadlineModel(inner, 0.01).reply(REQUEST)
        assert caught.value.charged  # the provider has the request and may still be working on it
        return inner.running

    assert asyncio.run(late()) == 0


def test_an_answer_in_time_is_passed_on() -> None:
    heard: list[str] = []
    model = DeadlineModel(EndingModel([["a"]]), 60)
    assert asyncio.run(model.reply(REQUEST, heard.append)) is REPLY
    assert heard == ["a"]


def test_a_foreign_timeout_is_raised_unchanged() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(DeadlineModel(EndingModel([TimeoutError()]), 60).reply(REQUEST))


def test_a_timeout_of_the_caller_stays_a_timeout() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await DeadlineModel(EndingModel([asyncio.Event()]), 60).reply(REQUEST)

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
