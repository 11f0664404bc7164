"""Steps of cancellation.feature: real threads, released at once by a barrier."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from behave import given, then, when

from cleveragents.jobs.worker.async_worker import CancellationToken
from tests.races.hammer import hammer

LONG = 30.0


def at_once(*acts: Callable[[], object]) -> None:
    hammer(lambda number: acts[number](), threads=len(acts), seconds_limit=LONG)


@given("a cancellation token")
def step_token(context: Any) -> None:
    context.token = CancellationToken()
    context.wins = []


@given("a cancellation token that {runs:d} runs hold a view of")
def step_token_with_runs(context: Any, runs: int) -> None:
    step_token(context)
    context.runs = [context.token.view() for _ in range(runs)]


@given("a cancellation token with two children")
def step_token_with_children(context: Any) -> None:
    step_token(context)
    context.children = [context.token.child(), context.token.child()]


@when("{cancels:d} threads cancel the token and {resets:d} threads reset it at once, {times:d} times over")
def step_cancel_and_reset_at_once(context: Any, cancels: int, resets: int, times: int) -> None:
    token = context.token
    cancelling = [lambda: context.wins.append(token.cancel("stop"))] * cancels
    for _ in range(times):
        at_once(*cancelling, *[token.reset] * resets)


@when("each run waits for the token while it is cancelled and at once reset")
def step_wait_through_reset(context: Any) -> None:
    context.waited = []

    def cancel_and_reset() -> None:
        context.token.cancel("stop")
        context.token.reset()

    waiting = [lambda run=run: context.waited.append(run.wait(LONG)) for run in context.runs]
    at_once(cancel_and_reset, *waiting)


@when('the token is cancelled because of "{reason}"')
def step_cancel(context: Any, reason: str) -> None:
    context.wins.append(context.token.cancel(reason))


@when("the token's first child is cancelled")
def step_cancel_child(context: Any) -> None:
    context.children[0].cancel("its own")


@when("children of the token are made at the moment of its cancel, {times:d} times over")
def step_children_during_cancel(context: Any, times: int) -> None:
    context.born = []
    for _ in range(times):
        token = CancellationToken()
        at_once(token.cancel, lambda token=token: context.born.append(token.child()))


@when("the token's callbacks are closed at the moment of its cancel, {times:d} times over")
def step_close_during_cancel(context: Any, times: int) -> None:
    context.ends = []
    for _ in range(times):
        ran: list[int] = []
        prevented: list[bool] = []
        registration = context.token.on_cancel(lambda ran=ran: ran.append(1))
        at_once(
            context.token.cancel,
            lambda registration=registration, prevented=prevented: prevented.append(registration.close()),
        )
        context.token.reset()
        context.ends.append(len(ran) + sum(prevented))


@when("a task awaits the token and another thread cancels and resets it")
def step_await(context: Any) -> None:
    async def main() -> bool:
        waiting = asyncio.create_task(context.token.wait_async())
        await asyncio.sleep(0)
        thread = threading.Thread(target=lambda: (context.token.cancel("stop"), context.token.reset()))
        thread.start()
        await asyncio.wait_for(waiting, LONG)
        thread.join(LONG)
        return True

    context.went_on = asyncio.run(main())


@then("every run has seen the token's first cancel")
def step_every_run_saw(context: Any) -> None:
    assert [(run.is_cancelled, run.reason) for run in context.runs] == [(True, "stop")] * len(context.runs)


@then("as many cancels of the token have won as generations of it have ended")
def step_wins(context: Any) -> None:
    ended = context.token.view().generation - 1 + context.token.is_cancelled
    assert sum(context.wins) == ended, f"{sum(context.wins)} wins, {ended} generations"


@then("every run's wait for the token has returned True")
def step_waits(context: Any) -> None:
    assert context.waited == [True] * len(context.runs)


@then("the cancellation token itself is ready for the next run")
def step_ready(context: Any) -> None:
    assert not context.token.is_cancelled


@then("the first cancel of the token has won and the second has not")
def step_first_won(context: Any) -> None:
    assert context.wins == [True, False]


@then('the cancellation token\'s reason is "{reason}"')
def step_reason(context: Any, reason: str) -> None:
    assert context.token.reason == reason


@then("the cancellation token and its second child are not cancelled")
def step_not_upward(context: Any) -> None:
    assert not context.token.is_cancelled
    assert not context.children[1].is_cancelled


@then('the token\'s second child is cancelled because of "{reason}"')
def step_child_cancelled(context: Any, reason: str) -> None:
    assert context.children[1].reason == reason


@then("every such child of the token is cancelled")
def step_born_cancelled(context: Any) -> None:
    assert all(child.is_cancelled for child in context.born)


@then("each callback of the token ran once or was prevented, never both")
def step_callback_ends(context: Any) -> None:
    assert context.ends == [1] * len(context.ends)


@then("the task awaiting the token has gone on")
def step_went_on(context: Any) -> None:
    assert context.went_on
