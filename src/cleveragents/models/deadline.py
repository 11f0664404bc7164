"""A bound on one answer: from the first try to the last word, retries and their waits among it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cleveragents.core.errors import ModelUnavailable
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest

__all__ = ["DeadlineModel"]


class DeadlineModel:
    """Ends a call that takes longer than `seconds`; its connection is closed as that of a cancelled one."""

    def __init__(self, model: Model, seconds: float) -> None:
        self._model = model
        self._seconds = seconds

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)

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
