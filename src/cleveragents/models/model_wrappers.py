"""How many calls a provider gets from this process at once, first come, first served.

Leaves a provider alone that does not answer: the circuit breaker around its models.

What counts is a call that found no answer after all its retries. A refusal says that the provider is there,
and a cancellation says nothing; neither counts.

A bound on one answer: from the first try to the last word, retries and their waits among it.

Tries again what failed for want of an answer: with growing waits, drawn by lot, or as long as told to.

Nothing is tried again once an answer has begun, or may have: its pieces were handed out, somebody has read
them, and the provider charges for them. The caller hears `ModelUnavailable`, and decides with its budget in
hand: it has reserved one answer, not several.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cleveragents.core.circuit_breaker import CircuitBreaker
from cleveragents.core.errors import BreakerOpen, ModelUnavailable
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest

__all__ = ["BreakingModel", "DeadlineModel", "FairSemaphore", "LimitedModel", "RetryPolicy", "RetryingModel"]


_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]
    granted: bool = field(default=False)

    def wake(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)


class FairSemaphore:
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


class WrappedModel:
    """What every `Model` around another one has in common: it is that model, called with more care."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)


class LimitedModel(WrappedModel):
    """`Model` that takes a place of its provider for each call. A call keeps its place while it waits to be
    tried again: whoever came next would meet the same refusal."""

    def __init__(self, model: Model, places: FairSemaphore) -> None:
        super().__init__(model)
        self._places = places

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        async with self._places.place():
            return await self._model.reply(request, on_token)


class BreakingModel(WrappedModel):
    """`Model` behind the breaker of its provider, which all models of that provider share.

    Cancel safety: a cancelled call gives its permit back uncounted.
    """

    def __init__(self, model: Model, breaker: CircuitBreaker, provider: str) -> None:
        super().__init__(model)
        self._breaker = breaker
        self._provider = provider

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        try:
            permit = self._breaker.acquire(self._provider)
        except BreakerOpen as refused:
            wait = refused.retry_after_seconds
            problem = f"{self._provider} failed several times in a row and is left alone for {wait:.0f} s"
            raise ModelUnavailable(self._model.facts.name, problem, wait) from None
        try:
            reply = await self._model.reply(request, on_token)
        except ModelUnavailable as error:
            permit.failure(error)
            raise
        except BaseException:
            permit.release()  # guard: or the trial of a half-open breaker would be out for good
            raise
        permit.success()
        return reply


class DeadlineModel(WrappedModel):
    """Ends a call that takes longer than `seconds`; its connection is closed as that of a cancelled one."""

    def __init__(self, model: Model, seconds: float) -> None:
        super().__init__(model)
        self._seconds = seconds

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        try:
            async with asyncio.timeout(self._seconds) as bound:
                return await self._model.reply(request, on_token)
        except TimeoutError:
            if not bound.expired():  # guard: a timeout of somebody else's is not ours to explain
                raise
            problem = f"no answer within {self._seconds:g} s (models.timeout_seconds)"
            # It has the request, and may be at it still.
            raise ModelUnavailable(self._model.facts.name, problem, charged=True) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how long in all. A wait that would end after `seconds` is not begun."""

    retries: int
    seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    lot: Callable[[], float] = random.random


class RetryingModel(WrappedModel):
    """`Model` that makes a call again while it finds nobody to answer it.

    The wait doubles with each try, from half a second to half a minute, and each is between half of that and
    all of it; a provider that says how long to wait is heeded, with the same share on top, so that those
    who were told the same do not come back at once.
    """

    def __init__(self, model: Model, patience: RetryPolicy) -> None:
        super().__init__(model)
        self._patience = patience

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        listening = _Listening(on_token)
        patience = self._patience
        began = patience.clock()
        tries = 0
        while True:
            try:
                return await self._model.reply(request, listening)
            except ModelUnavailable as error:
                tries += 1
                wait = self._wait(tries, error.retry_after_seconds)
                late = patience.clock() - began + wait > patience.seconds
                if tries > patience.retries or late:
                    raise
                if error.charged:  # guard: one answer is reserved
                    raise
                if listening.heard:  # guard: an answer that has begun was heard and is charged for
                    raise
            await patience.sleep(wait)

    def _wait(self, tries: int, told: float | None) -> float:
        usual = min(_FIRST_SECONDS * 2.0 ** (tries - 1), _LONGEST_SECONDS)
        share = self._patience.lot() * usual / 2
        return share + (usual / 2 if told is None else told)


@dataclass(slots=True)
class _Listening:
    """Passes pieces on, and knows whether there were any."""

    on_token: Callable[[str], None] | None
    heard: bool = False

    def __call__(self, piece: str) -> None:
        self.heard = True
        if self.on_token is not None:
            self.on_token(piece)
