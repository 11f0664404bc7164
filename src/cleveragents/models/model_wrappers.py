"""Wrappers around models: a concurrency limit, a circuit breaker, a deadline and retries.

The concurrency limit of a provider covers all event loops of this process, first come, first served.

The circuit breaker counts calls that failed after all their retries. Refusals and cancellations do not count:
after a refusal, the provider is known to be reachable, and a cancellation says nothing about the provider.

The deadline bounds a whole answer, including its retries and their waits.

Failed calls are retried after increasing, randomised waits, or after the wait that the provider requests. A
call is not retried once an answer has started or may have started: the listener has already received its
pieces, the provider charges for them, and the budget reserved only one answer. The caller receives
`ModelUnavailable` and decides. A usage limit is not retried either, if plans wait for its reset.
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
from cleveragents.core.errors import BreakerOpen, ModelUnavailable, UsageLimited
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
    """A fair semaphore for tasks of any event loop.

    `asyncio.Semaphore` works for one loop only; a process may have several, and the provider counts the calls
    of all of them.

    Thread safety:
        Owner: the catalogue; any task of any loop may ask.
        Lock: `_lock` guards the free places and the queue, for arithmetic only; no waiter is woken under it.
        Guarantee: at most `places` are held at once; places are granted in the order of the requests; a place
            is never free while a waiter is queued.
    Cancel safety: a cancelled waiter leaves the queue, and a place that it was just granted goes to the next
        waiter.
    """

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[_Waiter] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place and hold it."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    @property
    def free(self) -> int:
        """The number of free places."""
        return self._free

    @property
    def waiting(self) -> int:
        """The number of queued waiters."""
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
        """Take a free place and return True, or queue the waiter and return False."""
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
        if granted:  # guard: the cancelled waiter had just been granted the place
            self._leave()

    def _leave(self) -> None:
        """Pass the place to the first waiter in the queue whose event loop still runs."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                waiter = self._waiting.popleft()
                waiter.granted = True  # guard: decided here, even if the waiter is cancelled before it wakes
            try:
                waiter.loop.call_soon_threadsafe(waiter.wake)
            except RuntimeError:
                waiter.granted = False  # its loop is closed, so it will never wake
                continue
            return


class WrappedModel:
    """Base of a `Model` that wraps another `Model` and adds behaviour to its calls."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)


class LimitedModel(WrappedModel):
    """A `Model` that holds a place of its provider during each call, including the waits between retries.

    The place is not given away during a wait, because the provider would refuse another call as well.
    """

    def __init__(self, model: Model, places: FairSemaphore) -> None:
        super().__init__(model)
        self._places = places

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        async with self._places.place():
            return await self._model.reply(request, on_token)


class BreakingModel(WrappedModel):
    """A `Model` behind the circuit breaker that all models of its provider share.

    Cancel safety: a cancelled call returns its permit uncounted.
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
            problem = f"{self._provider} failed several times in a row; calls are paused for {wait:.0f} s"
            raise ModelUnavailable(self._model.facts.name, problem, wait) from None
        try:
            reply = await self._model.reply(request, on_token)
        except UsageLimited:
            permit.release()  # guard: the provider works, and the next plan has to learn of its limit
            raise
        except ModelUnavailable as error:
            permit.failure(error)
            raise
        except BaseException:
            permit.release()  # guard: without it, the trial of a half-open breaker would never end
            raise
        permit.success()
        return reply


class DeadlineModel(WrappedModel):
    """A `Model` that ends a call after `seconds` and closes its connection."""

    def __init__(self, model: Model, seconds: float) -> None:
        super().__init__(model)
        self._seconds = seconds

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        try:
            async with asyncio.timeout(self._seconds) as bound:
                return await self._model.reply(request, on_token)
        except TimeoutError:
            if not bound.expired():  # guard: a timeout raised inside the call is not this deadline
                raise
            problem = f"no answer within {self._seconds:g} s (models.timeout_seconds)"
            # The provider has the request and may still be working on it.
            raise ModelUnavailable(self._model.facts.name, problem, charged=True) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of retrying: the number of retries and the total time.

    A wait that would end after `seconds` is not started. With `raises_limits`, the caller gets a usage limit
    at once.
    """

    retries: int
    seconds: float
    raises_limits: bool = False
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    lot: Callable[[], float] = random.random


class RetryingModel(WrappedModel):
    """A `Model` that retries a call while the provider is unavailable.

    The wait doubles with each attempt, from half a second to 30 seconds; the actual wait is a random value
    between half of that and all of it. If the provider requests a wait, a random share is added to it, so
    that callers that got the same request do not return at the same moment.
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
                if isinstance(error, UsageLimited) and patience.raises_limits:
                    raise
                if tries > patience.retries or late:
                    raise
                if error.charged:  # guard: only one answer is reserved
                    raise
                if listening.heard:  # guard: an answer that has begun is charged and partly delivered
                    raise
            await patience.sleep(wait)

    def _wait(self, tries: int, told: float | None) -> float:
        usual = min(_FIRST_SECONDS * 2.0 ** (tries - 1), _LONGEST_SECONDS)
        share = self._patience.lot() * usual / 2
        return share + (usual / 2 if told is None else told)


@dataclass(slots=True)
class _Listening:
    """A listener that records whether any piece arrived and passes pieces on."""

    on_token: Callable[[str], None] | None
    heard: bool = False

    def __call__(self, piece: str) -> None:
        self.heard = True
        if self.on_token is not None:
            self.on_token(piece)
