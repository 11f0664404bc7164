"""Threads for synchronous nodes: daemons, because a hung one must not keep the interpreter from exiting.

The loop's usual default executor joins its threads at exit, for ever if need be, and has `cpus + 4` of
them, so a few hung nodes would stop all others.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

__all__ = ["NodeThreads"]

P = ParamSpec("P")
R = TypeVar("R")


class NodeThreads(ThreadPoolExecutor):
    """The default executor of a bridge's loop. `on_call` hears of every call at its submission.

    It is a `ThreadPoolExecutor` by type only, because asyncio accepts nothing else as a default; none of
    that class's state is used. Threads are made on demand, up to `bound`, and live until `shutdown`.

    Thread safety:
        Owner: the loop's thread, on which asyncio calls `submit` and `shutdown`; nobody else may.
        Lock: none; threads take calls from a queue, and say in a semaphore that they are idle.
        Guarantee: a call runs once, or its future was cancelled before it began; at most `bound` run.
    Cancel safety: a cancelled future of a call that has begun changes nothing; the call goes on.
    """

    def __init__(self, bound: int, on_call: Callable[[Future[Any]], None]) -> None:
        self._bound = bound
        self._on_call = on_call
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._workers: list[threading.Thread] = []
        self._is_shut_down = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs the call on an idle thread or a new one; behind the others when there are `bound`."""
        if self._is_shut_down:
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
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and len(self._workers) < self._bound:
            worker = threading.Thread(target=self._work, name="cleveragents-node", daemon=True)
            self._workers.append(worker)
            worker.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, seconds: float = 0.0) -> None:
        """Ends the threads, as each becomes free; waits for `seconds` at most, whatever `wait` says."""
        if not self._is_shut_down:
            self._is_shut_down = True
            for _ in self._workers:
                self._calls.put(None)
        give_up = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, give_up - time.monotonic()))

    def _work(self) -> None:
        while (call := self._next_call()) is not None:
            with suppress(BaseException):  # the future carries it; a SystemExit does not end the thread
                call()
            del call  # or its arguments would live until the next one comes

    def _next_call(self) -> Callable[[], None] | None:
        try:
            return self._calls.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._calls.get()
