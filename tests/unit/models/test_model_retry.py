"""Retries: which failures, how often, with which waits, and never once an answer has begun."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from cleveragents.core.errors import ContextTooLong, ModelRefused, ModelUnavailable
from cleveragents.models.model_wrappers import RetryingModel, RetryPolicy
from tests.model_stand import FACTS, REPLY, REQUEST, EndingModel, unavailable


@dataclass
class Time:
    """A clock that advances only during sleeps."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def patience(self, *, retries: int = 4, seconds: float = 300.0, lot: float = 1.0) -> RetryPolicy:
        return RetryPolicy(
            retries=retries, seconds=seconds, sleep=self.sleep, clock=lambda: self.now, lot=lambda: lot
        )


@pytest.fixture
def time() -> Time:
    return Time()


def test_an_unanswered_call_is_retried(time: Time) -> None:
    model = EndingModel([unavailable(), unavailable()])
    assert asyncio.run(RetryingModel(model, time.patience()).reply(REQUEST)) is REPLY
    assert model.calls == 3


def test_waits_double_up_to_half_a_minute_and_are_drawn_by_lot(time: Time) -> None:
    model = EndingModel([unavailable() for _ in range(8)])
    asyncio.run(RetryingModel(model, time.patience(retries=8)).reply(REQUEST))
    assert time.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    shorter = Time()
    model = EndingModel([unavailable() for _ in range(3)])
    asyncio.run(RetryingModel(model, shorter.patience(lot=0.0)).reply(REQUEST))
    assert shorter.slept == [0.25, 0.5, 1.0]


def test_a_providers_retry_delay_is_followed(time: Time) -> None:
    model = EndingModel([unavailable(20.0), unavailable(0.0)])
    asyncio.run(RetryingModel(model, time.patience()).reply(REQUEST))
    assert time.slept == [20.25, 0.5]  # plus a random share, so that not all callers return at once


def test_retries_are_bounded(time: Time) -> None:
    model = EndingModel([unavailable() for _ in range(9)])
    with pytest.raises(ModelUnavailable):
        asyncio.run(RetryingModel(model, time.patience(retries=2)).reply(REQUEST))
    assert model.calls == 3


def test_without_retries_a_call_is_made_once(time: Time) -> None:
    model = EndingModel([unavailable()])
    with pytest.raises(ModelUnavailable):
        asyncio.run(RetryingModel(model, time.patience(retries=0)).reply(REQUEST))
    assert (model.calls, time.slept) == (1, [])


def test_a_wait_that_would_end_too_late_is_not_begun(time: Time) -> None:
    model = EndingModel([unavailable(), unavailable(30.0)])
    with pytest.raises(ModelUnavailable) as caught:
        asyncio.run(RetryingModel(model, time.patience(seconds=20)).reply(REQUEST))
    assert caught.value.retry_after_seconds == 30.0
    assert "try again in 30 s, or choose another" in str(caught.value)
    assert time.slept == [0.5]


@pytest.mark.parametrize("error", [ModelRefused("m", "no"), ContextTooLong("m", 2, 1), ZeroDivisionError()])
def test_permanent_failures_are_not_retried(time: Time, error: Exception) -> None:
    model = EndingModel([error])
    with pytest.raises(type(error)):
        asyncio.run(RetryingModel(model, time.patience()).reply(REQUEST))
    assert model.calls == 1


@pytest.mark.parametrize("piece", ["one", ""])
def test_an_answer_that_has_begun_is_not_begun_again(time: Time, piece: str) -> None:
    """The listener has received the piece; an empty one marks the start of a tool call, which is charged."""
    heard: list[str] = []
    model = EndingModel([[piece], unavailable()])
    with pytest.raises(ModelUnavailable):
        asyncio.run(RetryingModel(model, time.patience()).reply(REQUEST, heard.append))
    assert (model.calls, heard) == (1, [piece])


def test_an_answer_starts_without_a_listener(time: Time) -> None:
    model = EndingModel([["one"], unavailable()])
    with pytest.raises(ModelUnavailable):
        asyncio.run(RetryingModel(model, time.patience()).reply(REQUEST))
    assert model.calls == 1


def test_a_chargeable_failure_is_not_retried_on_one_reservation(time: Time) -> None:
    model = EndingModel([ModelUnavailable("m", "no word", charged=True)])
    with pytest.raises(ModelUnavailable):
        asyncio.run(RetryingModel(model, time.patience()).reply(REQUEST))
    assert model.calls == 1


def test_pieces_of_a_later_attempt_are_delivered(time: Time) -> None:
    heard: list[str] = []
    model = EndingModel([unavailable(), ["a", "b"]])
    asyncio.run(RetryingModel(model, time.patience()).reply(REQUEST, heard.append))
    assert heard == ["a", "b"]


def test_a_cancelled_wait_makes_no_further_call() -> None:
    async def cancelled() -> int:
        waiting = asyncio.Event()

        async def wait_for_ever(seconds: float) -> None:
            waiting.set()
            await asyncio.Event().wait()

        model = EndingModel([unavailable()])
        patience = RetryPolicy(retries=3, seconds=60, sleep=wait_for_ever)
        call = asyncio.ensure_future(RetryingModel(model, patience).reply(REQUEST))
        await asyncio.wait_for(waiting.wait(), 30)
        call.cancel()
        await asyncio.wait({call}, timeout=30)
        assert call.cancelled()
        return model.calls

    assert asyncio.run(cancelled()) == 1


def test_wrapped_models_pass_their_facts_on(time: Time) -> None:
    model = RetryingModel(EndingModel(), time.patience())
    assert (model.facts, model.count_tokens(REQUEST)) == (FACTS, 42)
