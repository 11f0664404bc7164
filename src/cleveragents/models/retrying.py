"""Tries again what failed for want of an answer: with growing waits, drawn by lot, or as long as told to.

Nothing is tried again once an answer has begun, or may have: its pieces were handed out, somebody has read
them, and the provider charges for them. The caller hears `ModelUnavailable`, and decides with its budget in
hand: it has reserved one answer, not several.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cleveragents.core.errors import ModelUnavailable
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest

__all__ = ["Patience", "RetryingModel"]

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often, and how long in all. A wait that would end after `seconds` is not begun."""

    retries: int
    seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    lot: Callable[[], float] = random.random


class RetryingModel:
    """`Model` that makes a call again while it finds nobody to answer it.

    The wait doubles with each try, from half a second to half a minute, and each is between half of that and
    all of it; a provider that says how long to wait is heeded, with the same share on top, so that those
    who were told the same do not come back at once.
    """

    def __init__(self, model: Model, patience: Patience) -> None:
        self._model = model
        self._patience = patience

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)

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
