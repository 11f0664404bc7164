"""Conversion of a stream of requests to the stream of their answers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import reactivex
from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from cleveragents.actors.bridge.loop_thread import LoopThread
from cleveragents.actors.streams.message import StreamMessage
from cleveragents.core.errors import CleverAgentsError

__all__ = ["answers"]

Submit = Callable[[StreamMessage], Future[StreamMessage]]


def answers(source: Observable[StreamMessage], submit: Submit, loop: LoopThread) -> Observable[StreamMessage]:
    """Return the answers to the requests of `source`, in the order in which they arrive.

    Each subscription submits its own requests.
    """

    def subscribe(
        observer: abc.ObserverBase[StreamMessage], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        delivery = _Delivery(observer, submit, loop)
        subscription = source.subscribe(
            delivery.request, delivery.source_failed, delivery.source_ended, scheduler=scheduler
        )
        return CompositeDisposable(Disposable(delivery.dispose), subscription)

    return reactivex.create(subscribe)


class _Delivery:
    """The answers of one subscription, delivered one at a time.

    Thread safety:
        Owner: the subscription. The source may call from any thread, one call at a time as Rx demands.
        Lock: `_lock` guards all state, for arithmetic only; the observer is called outside it.
        Guarantee: calls of the observer never overlap; its end comes after every answer; nothing is delivered
            after `dispose`, except a call that had begun.
    Cancel safety: `dispose` asks the runs to end and does not wait for them.
    """

    def __init__(self, observer: abc.ObserverBase[StreamMessage], submit: Submit, loop: LoopThread) -> None:
        self._observer = observer
        self._submit = submit
        self._loop = loop
        self._lock = threading.Lock()
        self._runs: set[Future[StreamMessage]] = set()
        self._waiting: deque[Callable[[], None]] = deque()
        self._open = 1  # the source, and each request without an answer
        self._end: Callable[[], None] = observer.on_completed
        self._delivering = False
        self._disposed = False

    def request(self, message: StreamMessage) -> None:
        """Submit a request. Waits, and so blocks the source, while the bridge is full."""
        with self._lock:
            if self._disposed:  # guard: the answer would have no receiver
                return
            self._open += 1
        try:
            run = self._submit(message)
        except CleverAgentsError as refusal:
            self._answer(message.failure(refusal))
            return
        with self._lock:
            self._runs.add(run)
            disposed = self._disposed
        run.add_done_callback(self._run_ended)
        if disposed:  # guard: a run submitted while dispose took its snapshot
            run.cancel()

    def source_failed(self, error: Exception) -> None:
        """Deliver the error of the source after the answers in flight."""
        self._end = lambda: self._observer.on_error(error)
        self.source_ended()

    def source_ended(self) -> None:
        """End the stream after the last answer."""
        self._enqueue(None)

    def dispose(self) -> None:
        """Cancel all runs and deliver nothing more."""
        with self._lock:
            self._disposed = True
            self._waiting.clear()
            runs = tuple(self._runs)
        for run in runs:
            run.cancel()

    def _run_ended(self, run: Future[StreamMessage]) -> None:
        self._answer(run.result(), run)

    def _answer(self, message: StreamMessage, run: Future[StreamMessage] | None = None) -> None:
        self._enqueue(lambda: self._observer.on_next(message), run)

    def _enqueue(self, call: Callable[[], None] | None, run: Future[StreamMessage] | None = None) -> None:
        with self._lock:
            if run is not None:
                self._runs.discard(run)
            self._open -= 1
            if call is not None:
                self._waiting.append(call)
            if self._open == 0:
                self._waiting.append(self._end)
        # Outside the loop, the caller may hold locks that the observer needs.
        if self._loop.is_current() or not self._loop.post(self._deliver):
            self._deliver()

    def _deliver(self) -> None:
        call = self._next(beginning=True)
        try:
            while call is not None:
                call()
                call = self._next(beginning=False)
        except BaseException:
            self.dispose()  # an observer that raised cannot receive more
            raise

    def _next(self, beginning: bool) -> Callable[[], None] | None:
        with self._lock:
            if (
                beginning and self._delivering
            ):  # guard: calls must not overlap; the current deliverer continues
                return None
            self._delivering = False
            if self._disposed or not self._waiting:  # guard: nothing is delivered after dispose
                return None
            self._delivering = True
            return self._waiting.popleft()
