"""A client for asyncio: the same methods as coroutines, run in a bounded number of threads.

    async with connect_async() as client:
        plan = await client.plans.create(PlanRequest(goal="Add a --json flag"))
        async for piece in client.plans.watch(plan.id):
            print(piece.text, end="")

The methods are those of `Client`, made from it when they are called. `async_client.pyi` has their signatures;
`python -m tools.async_stub` writes it from the protocols, and a test compares the two.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from cleveragents.api.client import Client, connect

__all__ = ["AsyncClient", "connect_async"]

_THREADS = 8
_END = object()


def connect_async(server: str | None = None, **options: Any) -> AsyncClient:
    """Return an `AsyncClient`; arguments as of `connect`."""
    return AsyncClient(connect(server, **options))


class AsyncClient:
    """Runs the methods of a client in threads of its own. Use it as an asynchronous context manager.

    Thread safety: use it on one event loop. At most `threads` calls run at once; others wait their turn.
    Cancel safety: a cancelled call goes on in its thread, and what it did stays done. `watch` ends with the
    next piece.
    """

    def __init__(self, client: Client, *, threads: int = _THREADS) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="cleveragents-client")

    def __getattr__(self, name: str) -> _AsyncGroup:
        if name.startswith("_"):
            raise AttributeError(name)
        return _AsyncGroup(getattr(self._client, name), self._threads)

    async def close(self) -> None:
        """Release what the client holds. A second call changes nothing."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._client.close()
        self._threads.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _AsyncGroup:
    """The methods of one group of a client."""

    def __init__(self, group: object, threads: ThreadPoolExecutor) -> None:
        self._group = group
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._group, name)
        if inspect.isgeneratorfunction(method):
            return functools.partial(self._iterated, method)
        return functools.partial(self._awaited, method)

    async def _awaited(self, method: Any, *arguments: Any, **options: Any) -> Any:
        call = functools.partial(method, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _iterated(self, method: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        pieces: Iterator[Any] = method(*arguments, **options)
        loop = asyncio.get_running_loop()
        while (piece := await loop.run_in_executor(self._threads, next, pieces, _END)) is not _END:
            yield piece
