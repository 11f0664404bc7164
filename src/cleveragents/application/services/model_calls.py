"""The model calls of one plan: reserved at their worst case, made, settled at what they took.

A call whose end nobody saw (cancelled, cut off after its first words) counts at its worst case: the provider
may charge for it. One that never got an answer costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from cleveragents.application.ports.budgets import BudgetStore, Reservation
from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.models import Model, ModelReply, ModelRequest, Models
from cleveragents.domain.budget import Spend
from cleveragents.domain.conversation import Usage
from cleveragents.errors import BudgetExhausted, CleverAgentsError, ModelUnavailable, PriceUnknown

__all__ = ["CallName", "ModelCalls"]

_LEAST_OUTPUT = 512
"""Tokens that an answer needs to be worth asking for, when the budget leaves no more."""


@dataclass(frozen=True, slots=True)
class CallName:
    """Who calls. `key` names the call for good within its plan: made again, it forfeits its first try."""

    key: str
    actor: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """Calls on one budget. Any number may run at once, on one event loop.

    Cancel safety: a cancelled call has closed its connection, and counts at its worst case.
    """

    models: Models
    budgets: BudgetStore
    clock: Clock
    plan_id: str
    root_id: str
    fallback: str | None = None

    async def reply(
        self,
        model: str,
        request: ModelRequest,
        name: CallName,
        on_token: Callable[[str], None] | None = None,
    ) -> ModelReply:
        """The answer of that model, or of the fallback where it has none. `BudgetExhausted`, `PriceUnknown`,
        and what `Model.reply` raises."""
        heard = _Heard(on_token)
        try:
            return await self._call(await self._opened(model), request, name, heard)
        except ModelUnavailable:
            second = self.fallback
            if second is None or second == model or heard.anything:  # guard: no answer out of two halves
                raise
            other = replace(name, key=f"{name.key}/fallback")
            return await self._call(await self._opened(second), request, other, heard)

    async def _opened(self, model: str) -> Model:
        # The first time a provider's library is imported, which may take seconds: not on the loop.
        return await asyncio.to_thread(self.models.get, model)

    async def _call(self, model: Model, request: ModelRequest, name: CallName, heard: _Heard) -> ModelReply:
        reservation, request = await self._leave(model, request, name)
        try:
            reply = await model.reply(request, heard)
        except CleverAgentsError:
            spent = reservation.worst if heard.anything else Spend(steps=1)
            await self._settled(reservation, spent, None)
            raise
        except BaseException:
            # Cancelled, or worse: what the provider did meanwhile nobody knows.
            await self._settled(reservation, reservation.worst, None)
            raise
        await self._settled(reservation, _spent(model, reply.usage, reservation), reply.usage)
        return reply

    async def _leave(
        self, model: Model, request: ModelRequest, name: CallName
    ) -> tuple[Reservation, ModelRequest]:
        reserving = asyncio.ensure_future(asyncio.to_thread(self._reserved, model, request, name))
        try:
            return await asyncio.shield(reserving)
        except asyncio.CancelledError:
            with suppress(CleverAgentsError):
                reservation, _ = await reserving  # guard: given after the cancel, it is still given back
                await asyncio.to_thread(self.budgets.release, reservation, now=self.clock.now())
            raise

    def _reserved(
        self, model: Model, request: ModelRequest, name: CallName
    ) -> tuple[Reservation, ModelRequest]:
        """Leave to make the call; a shorter answer is asked for where the budget leaves no room for more."""
        facts = model.facts
        limits = self.budgets.view(self.root_id).limits
        if limits.picodollars is not None and facts.price is None:  # guard: unknown is not nothing
            raise PriceUnknown(facts.name)
        read = model.count_tokens(request)
        try:
            return self._reserve(model, request, read, name), request
        except BudgetExhausted:
            shorter = replace(request, max_output_tokens=self._affordable(model, read))
            if not _LEAST_OUTPUT <= shorter.max_output_tokens < request.max_output_tokens:
                raise
            return self._reserve(model, shorter, read, name), shorter

    def _reserve(self, model: Model, request: ModelRequest, read: int, name: CallName) -> Reservation:
        usage = Usage(read, request.max_output_tokens)
        price = model.facts.price
        worst = Spend(0 if price is None else price.of(usage), usage.total, 1)
        return self.budgets.reserve(
            self.root_id,
            self.plan_id,
            worst,
            key=name.key,
            actor=name.actor,
            node=name.node,
            model=model.facts.name,
            now=self.clock.now(),
        )

    def _affordable(self, model: Model, read: int) -> int:
        """How long an answer the rest of the budget pays for, after the input."""
        view = self.budgets.view(self.root_id)
        taken = view.spent + view.reserved
        bounds: list[int] = []
        if view.limits.tokens is not None:
            bounds.append(view.limits.tokens - taken.tokens - read)
        price = model.facts.price
        if view.limits.picodollars is not None and price is not None and price.output:
            left = view.limits.picodollars - taken.picodollars - price.of(Usage(read, 0))
            bounds.append(left // price.output)
        return min(bounds, default=0)

    async def _settled(self, reservation: Reservation, spent: Spend, usage: Usage | None) -> None:
        def settle() -> None:
            self.budgets.settle(reservation, spent, usage, now=self.clock.now())

        # Shielded: a cancel that comes now must not leave the reservation open.
        await asyncio.shield(asyncio.to_thread(settle))


class _Heard:
    """Hands pieces of an answer on, and remembers that there were some. Not thread-safe: the call's own."""

    def __init__(self, listener: Callable[[str], None] | None) -> None:
        self._listener = listener
        self.anything = False

    def __call__(self, piece: str) -> None:
        self.anything = True
        if self._listener is not None:
            self._listener(piece)


def _spent(model: Model, usage: Usage | None, reservation: Reservation) -> Spend:
    """What the call took; its worst case, where the provider does not say."""
    if usage is None:
        return reservation.worst
    price = model.facts.price
    return Spend(0 if price is None else price.of(usage), usage.total, 1)
