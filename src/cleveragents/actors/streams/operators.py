"""What is done to streams of messages on their way."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cleveragents.actors.streams.message import ANSWERS, MessageKind, StreamMessage

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["Inbox", "only"]

_MOST_WAITING = 4096


def only(*kinds: MessageKind) -> Callable[[Observable[StreamMessage]], Observable[StreamMessage]]:
    """Messages of these kinds, and no others."""
    from reactivex import operators

    return operators.filter(lambda message: message.kind in kinds)


class Inbox:
    """A stream's messages for the thread that asks for them, so that a slow one holds up no loop.

    Any thread may deliver. When too many wait, what is merely to be seen is left out; an answer never is.
    Not thread-safe on the reading side: one thread reads.
    """

    def __init__(self, stream: Observable[StreamMessage], *, most_waiting: int = _MOST_WAITING) -> None:
        self._waiting: queue.SimpleQueue[StreamMessage | Exception | None] = queue.SimpleQueue()
        self._most_waiting = most_waiting
        stream.subscribe(self._deliver, self._waiting.put, lambda: self._waiting.put(None))

    def __iter__(self) -> Iterator[StreamMessage]:
        """Every message as it comes, until the stream ends; raises what it failed with."""
        while (message := self._waiting.get()) is not None:
            if isinstance(message, Exception):
                raise message
            yield message

    def _deliver(self, message: StreamMessage) -> None:
        if message.kind in ANSWERS or self._waiting.qsize() < self._most_waiting:  # guard: a bound
            self._waiting.put(message)
