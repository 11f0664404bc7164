"""A client for asyncio: the same methods as coroutines, run in a bounded number of threads.

    async with connect_async() as client:
        plan = await client.plans.create(PlanRequest(goal="Add a --json flag"))
        async for piece in client.plans.watch(plan.id):
            print(piece.text, end="")

`AsyncClient` has the methods of `Client`, each wrapped at its call. `async_client.pyi` contains their
signatures. `python -m tools.async_stub` generates that file from the protocols, and a test checks that it is
up to date.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from cleveragents.api.client import Client, connect
from cleveragents.core.errors import Closed

__all__ = ["AsyncClient", "connect_async"]

_THREADS = 8
_END = object()


def connect_async(server: str | None = None, **options: Any) -> AsyncClient:
    """Return an `AsyncClient`. The arguments are those of `connect`."""
    return AsyncClient(connect(server, **options))


class AsyncClient:
    """Runs the methods of a client in its own threads. Use it as an asynchronous context manager.

    Thread safety: use it on one event loop. At most `threads` calls run in parallel; others wait.
    Cancel safety: a cancelled call continues in its thread, and its effects stay. `watch` ends with the next
    piece. `close` waits for no call: a call that has not begun raises `Closed`, and a running call ends when
    its client is closed.
    """

    def __init__(self, client: Client, *, threads: int = _THREADS) -> None:
        self._client = client
        self._threads = _Threads(threads)

    def __getattr__(self, name: str) -> _AsyncGroup:
        if name.startswith("_"):
            raise AttributeError(name)
        return _AsyncGroup(getattr(self._client, name), self._threads)

    async def close(self) -> None:
        """Release all resources of the client. A second call is harmless."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.close()
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Threads:
    """The threads of one client. Calls after `close()` raise `Closed`."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="cleveragents-client")
        self._closed = False

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run the call in a thread."""
        try:
            return self._pool.submit(call)
        except RuntimeError:
            self._ensure_open()
            raise

    async def result(self, running: Future[Any]) -> Any:
        """Return the result of the call."""
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # the call was cancelled, not its caller
                self._ensure_open()
            raise

    def close(self) -> None:
        """Accept no new calls, and drop calls that have not begun. A second call is harmless."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ensure_open(self) -> None:
        if self._closed:
            raise Closed("the client")


class _AsyncGroup:
    """The methods of one group of a client."""

    def __init__(self, group: object, threads: _Threads) -> None:
        self._group = group
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._group, name)
        if inspect.isgeneratorfunction(method):
            return functools.partial(self._iterated, method)
        return functools.partial(self._awaited, method)

    async def _awaited(self, method: Any, *arguments: Any, **options: Any) -> Any:
        call = functools.partial(method, *arguments, **options)
        return await self._threads.result(self._threads.submit(call))

    async def _iterated(self, method: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        pieces: Generator[Any, None, None] = method(*arguments, **options)
        step = functools.partial(next, pieces, _END)
        running: Future[Any] | None = None
        try:
            while True:
                running = self._threads.submit(step)
                piece = await self._threads.result(running)
                if piece is _END:
                    return
                yield piece
        finally:
            # A cancelled step still runs in its thread: the generator is closed when it is done.
            if running is not None:
                running.add_done_callback(lambda _: pieces.close())
