"""Routes: from a request to its progress and answer, and from many requests to the result of each."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
import reactivex
from reactivex.subject import Subject

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.actors.streams.message import (
    ANSWERS,
    Inbox,
    Listener,
    MessageKind,
    StreamMessage,
    StreamRoute,
    only,
)
from cleveragents.core.errors import Cancelled, Closed

LIMIT = 60.0
REQUEST = StreamMessage("m", "graph", {"n": 1}, thread_id="t")
SEEN = Progress(ProgressKind.PIECE, "local/a", "think", "word", failed=True)


class Run(Future[StreamMessage]):
    """A run that the test ends; it reports a request to end."""

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
    """The destination of a route."""

    def __init__(self) -> None:
        self.run = Run()
        self.listen: Listener = lambda message: None

    def submit(self, message: StreamMessage, listen: Listener) -> Future[StreamMessage]:
        self.listen = listen
        return self.run

    def stream(self, cancel: Any = None) -> reactivex.Observable[StreamMessage]:
        return StreamRoute(self.submit).send(REQUEST, cancel or reactivex.never())


def test_progress_crosses_as_messages_and_comes_back_as_it_was() -> None:
    for kind in ProgressKind:
        progress = Progress(kind, "local/a", "sub.think", "text")
        message = REQUEST.seen(progress)
        assert (message.id, message.graph, message.thread_id) == ("m", "graph", "t")
        assert message.kind not in ANSWERS
        assert message.progress() == progress
    with pytest.raises(ValueError):
        REQUEST.progress()


def test_a_request_yields_progress_and_then_its_answer() -> None:
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

    (answer,) = Inbox(StreamRoute(refuse).send(REQUEST, reactivex.never()))
    assert isinstance(answer.error, Closed)


def test_a_cancelled_request_still_gets_an_answer() -> None:
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


def test_a_full_inbox_drops_progress_but_never_an_answer() -> None:
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


# ── many requests ──


class Collected:
    """The items of a stream of results."""

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
