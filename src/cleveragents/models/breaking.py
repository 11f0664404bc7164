"""Leaves a provider alone that does not answer: the circuit breaker around its models.

What counts is a call that found no answer after all its retries. A refusal says that the provider is there,
and a cancellation says nothing; neither counts.
"""

from __future__ import annotations

from collections.abc import Callable

from cleveragents.core.circuit_breaker import CircuitBreaker
from cleveragents.core.errors import BreakerOpen, ModelUnavailable
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest

__all__ = ["BreakingModel"]


class BreakingModel:
    """`Model` behind the breaker of its provider, which all models of that provider share.

    Cancel safety: a cancelled call gives its permit back uncounted.
    """

    def __init__(self, model: Model, breaker: CircuitBreaker, provider: str) -> None:
        self._model = model
        self._breaker = breaker
        self._provider = provider

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)

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
