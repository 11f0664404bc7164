"""The original bridge, and the one with the lock suggested in its report.

Both keep what the report quotes: `asyncio.ensure_future` in the caller's thread, a done callback that
discards, a clean-up over a snapshot. The ledgers are their task sets alone, with the calls that the scenarios
make; the bridges run on a loop that another thread serves, as the originals did.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from cleveragents.actors.bridge.loop_thread import NodeThreads
from cleveragents.actors.streams.message import StreamMessage

__all__ = ["LockOnlyBridge", "LockOnlyLedger", "PredecessorBridge", "PredecessorLedger", "SemaphoreThreads"]


class PredecessorLedger:
    """A plain set, without a close."""

    def __init__(self, bound: int = 1000) -> None:
        self._active_tasks: set[Any] = set()

    def admit(self, item: Any, patience_seconds: float = 0.0) -> None:
        self._active_tasks.add(item)

    def remove(self, item: Any) -> bool:
        if item in self._active_tasks:
            self._active_tasks.discard(item)
            return True
        return False

    def close(self) -> tuple[Any, ...]:
        found = []
        for item in self._active_tasks:
            found += [item]  # where it was cancelled
        return tuple(found)

    snapshot = close


class LockOnlyLedger(PredecessorLedger):
    """Each operation under the suggested lock; still without a close."""

    def __init__(self, bound: int = 1000) -> None:
        super().__init__(bound)
        self._tasks_lock = threading.Lock()

    def admit(self, item: Any, patience_seconds: float = 0.0) -> None:
        with self._tasks_lock:
            self._active_tasks.add(item)

    def remove(self, item: Any) -> bool:
        with self._tasks_lock:
            return super().remove(item)

    def close(self) -> tuple[Any, ...]:
        with self._tasks_lock:
            return tuple(self._active_tasks)

    snapshot = close


class PredecessorBridge:
    """Tasks made in the caller's thread, on the loop of another."""

    def __init__(self, graph: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._graph = graph
        self._loop = loop
        self._tasks_lock: Any = nullcontext()
        self._active_tasks: set[asyncio.Future[Any]] = set()

    def create_future_task(self, msg: StreamMessage) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(self._graph.ainvoke(dict(msg.content)), loop=self._loop)
        with self._tasks_lock:
            self._active_tasks.add(task)
        task.add_done_callback(self._remove_task)
        return task

    def _remove_task(self, task: asyncio.Future[Any]) -> None:
        with self._tasks_lock:
            self._active_tasks.discard(task)

    def cleanup_tasks(self, timeout: float = 5.0) -> None:
        with self._tasks_lock:
            tasks = list(self._active_tasks)
        for task in tasks:
            task.cancel()

    async def cleanup_tasks_async(self, timeout: float = 5.0) -> None:
        with self._tasks_lock:
            tasks = list(self._active_tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with self._tasks_lock:
            late_tasks = self._active_tasks - set(tasks)
            self._active_tasks.clear()
        for task in late_tasks:
            task.cancel()


class LockOnlyBridge(PredecessorBridge):
    """The suggested fix: a `threading.Lock` around each use of the set."""

    def __init__(self, graph: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(graph, loop)
        self._tasks_lock = threading.Lock()


class SemaphoreThreads(NodeThreads):
    """Idle threads report in a semaphore beside the queue: a token may outlive its thread's idleness."""

    def __init__(self, bound: int, on_call: Callable[[Any], None]) -> None:
        super().__init__(bound, on_call)
        self._tokens = threading.Semaphore(0)
        self._filled = threading.Semaphore(0)
        self._queue: deque[Callable[[], None]] = deque()

    def _enqueue(self, call: Callable[[], None]) -> bool:
        self._queue.append(call)
        self._filled.release()
        return not self._tokens.acquire(blocking=False) and len(self._workers) < self._bound

    def _next_call(self) -> Callable[[], None]:
        if not self._filled.acquire(blocking=False):
            self._tokens.release()
            self._filled.acquire()
        return self._queue.popleft()
