"""An event loop on its own thread, started at first use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from cleveragents.core.errors import Cancelled, Closed
from cleveragents.processes.ports import StopSignal

__all__ = ["EventLoopThread"]

T = TypeVar("T")

_LOOK_SECONDS = 0.05
_END_SECONDS = 5.0


class EventLoopThread:
    """An event loop that runs coroutines for blocking threads.

    Thread safety:
        Owner: the creator, which closes it; any thread may call `run` meanwhile.
        Lock: `_lock` guards the loop and whether it may be started; held to start a thread.
        Guarantee: there is at most one thread, and none after `close`.
    Cancel safety: a caller that is cancelled while it waits returns within moments; its coroutine is
    cancelled.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], stop: StopSignal | None = None) -> T:
        """Run the coroutine and return its result. Raises `Cancelled` on `stop`, `Closed` after `close`."""
        loop = self._running()
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        while not future.done():
            wait([future], timeout=_LOOK_SECONDS)
            if stop is not None and stop.is_cancelled and not future.done():
                future.cancel()
                raise Cancelled(stop.reason)
        return _result(future, self._name)

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start the coroutine without waiting for it. Raises `Closed` after `close`."""
        return asyncio.run_coroutine_threadsafe(work(), self._running())

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last` and end the loop, if there is one. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        wait([asyncio.run_coroutine_threadsafe(_finish(last), loop)])
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_END_SECONDS)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:  # guard: a loop started now would never be closed
                raise Closed(self._name)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _finish(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `last`, then cancel the remaining tasks and wait for them."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    try:
        await last()
    finally:
        left = {task for task in asyncio.all_tasks(loop) if task is not me}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_END_SECONDS)
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()


def _result(future: Future[T], name: str) -> T:
    if future.cancelled():  # the loop was closed meanwhile
        raise Closed(name)
    return future.result()
