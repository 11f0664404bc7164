"""Ways of messages: from a request to all that comes of it; from many things to do to what came of each."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

from cleveragents.errors import CleverAgentsError
from cleveragents.reactive.message import StreamMessage

if TYPE_CHECKING:
    from reactivex import Observable, abc

__all__ = ["Listener", "Route", "Submit", "bounded"]

T = TypeVar("T")
R = TypeVar("R")

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


def bounded(items: Iterable[T], work: Callable[[T], R], *, at_once: int) -> Observable[R]:
    """What `work` gives for each item, as it comes; at most `at_once` at a time, each on a thread.

    Items are taken one by one, when there is room for them. After an error no more are taken, and it goes on
    when the works under way have ended. Disposing takes no more items either; what is under way ends by
    itself, and nobody hears of it.
    """
    import reactivex
    from reactivex.disposable import Disposable

    if at_once < 1:
        raise ValueError("at least one at a time")

    def subscribe(
        observer: abc.ObserverBase[R], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        crew = _Crew(items, work, observer, at_once)
        crew.start()
        return Disposable(crew.dismiss)

    return reactivex.create(subscribe)


class _Crew(Generic[T, R]):
    """The threads of one subscription: those that work, and one that tells, because Rx wants one at a time.

    Thread safety:
        Owner: the subscription. Lock: `_lock` guards the items, while one is taken.
        Guarantee: each item is worked on once or never; the observer's end comes after every result, once.
    Cancel safety: `dismiss` does not wait.
    """

    def __init__(
        self, items: Iterable[T], work: Callable[[T], R], observer: abc.ObserverBase[R], at_once: int
    ) -> None:
        self._items = iter(items)
        self._work = work
        self._observer = observer
        self._at_once = at_once
        self._lock = threading.Lock()
        self._over = False
        # A result, an error, or the end of a thread.
        self._done: queue.SimpleQueue[tuple[R] | Exception | None] = queue.SimpleQueue()

    def start(self) -> None:
        for target in (self._tell, *([self._serve] * self._at_once)):
            threading.Thread(target=target, name="cleveragents-route", daemon=True).start()

    def dismiss(self) -> None:
        self._over = True

    def _serve(self) -> None:
        try:
            for item in iter(self._take, None):
                self._done.put((self._work(item[0]),))
        except Exception as error:
            self._over = True
            self._done.put(error)
        finally:
            self._done.put(None)

    def _take(self) -> tuple[T] | None:
        with self._lock:
            if self._over:  # guard: nobody wants more
                return None
            for item in self._items:
                return (item,)
            return None

    def _tell(self) -> None:
        ended, errors = 0, []
        while ended < self._at_once:
            done = self._done.get()
            if done is None:
                ended += 1
            elif isinstance(done, Exception):
                errors.append(done)
            else:
                self._observer.on_next(done[0])
        if errors:
            self._observer.on_error(errors[0])
        else:
            self._observer.on_completed()
