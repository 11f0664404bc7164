"""Ways of messages: from a request to all that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from cleveragents.actors.streams.message import StreamMessage
from cleveragents.core.errors import CleverAgentsError

if TYPE_CHECKING:
    from reactivex import Observable, abc

__all__ = ["Listener", "Route", "Submit"]

Listener = Callable[[StreamMessage], None]
Submit = Callable[[StreamMessage, Listener], "Future[StreamMessage]"]
"""Begins the run of a request. The listener hears what is seen of it, one message at a time and none after
the future is done; the future always resolves with the answer."""


class Route:
    """Where requests go. Immutable; any thread may send."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    def send(self, request: StreamMessage, cancel: Observable[None]) -> Observable[StreamMessage]:
        """For each subscription, one run: what is seen of it, at last its answer, then the end.

        A refusal is an answer, too. An item of `cancel` asks the run to end, which its answer then tells,
        when everything it began has ended. Disposing asks as well, and tells nothing any more.
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
