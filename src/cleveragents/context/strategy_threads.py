"""Daemon threads that run strategies, are reused, and are never waited for.

A hung thread of `concurrent.futures.ThreadPoolExecutor` blocks the interpreter's exit and occupies its place
for ever. In this pool, a call may be *abandoned*: its caller continues without the call, its thread becomes a
straggler, and another thread takes its place, up to a limit. A thread cannot be ended from outside, so the
limit bounds the cost of hung code.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Generic, TypeVar

from cleveragents.core.errors import Closed

__all__ = ["CallBatch", "ThreadCall", "ThreadCallState", "ThreadPool", "ThreadPoolStatistics"]

Answer = TypeVar("Answer")


class ThreadCallState(Enum):
    """The state of a call: queued → running → done. A call is withdrawn before its start, or abandoned after
    it.
    """

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    WITHDRAWN = "withdrawn"
    ABANDONED = "abandoned"


class ThreadCall(Generic[Answer]):
    """A function to be called once, on a thread of the pool. The function must not raise.

    Not thread-safe by itself: every field that changes is guarded by the pool's lock; the thread that
    collected the call may read `answer`.
    """

    __slots__ = ("answer", "batch", "function", "name", "state")

    def __init__(self, name: str, function: Callable[[], Answer], batch: CallBatch[Answer]) -> None:
        self.name = name
        self.function = function
        self.batch = batch
        self.state = ThreadCallState.QUEUED
        self.answer: Answer | None = None


class CallBatch(Generic[Answer]):
    """The calls of one caller. The caller waits for any of them to end. Guarded by the pool's lock."""

    __slots__ = ("changed", "ended")

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.ended: list[ThreadCall[Answer]] = []


@dataclass(frozen=True, slots=True)
class ThreadPoolStatistics:
    """A snapshot of the pool; `threads_started` is the total since its creation."""

    threads: int
    idle: int
    stragglers: int
    queued: int
    threads_started: int


class ThreadPool(Generic[Answer]):
    """Runs calls on at most `max_workers` threads, not counting up to `max_stragglers` abandoned ones.

    A straggler beyond that limit counts as one of the `max_workers` threads; when stragglers occupy all of
    them, calls are refused immediately. An idle thread ends after `idle_seconds`, so a pool that was never
    closed leaves nothing behind.

    Thread safety:
        Owner: the creator closes it; any thread may submit, collect and abandon.
        Lock: `_lock` guards all state and that of calls and batches; held for arithmetic only, no call
            runs and no thread is started under it. Both conditions share it, so nothing nests.
        Guarantee: a submitted call ends in exactly one of done (and is collected once), withdrawn (and
            never runs) or abandoned (and its answer is never seen); no more than
            `max_workers + max_stragglers` threads live; a queued call is never left without a thread.
    Cancel safety: a caller that stops collecting must abandon its calls; the threads carry on.
    """

    def __init__(
        self,
        *,
        max_workers: int,
        max_stragglers: int,
        max_queued: int,
        idle_seconds: float = 30.0,
        start_thread: Callable[[Callable[[], None], str], object] | None = None,
    ) -> None:
        if max_workers < 1 or max_stragglers < 0 or max_queued < 1:
            raise ValueError("max_workers and max_queued must be at least 1, max_stragglers at least 0")
        self._max_workers = max_workers
        self._max_threads = max_workers + max_stragglers
        self._max_queued = max_queued
        self._idle_seconds = idle_seconds
        self._start_thread = start_thread or _start_daemon
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._left = threading.Condition(self._lock)
        self._queue: deque[ThreadCall[Answer]] = deque()
        self._running: set[ThreadCall[Answer]] = set()
        self._threads = 0
        self._idle = 0
        self._stragglers = 0
        self._started = 0
        self._closed = False

    def batch(self) -> CallBatch[Answer]:
        """Create a batch for one caller's calls. Raises `Closed` after `close`."""
        if self._closed:  # guard: refuses new callers; calls of one that slips through are withdrawn
            raise Closed("the strategy executor")
        return CallBatch(threading.Condition(self._lock))

    def submit(self, call: ThreadCall[Answer]) -> bool:
        """Queue the call; return False if the queue is full or stragglers occupy all threads.

        If the pool was closed meanwhile, the call is withdrawn immediately, like all queued calls.
        """
        with self._lock:
            if self._closed:  # guard: close has looked through the queue already
                self._withdraw(call)
                return True
            if self._stragglers >= self._max_threads:  # guard: no thread is left to serve it
                return False
            if len(self._queue) >= self._max_queued:  # guard: the queue is bounded
                return False
            self._queue.append(call)
            self._work.notify()
            needed = self._reserve_thread()
        return self._start_reserved(call) if needed else True

    def collect(self, batch: CallBatch[Answer], timeout: float) -> list[ThreadCall[Answer]]:
        """Return the calls of the batch that are done or were withdrawn by `close`, each exactly once.

        Waits up to `timeout` seconds if there are none.
        """
        with self._lock:
            if not batch.ended:  # guard: a call that ended before this wait gave no notification
                batch.changed.wait(timeout)
            ended = batch.ended
            batch.ended = []
            return ended

    def abandon(self, call: ThreadCall[Answer]) -> ThreadCallState:
        """Abandon the call unless it has ended. Return its previous state: queued, running, or ended."""
        needed = False
        with self._lock:
            state = call.state
            if state is ThreadCallState.QUEUED:
                self._queue.remove(call)
                call.state = ThreadCallState.WITHDRAWN
            elif state is ThreadCallState.RUNNING:
                call.state = ThreadCallState.ABANDONED
                self._stragglers += 1
                needed = self._reserve_thread()
        if needed:
            self._start_reserved(None)
        return state

    def close(self, timeout: float) -> tuple[str, ...]:
        """Refuse new calls, withdraw queued ones, and wait for the others.

        Return the names of the calls that still run after `timeout` seconds; their threads end with them. No
        other thread is left.
        """
        give_up = time.monotonic() + timeout
        with self._lock:
            self._closed = True
            while self._queue:
                self._withdraw(self._queue.popleft())
            self._work.notify_all()
            while self._threads and (left := give_up - time.monotonic()) > 0:
                self._left.wait(left)
            return tuple(sorted(call.name for call in self._running))

    def statistics(self) -> ThreadPoolStatistics:
        """Return a snapshot of the pool."""
        with self._lock:
            return ThreadPoolStatistics(
                threads=self._threads,
                idle=self._idle,
                stragglers=self._stragglers,
                queued=len(self._queue),
                threads_started=self._started,
            )

    # ── threads ───────────────────────────────────────────────────────────────────────────────────

    def _reserve_thread(self) -> bool:
        """Under the lock: return whether another thread is needed and allowed, and count it if so."""
        if len(self._queue) <= self._idle:  # guard: every idle thread will take one
            return False
        if self._threads - self._stragglers >= self._max_workers:  # guard: max_workers
            return False
        if self._threads >= self._max_threads:  # guard: max_stragglers
            return False
        self._threads += 1
        self._started += 1
        return True

    def _start_reserved(self, call: ThreadCall[Answer] | None) -> bool:
        """Start the thread that `_reserve_thread` has counted. Return False if `call` was withdrawn instead.

        If the system refuses the thread and no other thread took `call`, it is withdrawn from the queue.
        """
        try:
            self._start_thread(self._serve, f"strategy-{next(self._numbers)}")
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                self._left.notify_all()
                if call is None or call.state is not ThreadCallState.QUEUED:  # guard: another thread took it
                    return True
                self._queue.remove(call)
                call.state = ThreadCallState.WITHDRAWN
                return False
        return True

    def _serve(self) -> None:
        """Run calls until the thread ends.

        The locals of each call are released before the thread waits again.
        """
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        with self._lock:
            call = self._next()
            if call is None:
                self._threads -= 1
                self._left.notify_all()
                return False
            call.state = ThreadCallState.RUNNING
            self._running.add(call)
        answer = call.function()
        with self._lock:
            self._running.discard(call)
            if call.state is ThreadCallState.ABANDONED:  # guard: too late, the answer must not be seen
                self._stragglers -= 1
                return True
            call.answer = answer
            call.state = ThreadCallState.DONE
            self._end(call)
        return True

    def _next(self) -> ThreadCall[Answer] | None:
        """Under the lock: return the next call, or None if this thread must end."""
        while True:
            if self._threads - self._stragglers > self._max_workers:  # guard: its replacement has its place
                return None
            if self._queue:
                return self._queue.popleft()
            if self._closed:  # guard: close waits for this thread
                return None
            self._idle += 1
            notified = self._work.wait(self._idle_seconds)
            self._idle -= 1
            if not notified and not self._queue:  # guard: a call may have come as the wait ran out
                return None

    def _withdraw(self, call: ThreadCall[Answer]) -> None:
        """Under the lock: withdraw a call that will never run."""
        call.state = ThreadCallState.WITHDRAWN
        self._end(call)

    def _end(self, call: ThreadCall[Answer]) -> None:
        """Under the lock: mark the call as ended, so that its caller can collect it."""
        call.batch.ended.append(call)
        call.batch.changed.notify_all()


def _start_daemon(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread, because a hung strategy must not keep the interpreter from exiting."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
