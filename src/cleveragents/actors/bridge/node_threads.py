"""Threads for synchronous nodes: daemons, because a hung one must not keep the interpreter from exiting.

The loop's usual default executor joins its threads at exit, for ever if need be, and has `cpus + 4` of
them, so a few hung nodes would stop all others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

__all__ = ["NodeThreads"]

_IDLE_SECONDS = 60.0
"""No wait is for ever; a thread that wakes to nothing waits again."""

P = ParamSpec("P")
R = TypeVar("R")


class NodeThreads(ThreadPoolExecutor):
    """The default executor of a bridge's loop. `on_call` hears of every call at its submission.

    It is a `ThreadPoolExecutor` by type only, because asyncio accepts nothing else as a default; none of
    that class's state is used. Threads are made on demand, up to `bound`, and live until `shutdown`.

    Thread safety:
        Owner: the loop's thread, on which asyncio calls `submit` and `shutdown`; nobody else may.
        Lock: `_lock` guards the calls that wait, the number of idle threads and the shut-down; held for
            arithmetic only, no call runs and no thread is started under it. `_workers` is the owner's.
        Guarantee: a call runs once, or its future was cancelled before it began; at most `bound` run. A
            call waits behind others only while there are `bound` threads: whenever more calls wait than
            threads are idle, the submit that made it so has started one.
    Cancel safety: a cancelled future of a call that has begun changes nothing; the call goes on.
    """

    def __init__(self, bound: int, on_call: Callable[[Future[Any]], None]) -> None:
        self._bound = bound
        self._on_call = on_call
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._calls: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._workers: list[threading.Thread] = []
        self._is_shut_down = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs the call on an idle thread or a new one; behind the others when there are `bound`.

        `RuntimeError` when a new thread is needed and the system refuses it: then the call never runs.
        """
        if self._is_shut_down:  # guard: nobody would run it
            raise RuntimeError("the threads for synchronous nodes were shut down")
        future: Future[R] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                answer = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
                raise
            else:
                future.set_result(answer)

        self._on_call(future)
        if self._enqueue(call):
            try:
                self._add_thread()
            except RuntimeError:
                if future.cancel():  # guard: another thread may have taken it
                    raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, seconds: float = 0.0) -> None:
        """Ends the threads, as each becomes free; waits for `seconds` at most, whatever `wait` says."""
        with self._lock:
            self._is_shut_down = True
            self._work.notify_all()
        give_up = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, give_up - time.monotonic()))

    def _enqueue(self, call: Callable[[], None]) -> bool:
        """Whether one more thread is needed for it, and allowed."""
        with self._lock:
            self._calls.append(call)
            self._work.notify()
            # A thread counts as idle until it has its call in hand, so that each idle one stands for a call.
            served = len(self._calls) <= self._idle
        return not served and len(self._workers) < self._bound

    def _add_thread(self) -> None:
        worker = threading.Thread(target=self._serve, name="cleveragents-node", daemon=True)
        worker.start()
        self._workers.append(worker)

    def _serve(self) -> None:
        while (call := self._next_call()) is not None:
            with suppress(BaseException):  # the future carries it; a SystemExit does not end the thread
                call()
            del call  # or its arguments would live until the next one comes

    def _next_call(self) -> Callable[[], None] | None:
        with self._lock:
            self._idle += 1
            while not self._calls:
                if self._is_shut_down:  # guard: the thread must end
                    return None
                self._work.wait(_IDLE_SECONDS)
            self._idle -= 1
            return self._calls.popleft()
