"""How many calls a provider gets from this process at once, first come, first served."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest

__all__ = ["LimitedModel", "Places"]


@dataclass(slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]
    granted: bool = field(default=False)

    def wake(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)


class Places:
    """So many places, given in the order they were asked for, to tasks of any event loop.

    `asyncio.Semaphore` would do for one loop; a process may have several, and the provider counts them all.

    Thread safety:
        Owner: the catalogue; any task of any loop may ask.
        Lock: `_lock` guards the free places and the queue, for arithmetic only; nobody is woken under it.
        Guarantee: never are more than `places` held at once; nobody gets one before whoever asked earlier
            and still waits; a place that is free has nobody waiting for it.
    Cancel safety: a waiter that is cancelled is out of the queue, and a place that it was just given goes to
        the next one.
    """

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[_Waiter] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Waits for a place, and holds it."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    @property
    def free(self) -> int:
        """Places that nobody holds."""
        return self._free

    @property
    def waiting(self) -> int:
        """Those in the queue."""
        return len(self._waiting)

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        if self._take(waiter):
            return
        try:
            await waiter.turn
        except BaseException:
            self._give_up(waiter)
            raise

    def _take(self, waiter: _Waiter) -> bool:
        """Whether there was a place; else the waiter is in the queue."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            self._waiting.append(waiter)
            return False

    def _give_up(self, waiter: _Waiter) -> None:
        with self._lock:
            granted = waiter.granted
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        if granted:  # guard: the place was given to somebody who is going
            self._leave()

    def _leave(self) -> None:
        """Gives the place to the first in the queue; if its loop has ended meanwhile, to the next."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                waiter = self._waiting.popleft()
                waiter.granted = True  # guard: decided here, whatever becomes of the waiter before it wakes
            try:
                waiter.loop.call_soon_threadsafe(waiter.wake)
            except RuntimeError:
                waiter.granted = False  # its loop is closed, nobody will wake there
                continue
            return


class LimitedModel:
    """`Model` that takes a place of its provider for each call. A call keeps its place while it waits to be
    tried again: whoever came next would meet the same refusal."""

    def __init__(self, model: Model, places: Places) -> None:
        self._model = model
        self._places = places

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        async with self._places.place():
            return await self._model.reply(request, on_token)
