"""Messages of streams (a request to run a graph, progress of the run, and its end), and operators on such
streams.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.core.errors import CleverAgentsError

if TYPE_CHECKING:
    from reactivex import Observable, abc

__all__ = ["ANSWERS", "Inbox", "Listener", "MessageKind", "StreamMessage", "StreamRoute", "Submit", "only"]


_MOST_WAITING = 4096


class MessageKind(str, Enum):
    """The kind of a message: a request, progress of its run, or the way the run ended."""

    REQUEST = "request"
    RESULT = "result"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    NODE = ProgressKind.NODE.value
    THINKING = ProgressKind.THINKING.value
    PIECE = ProgressKind.PIECE.value
    THOUGHT = ProgressKind.THOUGHT.value
    TOOL = ProgressKind.TOOL.value
    TOOL_DONE = ProgressKind.TOOL_DONE.value
    PLAN = ProgressKind.PLAN.value


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message. All messages about a request have its id and its graph.

    `content` is the graph's input or output; the mapping is read-only, its values belong to the graph.
    `thread_id` names the conversation for graphs with a checkpointer. An answer that is not a result states
    the reason in `error`.
    """

    id: str
    graph: str
    content: Mapping[str, object] = field(default_factory=dict)
    kind: MessageKind = MessageKind.REQUEST
    thread_id: str | None = None
    error: CleverAgentsError | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", MappingProxyType(dict(self.content)))

    def result(self, content: Mapping[str, object]) -> StreamMessage:
        """Return the answer with a result."""
        return StreamMessage(self.id, self.graph, content, MessageKind.RESULT, self.thread_id)

    def failure(self, error: CleverAgentsError, kind: MessageKind = MessageKind.ERROR) -> StreamMessage:
        """Return the answer with an error. The answer contains the request's content, for a retry."""
        return StreamMessage(self.id, self.graph, self.content, kind, self.thread_id, error)

    def seen(self, progress: Progress) -> StreamMessage:
        """Return a progress message of the run that this request started."""
        content = {
            "actor": progress.actor,
            "node": progress.node,
            "text": progress.text,
            "failed": progress.failed,
            "tool": progress.tool,
            "arguments": progress.arguments,
        }
        return StreamMessage(self.id, self.graph, content, MessageKind(progress.kind.value), self.thread_id)

    def progress(self) -> Progress:
        """Return the progress that was passed to `seen`. Raises `ValueError` for a request or an answer."""
        content = self.content
        return Progress(
            ProgressKind(self.kind.value),
            actor=str(content["actor"]),
            node=str(content["node"]),
            text=str(content["text"]),
            failed=bool(content["failed"]),
            tool=None if content.get("tool") is None else str(content["tool"]),
            arguments=content.get("arguments"),
        )


Listener = Callable[[StreamMessage], None]

Submit = Callable[[StreamMessage, Listener], "Future[StreamMessage]"]
"""Starts the run of a request. The listener receives its progress, one message at a time and none after the
future is done; the future always resolves with the answer.
"""

ANSWERS = frozenset({MessageKind.RESULT, MessageKind.ERROR, MessageKind.TIMEOUT, MessageKind.CANCELLED})
"""The kinds of messages that end a request."""


def only(*kinds: MessageKind) -> Callable[[Observable[StreamMessage]], Observable[StreamMessage]]:
    """Return an operator that keeps only messages of these kinds."""
    from reactivex import operators

    return operators.filter(lambda message: message.kind in kinds)


class Inbox:
    """A queue between a stream and the thread that reads it, so that a slow reader does not block the loop.

    Any thread may deliver. When too many messages wait, progress is dropped, but never an answer. Not
    thread-safe on the reading side: one thread reads.
    """

    def __init__(self, stream: Observable[StreamMessage], *, most_waiting: int = _MOST_WAITING) -> None:
        self._waiting: queue.SimpleQueue[StreamMessage | Exception | None] = queue.SimpleQueue()
        self._most_waiting = most_waiting
        stream.subscribe(self._deliver, self._waiting.put, lambda: self._waiting.put(None))

    def __iter__(self) -> Iterator[StreamMessage]:
        """Yield every message until the stream ends; raise the stream's error."""
        while (message := self._waiting.get()) is not None:
            if isinstance(message, Exception):
                raise message
            yield message

    def _deliver(self, message: StreamMessage) -> None:
        if message.kind in ANSWERS or self._waiting.qsize() < self._most_waiting:  # guard: bounds the queue
            self._waiting.put(message)


class StreamRoute:
    """A destination of requests. Immutable; any thread may send."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    def send(self, request: StreamMessage, cancel: Observable[None]) -> Observable[StreamMessage]:
        """Return a stream that starts one run per subscription: its progress, its answer, then the end.

        A refusal is an answer, too. An item of `cancel` asks the run to end; its answer arrives when
        everything it started has ended. Disposing the subscription also asks the run to end; nothing more is
        delivered.
        """
        import reactivex
        from reactivex.disposable import CompositeDisposable, Disposable

        def subscribe(
            observer: abc.ObserverBase[StreamMessage], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            def answered(run: Future[StreamMessage]) -> None:
                _end(observer, run.result())

            try:
                run = self._submit(request, observer.on_next)
            except CleverAgentsError as refusal:
                _end(observer, request.failure(refusal))
                return Disposable()
            run.add_done_callback(answered)
            return CompositeDisposable(cancel.subscribe(lambda _: _ask(run)), Disposable(lambda: _ask(run)))

        return reactivex.create(subscribe)


def _end(observer: abc.ObserverBase[StreamMessage], answer: StreamMessage) -> None:
    observer.on_next(answer)
    observer.on_completed()


def _ask(run: Future[StreamMessage]) -> None:
    run.cancel()
