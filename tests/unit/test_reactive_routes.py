"""Routes: from a request to all that comes of it, and from many things to do to what came of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import reactivex
from reactivex.subject import Subject

from cleveragents.domain.progress import Progress, ProgressKind
from cleveragents.errors import Cancelled, Closed
from cleveragents.reactive.message import ANSWERS, MessageKind, StreamMessage
from cleveragents.reactive.operators import Inbox, only
from cleveragents.reactive.routes import Listener, Route, bounded

LIMIT = 60.0
REQUEST = StreamMessage("m", "graph", {"n": 1}, thread_id="t")
SEEN = Progress(ProgressKind.PIECE, "local/a", "think", "word", failed=True)


class Run(Future[StreamMessage]):
    """A run that the test ends; asked to end, it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def cancel(self) -> bool:
        if self.done():
            return False
        self.asked += 1
        self.set_result(REQUEST.failure(Cancelled("asked"), MessageKind.CANCELLED))
        return True


class Line:
    """Where a route leads to."""

    def __init__(self) -> None:
        self.run = Run()
        self.listen: Listener = lambda message: None

    def submit(self, message: StreamMessage, listen: Listener) -> Future[StreamMessage]:
        self.listen = listen
        return self.run

    def stream(self, cancel: Any = None) -> reactivex.Observable[StreamMessage]:
        return Route(self.submit).send(REQUEST, cancel or reactivex.never())


def test_progress_crosses_as_messages_and_comes_back_as_it_was() -> None:
    for kind in ProgressKind:
        progress = Progress(kind, "local/a", "sub.think", "text")
        message = REQUEST.seen(progress)
        assert (message.id, message.graph, message.thread_id) == ("m", "graph", "t")
        assert message.kind not in ANSWERS
        assert message.progress() == progress
    with pytest.raises(ValueError):
        REQUEST.progress()


def test_a_request_becomes_what_is_seen_and_then_its_answer() -> None:
    line = Line()
    inbox = Inbox(line.stream())
    line.listen(REQUEST.seen(SEEN))
    line.run.set_result(REQUEST.result({"n": 2}))
    messages = list(inbox)
    assert [message.kind for message in messages] == [MessageKind.PIECE, MessageKind.RESULT]
    assert messages[0].progress() == SEEN
    assert messages[1].content == {"n": 2}


def test_a_refusal_is_an_answer() -> None:
    def refuse(message: StreamMessage, listen: Listener) -> Future[StreamMessage]:
        raise Closed("the bridge")

    (answer,) = Inbox(Route(refuse).send(REQUEST, reactivex.never()))
    assert isinstance(answer.error, Closed)


def test_a_cancel_asks_and_the_answer_still_comes() -> None:
    line, cancel = Line(), Subject[None]()
    inbox = Inbox(line.stream(cancel))
    cancel.on_next(None)
    cancel.on_next(None)
    assert [message.kind for message in inbox] == [MessageKind.CANCELLED]
    assert line.run.asked == 1


def test_disposing_asks_and_tells_nothing() -> None:
    line = Line()
    heard: list[StreamMessage] = []
    line.stream().subscribe(heard.append).dispose()
    assert line.run.asked == 1
    assert heard == []


def test_only_some_kinds_pass() -> None:
    line = Line()
    inbox = Inbox(line.stream().pipe(only(*ANSWERS)))
    line.listen(REQUEST.seen(SEEN))
    line.run.set_result(REQUEST.result({}))
    assert [message.kind for message in inbox] == [MessageKind.RESULT]


def test_an_inbox_that_nobody_empties_leaves_out_progress_and_never_an_answer() -> None:
    line = Line()
    inbox = Inbox(line.stream(), most_waiting=3)
    for _ in range(10):
        line.listen(REQUEST.seen(SEEN))
    line.run.set_result(REQUEST.result({}))
    kinds = [message.kind for message in inbox]
    assert kinds == [MessageKind.PIECE] * 3 + [MessageKind.RESULT]


def test_an_inbox_raises_what_its_stream_failed_with() -> None:
    with pytest.raises(ValueError, match="broken"):
        list(Inbox(reactivex.throw(ValueError("broken"))))


# ── many things at once ──


class Collected:
    """What a stream of results gave."""

    def __init__(self, stream: reactivex.Observable[Any]) -> None:
        self.results: list[Any] = []
        self.error: Exception | None = None
        self._ended = threading.Event()
        self.subscription = stream.subscribe(self.results.append, self._failed, self._ended.set)

    def _failed(self, error: Exception) -> None:
        self.error = error
        self._ended.set()

    def wait(self) -> Collected:
        assert self._ended.wait(LIMIT), "the stream never ended"
        return self


def test_each_item_is_worked_on_once_and_no_more_than_so_many_at_a_time() -> None:
    inside: list[int] = []
    peak: list[int] = []
    together = threading.Barrier(3)

    def work(item: int) -> int:
        inside.append(item)
        if item < 3:
            together.wait(LIMIT)  # three do run at once
        peak.append(len(inside))
        inside.remove(item)
        return item * 2

    collected = Collected(bounded(range(20), work, at_once=3)).wait()
    assert sorted(collected.results) == [2 * n for n in range(20)]
    assert max(peak) <= 3


def test_items_are_taken_when_there_is_room_for_them() -> None:
    taken: list[int] = []
    gate = threading.Event()
    began = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for n in range(5):
            taken.append(n)
            yield n

    def work(item: int) -> int:
        began.release()
        assert gate.wait(LIMIT)
        return item

    collected = Collected(bounded(items(), work, at_once=2))
    for _ in range(2):
        assert began.acquire(timeout=LIMIT)
    assert taken == [0, 1]
    gate.set()
    assert sorted(collected.wait().results) == [0, 1, 2, 3, 4]


def test_an_error_comes_after_what_is_under_way_and_ends_the_rest() -> None:
    gate = threading.Event()
    worked: list[int] = []

    def work(item: int) -> int:
        worked.append(item)
        if item == 0:
            assert gate.wait(LIMIT)
            return item
        gate.set()
        raise ValueError("broken")

    collected = Collected(bounded(range(100), work, at_once=2)).wait()
    assert isinstance(collected.error, ValueError)
    assert 0 in collected.results or 0 not in worked
    assert len(worked) < 100


def test_disposing_takes_no_more_items() -> None:
    gate, began, over = threading.Event(), threading.Event(), threading.Event()
    worked: list[int] = []

    def work(item: int) -> int:
        worked.append(item)
        began.set()
        assert gate.wait(LIMIT)
        over.set()
        return item

    collected = Collected(bounded(range(100), work, at_once=1))
    assert began.wait(LIMIT)
    collected.subscription.dispose()
    gate.set()
    assert over.wait(LIMIT)
    assert worked == [0]
    assert collected.results == []


def test_nothing_to_do_is_done_at_once_and_none_at_a_time_is_refused() -> None:
    assert Collected(bounded([], str, at_once=4)).wait().results == []
    with pytest.raises(ValueError):
        bounded([], str, at_once=0)
