"""Steps for the graph bridge."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from behave import given, then, when

from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
from cleveragents.actors.streams.message import MessageKind
from cleveragents.core.errors import Closed
from tests.bridge_graphs import LIMIT, Gate, State, async_increment, chain, request
from tests.races.hammer import hammer


async def _fail(state: State) -> State:
    raise ValueError("no such file")


def _build(context: Any, node: Callable[[State], Any]) -> None:
    context.bridge = RxPyLangGraphBridge({"graph": chain(node)}, max_in_flight=1000)
    context.add_cleanup(context.bridge.close)
    context.bridge_runs = []
    context.bridge_refused = 0


@given("a graph bridge over an incrementing graph")
def incrementing(context: Any) -> None:
    _build(context, async_increment)


@given("a graph bridge over a graph that waits")
def waiting(context: Any) -> None:
    _build(context, Gate().hold)


@given("a graph bridge over a graph that fails")
def failing(context: Any) -> None:
    _build(context, _fail)


def _create(context: Any, number: int) -> None:
    try:
        context.bridge_runs.append(context.bridge.create_future_task(request(number=number)))
    except Closed:
        context.bridge_refused += 1


@when("one bridge task is created")
def create_one(context: Any) -> None:
    _create(context, 1)


def _create_beside(context: Any, threads: int, each: int, beside: Callable[[], object] | None) -> None:
    """The threads create, and one more does the other thing, all released by one barrier."""
    counting = threading.Lock()
    context.bridge_expected = threads * each

    def work(number: int) -> None:
        if number == threads:
            assert beside is not None
            beside()
            return
        for n in range(each):
            try:
                run = context.bridge.create_future_task(request(number=number * each + n))
            except Closed:
                with counting:
                    context.bridge_refused += 1
            else:
                context.bridge_runs.append(run)

    hammer(work, threads=threads + (beside is not None))


@when("{threads:d} threads create {each:d} bridge tasks each at the same moment")
def create_at_once(context: Any, threads: int, each: int) -> None:
    _create_beside(context, threads, each, None)


@when("{threads:d} threads create {each:d} bridge tasks each while another thread cleans the bridge up")
def create_beside_cleanup(context: Any, threads: int, each: int) -> None:
    _create_beside(context, threads, each, lambda: context.bridge.cleanup_tasks(LIMIT))


@when("{threads:d} threads create {each:d} bridge tasks each while an event loop cleans the bridge up")
def create_beside_async_cleanup(context: Any, threads: int, each: int) -> None:
    _create_beside(context, threads, each, lambda: asyncio.run(context.bridge.cleanup_tasks_async(LIMIT)))


@when("{threads:d} threads create {each:d} bridge tasks each while another thread closes the bridge")
def create_beside_close(context: Any, threads: int, each: int) -> None:
    _create_beside(context, threads, each, lambda: context.bridge.close(LIMIT))


@when("the bridge is cleaned up once more")
def clean_up_again(context: Any) -> None:
    assert context.bridge.cleanup_tasks(LIMIT).unfinished == 0


@then("every bridge task has answered with its own result")
def own_results(context: Any) -> None:
    answers = [run.result(LIMIT) for run in context.bridge_runs]
    assert len(answers) == context.bridge_expected
    for answer in answers:
        assert answer.kind is MessageKind.RESULT, answer
        assert answer.id == f"message-{answer.content['n'] - 1}", answer


@then("every bridge task was cancelled")
def all_cancelled(context: Any) -> None:
    kinds = [run.result(LIMIT).kind for run in context.bridge_runs]
    assert kinds == [MessageKind.CANCELLED] * context.bridge_expected, kinds


@then("every bridge task was cancelled or refused")
def all_cancelled_or_refused(context: Any) -> None:
    kinds = [run.result(LIMIT).kind for run in context.bridge_runs]
    assert set(kinds) <= {MessageKind.CANCELLED}, kinds
    assert len(kinds) + context.bridge_refused == context.bridge_expected


@then("the bridge tracks that task")
def tracked(context: Any) -> None:
    assert context.bridge_runs[0] in context.bridge._active_tasks


@then("the bridge tracks no task")
def nothing_tracked(context: Any) -> None:
    assert not context.bridge._active_tasks


@then("the bridge has no thread")
def no_thread(context: Any) -> None:
    assert not [thread for thread in threading.enumerate() if thread.name == "cleveragents-bridge"]


@then("the bridge task answers with an error that names the problem")
def error_answer(context: Any) -> None:
    answer = context.bridge_runs[0].result(LIMIT)
    assert answer.kind is MessageKind.ERROR, answer
    assert "no such file" in str(answer.error)
