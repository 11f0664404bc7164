"""Conversion of streams of requests to streams of answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import reactivex
from reactivex import operators
from reactivex.scheduler import NewThreadScheduler
from reactivex.subject import Subject

from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
from cleveragents.actors.streams.message import MessageKind, StreamMessage
from cleveragents.core.errors import Closed, GraphFailed, QueueFull, UnknownGraph
from tests.bridge_graphs import LIMIT, Gate, State, async_increment, chain, request


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


class Collector:
    """An observer that stores everything and detects overlapping calls."""

    def __init__(self, stream: reactivex.Observable[StreamMessage]) -> None:
        self.answers: list[StreamMessage] = []
        self.error: Exception | None = None
        self.overlapped = False
        self.ended = threading.Event()
        self.arrived = threading.Semaphore(0)
        self._inside = False
        self.subscription = stream.subscribe(self._on_next, self._on_error, self.ended.set)

    def _on_next(self, answer: StreamMessage) -> None:
        self.overlapped = self.overlapped or self._inside
        self._inside = True
        self.answers.append(answer)
        self._inside = False
        self.arrived.release()

    def _on_error(self, error: Exception) -> None:
        self.error = error
        self.ended.set()

    def finish(self) -> list[StreamMessage]:
        assert self.ended.wait(LIMIT), "the stream never ended"
        assert not self.overlapped
        return self.answers


async def odd_ones_fail(state: State) -> State:
    if state["n"] % 2:
        raise ValueError("odd")
    return {"n": state["n"]}


def test_every_request_is_answered_and_failures_do_not_end_the_stream() -> None:
    requests = [request("odd" if n < 8 else "unknown", n) for n in range(10)]
    with RxPyLangGraphBridge({"odd": chain(odd_ones_fail)}) as bridge:
        answers = Collector(reactivex.from_iterable(requests).pipe(bridge.run)).finish()
    assert sorted(answer.id for answer in answers) == sorted(message.id for message in requests)
    by_id = {answer.id: answer for answer in answers}
    for n in range(8):
        answer = by_id[f"message-{n}"]
        assert isinstance(answer.error, GraphFailed) if n % 2 else answer.content["n"] == n
    assert {type(by_id[f"message-{n}"].error) for n in (8, 9)} == {UnknownGraph}


def test_answers_come_as_their_runs_end_and_the_end_comes_last(gate: Gate) -> None:
    with RxPyLangGraphBridge({"slow": chain(gate.hold), "fast": chain(async_increment)}) as bridge:
        source = reactivex.from_iterable([request("slow", 1), request("fast", 2)])
        collector = Collector(source.pipe(bridge.run))
        assert collector.arrived.acquire(timeout=LIMIT)
        assert not collector.ended.is_set()
        gate.open()
        assert [answer.id for answer in collector.finish()] == ["message-2", "message-1"]


def test_an_empty_source_ends_at_once() -> None:
    with RxPyLangGraphBridge({}) as bridge:
        assert Collector(reactivex.empty().pipe(bridge.run)).finish() == []


def test_a_source_waits_at_the_bound_and_nothing_is_lost() -> None:
    inside: set[int] = set()
    peak: list[int] = []

    async def measure(state: State) -> State:
        inside.add(state["n"])
        peak.append(len(inside))
        inside.discard(state["n"])
        return {"n": state["n"]}

    requests = [request("measure", n) for n in range(200)]
    with RxPyLangGraphBridge({"measure": chain(measure)}, max_in_flight=4) as bridge:
        answers = Collector(reactivex.from_iterable(requests).pipe(bridge.run)).finish()
    assert {answer.kind for answer in answers} == {MessageKind.RESULT}
    assert len(answers) == 200
    assert max(peak) <= 4


def test_refusals_of_a_source_thread_never_overlap_answers_of_the_loop() -> None:
    def requests(number: int) -> reactivex.Observable[StreamMessage]:
        messages = [request("fine" if n % 2 else "unknown", n) for n in range(50)]
        return reactivex.from_iterable(messages, scheduler=NewThreadScheduler())

    with RxPyLangGraphBridge({"fine": chain(async_increment)}) as bridge:
        answers = Collector(requests(0).pipe(bridge.run)).finish()
    assert len(answers) == 50


def test_disposing_cancels_the_runs_of_this_subscription_and_no_others(gate: Gate) -> None:
    with RxPyLangGraphBridge({"hold": chain(gate.hold)}) as bridge:
        other = bridge.create_future_task(request("hold"))
        requests: Subject[StreamMessage] = Subject()
        collector = Collector(requests.pipe(bridge.run))
        requests.on_next(request("hold", 1))
        requests.on_next(request("hold", 2))
        gate.wait_entered(3)
        mine = [run for run in bridge._active_tasks if run is not other]
        collector.subscription.dispose()
        assert [run.result(LIMIT).kind for run in mine] == [MessageKind.CANCELLED] * 2
        gate.open()
        assert other.result(LIMIT).kind is MessageKind.RESULT
        requests.on_next(request("hold", 3))
        assert not bridge._active_tasks
    assert collector.answers == []


def test_an_error_of_the_source_comes_after_the_answers(gate: Gate) -> None:
    with RxPyLangGraphBridge({"hold": chain(gate.hold)}) as bridge:
        requests: Subject[StreamMessage] = Subject()
        collector = Collector(requests.pipe(bridge.run))
        requests.on_next(request("hold"))
        requests.on_error(ValueError("source"))
        gate.open()
        assert len(collector.finish()) == 1
    assert isinstance(collector.error, ValueError)


def test_a_closed_bridge_answers_with_refusals() -> None:
    bridge = RxPyLangGraphBridge({"fine": chain(async_increment)})
    bridge.close()
    answers = Collector(reactivex.of(request("fine"), request("fine")).pipe(bridge.run)).finish()
    assert [type(answer.error) for answer in answers] == [Closed, Closed]


def test_an_observer_may_feed_the_source_from_the_loop_and_is_refused_at_the_bound(gate: Gate) -> None:
    requests: Subject[StreamMessage] = Subject()
    with RxPyLangGraphBridge(
        {"fine": chain(async_increment), "hold": chain(gate.hold)}, max_in_flight=1
    ) as bridge:

        def feed_back(answer: StreamMessage) -> None:
            if answer.id == "message-1":
                requests.on_next(request("hold", 2))
                requests.on_next(request("fine", 3))
                requests.on_completed()
                gate.open()

        collector = Collector(requests.pipe(bridge.run, operators.do_action(feed_back)))
        requests.on_next(request("fine", 1))
        answers = collector.finish()
    assert [(answer.id, type(answer.error)) for answer in answers] == [
        ("message-1", type(None)),
        ("message-3", QueueFull),
        ("message-2", type(None)),
    ]


def test_an_observer_that_raises_ends_its_own_subscription_only(gate: Gate, caplog: Any) -> None:
    def raise_it(answer: StreamMessage) -> None:
        raise ValueError("observer")

    with RxPyLangGraphBridge({"fine": chain(async_increment), "hold": chain(gate.hold)}) as bridge:
        requests: Subject[StreamMessage] = Subject()
        requests.pipe(bridge.run).subscribe(raise_it)
        requests.on_next(request("hold"))
        gate.wait_entered()
        (held,) = bridge._active_tasks
        requests.on_next(request("fine"))
        assert held.result(LIMIT).kind is MessageKind.CANCELLED
        assert bridge.create_future_task(request("fine")).result(LIMIT).kind is MessageKind.RESULT
