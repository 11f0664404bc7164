"""The model calls of a plan: reserved at their worst case, made, and settled at their actual cost.

A call whose end was not observed (cancelled, cut off, timed out) counts at its worst case, because the
provider may charge for it. A call that the provider rejected, or that never reached it, costs nothing.

A call that does not fit the budget waits for running calls of the same plan tree in this process: their
reservations cover the worst case, and they usually cost less. If the call failed immediately, the run would
end, and its running calls would be cancelled and charged at their worst case.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from weakref import WeakValueDictionary

from msgspec import Struct, field
from msgspec.structs import replace

from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    BudgetExhausted,
    CleverAgentsError,
    ModelRefused,
    ModelUnavailable,
    RequestRefused,
    UsageLimited,
)
from cleveragents.models.model.budget import Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import Model, ModelReply, ModelRequest, ModelSource, Reservation
from cleveragents.models.store.sql_budget_store import SqlBudgetStore

__all__ = ["CallName", "ModelCalls", "OpenCalls", "OpenCallsOfTrees", "Traffic", "out_of_time"]


_LEAST_OUTPUT = 512
"""Shortest answer worth requesting when the budget is nearly spent, in tokens."""
_LOOK_SECONDS = 0.05

_ELSEWHERE_SECONDS = 2.0
"""How long to wait for calls of other processes, which may be dead."""
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


def out_of_time(plan_id: str) -> BudgetExhausted:
    """Return the error for a plan that reached its time limit."""
    return BudgetExhausted(plan_id, "the time limit is reached")


class CallName(Struct, frozen=True):
    """The identity of a call.

    `key` is unique within its plan. If a call is made again under the same key, the reservation of the first
    call counts as spent.
    """

    key: str
    actor: str
    node: str


class OpenCalls:
    """A count of running calls that hold a part of a budget.

    Thread safety:
        Owner: the runs whose calls it counts; any thread may begin and end one.
        Lock: `_lock` guards both counts, for arithmetic only.
        Guarantee: `open` is the number of calls begun and not ended, and every end is counted.
    Cancel safety: nothing here waits. The caller that began a call ends it, cancelled or not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._ended = 0

    def begin(self) -> None:
        with self._lock:
            self._open += 1

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            self._ended += 1

    def look(self) -> Traffic:
        with self._lock:
            return Traffic(self._open, self._ended)


class ModelCalls(Struct, frozen=True, kw_only=True):
    """Model calls on one budget. Any number may run concurrently, on one event loop.

    A failed call that may have cost something is charged and made again, up to `retries` times; the model
    itself retries calls that cost nothing. After `patience_seconds`, a call is not made again and does not
    wait for running calls. No call starts when `seconds_left` reaches 0.

    Cancel safety: a cancelled call has closed its connection and counts at its worst case; a call that still
    waits for the budget has reserved nothing.
    """

    models: ModelSource
    budgets: SqlBudgetStore
    clock: Clock
    plan_id: str
    root_id: str
    fallback: str | None = None
    retries: int = 0
    patience_seconds: float = 600.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    open_calls: OpenCalls = field(default_factory=OpenCalls)
    seconds_left: Callable[[], float] | None = None
    in_use: dict[str, Model] = field(default_factory=dict)
    """The models that were opened for these calls: they stay at their address if another one is chosen."""

    async def reply(
        self,
        model: str,
        request: ModelRequest,
        name: CallName,
        on_token: Callable[[str], None] | None = None,
    ) -> ModelReply:
        """Return the answer of the model, or of the fallback if the model is unavailable.

        If both are unavailable, the error of the fallback is raised. If one of them reached a usage limit,
        the error of the model is raised; if both did, the error with the earlier reset. Raises
        `BudgetExhausted`, `PriceUnknown` and the errors of `Model.reply`.
        """
        heard = _Heard(on_token)
        try:
            return await self._tried(await self._opened(model), request, name, heard)
        except ModelUnavailable as first:
            second = self.fallback
            if second is None or second == model or heard.anything:  # guard: no mix of two answers
                raise
            if not self._takes(second, request):
                raise
            other = replace(name, key=f"{name.key}/fallback")
            try:
                return await self._tried(await self._opened(second), request, other, heard)
            except ModelUnavailable as last:
                raise _decisive(first, last) from None

    def _takes(self, model: str, request: ModelRequest) -> bool:
        try:
            self.models.facts(model).attachment_tokens(request.attachments)
        except RequestRefused:
            return False
        return True

    async def _opened(self, model: str) -> Model:
        known = self.in_use.get(model) or self.models.get_nowait(model)
        # Opening imports the provider's library, which may take seconds. It must not block the event loop.
        found = known if known is not None else await asyncio.to_thread(self.models.get, model)
        return self.in_use.setdefault(model, found)

    async def _tried(self, model: Model, request: ModelRequest, name: CallName, heard: _Heard) -> ModelReply:
        give_up = self.clock.monotonic() + self.patience_seconds
        for number in range(self.retries):
            pause = min(_FIRST_PAUSE_SECONDS * 2.0**number, _LONGEST_PAUSE_SECONDS)
            try:
                return await self._call(model, request, name, heard)
            except ModelUnavailable as error:
                late = self.clock.monotonic() + pause > give_up
                if late or heard.anything or not error.charged:
                    raise
            await self.sleep(pause)
        return await self._call(model, request, name, heard)

    async def _call(self, model: Model, request: ModelRequest, name: CallName, heard: _Heard) -> ModelReply:
        if self.seconds_left is not None and self.seconds_left() <= 0:  # guard: an actor has its own limit
            raise out_of_time(self.plan_id)
        reservation, request = await self._reserved_request(model, request, name)
        priced = model.facts.price is not None
        try:
            reply = await model.reply(request, heard)
        except CleverAgentsError as error:
            usage = _took(error)
            if usage is not None:
                spent = _spent(model, usage, reservation)
            else:
                spent = reservation.worst if heard.anything or _charged(error) else Spend(steps=1)
            await self._settled(reservation, spent, usage, priced)
            raise
        except BaseException:
            # Cancelled, or worse: the provider may have completed the call.
            await self._settled(reservation, reservation.worst, None, priced)
            raise
        await self._settled(reservation, _spent(model, reply.usage, reservation), reply.usage, priced)
        return reply

    async def _reserved_request(
        self, model: Model, request: ModelRequest, name: CallName
    ) -> tuple[Reservation, ModelRequest]:
        """Reserve the call; return the reservation and the request to send.

        If the remaining budget is too small, and no running call can release a part of its reservation, the
        request asks for a shorter answer. Raises `BudgetExhausted`.
        """
        give_up = self.clock.monotonic() + self.patience_seconds
        alone = False
        while True:
            ended = self.open_calls.look().ended
            try:
                return await self._asked(lambda: self._reserved(model, request, name))
            except BudgetExhausted:
                if await self._wait_ended(ended):  # guard: failing would cancel siblings at their worst case
                    continue
            try:
                return await self._asked(lambda: self._afforded(model, request, name))
            except BudgetExhausted:
                # Of several callers that found no running call, one has reserved the rest by now or is about
                # to; the others wait for it. A caller that finds no running call twice really is alone.
                idle = not self.open_calls.look().open
                if (alone and idle) or self.clock.monotonic() >= give_up:  # guard: the wait must end
                    raise
                alone = idle

    async def _wait_ended(self, before: int) -> bool:
        """Wait until a call ends and return True; return False if none is running or none ends in time."""
        began = self.clock.monotonic()
        while True:
            traffic = self.open_calls.look()
            if traffic.ended != before:
                return True
            patience = self.patience_seconds
            if not traffic.open:
                view = await asyncio.to_thread(self.budgets.view, self.root_id)
                patience = min(patience, _ELSEWHERE_SECONDS) if view.reserved.steps else 0.0
            if self.clock.monotonic() - began >= patience:  # guard: no wait without open calls
                return False
            await self.sleep(_LOOK_SECONDS)

    async def _asked(
        self, ask: Callable[[], tuple[Reservation, ModelRequest]]
    ) -> tuple[Reservation, ModelRequest]:
        reserving = asyncio.ensure_future(asyncio.to_thread(ask))
        try:
            return await asyncio.shield(reserving)
        except asyncio.CancelledError:
            with suppress(CleverAgentsError):
                reservation, _ = await reserving  # guard: a reservation made after the cancel is released
                await asyncio.to_thread(self._released, reservation)
            raise

    def _afforded(
        self, model: Model, request: ModelRequest, name: CallName
    ) -> tuple[Reservation, ModelRequest]:
        try:
            return self._reserved(model, request, name)
        except BudgetExhausted:
            shorter = replace(request, max_output_tokens=self._affordable(model, model.count_tokens(request)))
            if not _LEAST_OUTPUT <= shorter.max_output_tokens < request.max_output_tokens:
                raise
            return self._reserved(model, shorter, name)

    def _reserved(
        self, model: Model, request: ModelRequest, name: CallName
    ) -> tuple[Reservation, ModelRequest]:
        reservation = self._reserve(model, request, model.count_tokens(request), name)
        self.open_calls.begin()
        return reservation, request

    def _reserve(self, model: Model, request: ModelRequest, read: int, name: CallName) -> Reservation:
        usage = Usage(read, request.max_output_tokens)
        price = model.facts.price
        worst = Spend(0 if price is None else price.worst(usage), usage.total, 1)
        return self.budgets.reserve(
            self.root_id,
            self.plan_id,
            worst,
            key=name.key,
            actor=name.actor,
            node=name.node,
            model=model.facts.name,
            now=self.clock.now(),
            priced=price is not None,
        )

    def _affordable(self, model: Model, read: int) -> int:
        """Return the maximum number of answer tokens that the remaining budget covers after the input."""
        view = self.budgets.view(self.root_id)
        taken = view.spent + view.reserved
        bounds: list[int] = []
        if view.limits.tokens is not None:
            bounds.append(view.limits.tokens - taken.tokens - read)
        price = model.facts.price
        if view.limits.picodollars is not None and price is not None and price.output:
            left = view.limits.picodollars - taken.picodollars - price.worst(Usage(read, 0))
            bounds.append(left // price.output)
        return min(bounds, default=0)

    async def _settled(
        self, reservation: Reservation, spent: Spend, usage: Usage | None, priced: bool
    ) -> None:
        def settle() -> None:
            try:
                self.budgets.settle(reservation, spent, usage, now=self.clock.now(), priced=priced)
            finally:
                self.open_calls.end()

        # Shielded: a cancellation now must not leave the reservation open.
        await asyncio.shield(asyncio.to_thread(settle))

    def _released(self, reservation: Reservation) -> None:
        try:
            self.budgets.release(reservation, now=self.clock.now())
        finally:
            self.open_calls.end()


class _Heard:
    """A listener that records whether any piece arrived and passes pieces on.

    Not thread-safe: one per call.
    """

    def __init__(self, listener: Callable[[str], None] | None) -> None:
        self._listener = listener
        self.anything = False

    def __call__(self, piece: str) -> None:
        self.anything = True
        if self._listener is not None:
            self._listener(piece)


def _decisive(first: ModelUnavailable, last: ModelUnavailable) -> ModelUnavailable:
    """Return the error to raise if neither the model nor the fallback answered: the error of the fallback. If
    one of them reached a usage limit, return the error of the model; if both did, the error with the
    earlier reset.
    """
    if isinstance(first, UsageLimited) and isinstance(last, UsageLimited):
        return min(first, last, key=lambda one: inf if (wait := one.retry_after_seconds) is None else wait)
    return first if isinstance(first, UsageLimited) or isinstance(last, UsageLimited) else last


def _spent(model: Model, usage: Usage | None, reservation: Reservation) -> Spend:
    """Return the actual spend of a call; its worst case if the provider reports no usage."""
    if usage is None:
        return reservation.worst
    price = model.facts.price
    return Spend(0 if price is None else price.of(usage), usage.total, 1)


def _charged(error: CleverAgentsError) -> bool:
    return isinstance(error, ModelUnavailable | ModelRefused) and error.charged


def _took(error: CleverAgentsError) -> Usage | None:
    """Return the usage that the provider reported for a failed call."""
    if not isinstance(error, ModelUnavailable | ModelRefused) or error.took is None:
        return None
    return Usage(*error.took)


class Traffic(Struct, frozen=True):
    """A snapshot: calls that are `open` now and calls that have `ended`."""

    open: int
    ended: int


class OpenCallsOfTrees:
    """One `OpenCalls` for all plans of a tree, so that plans can wait for reservations of their siblings.

    Thread safety:
        Owner: the process that runs the plans; any thread may ask.
        Lock: `_lock` guards the dictionary, for a look-up or an insertion.
        Guarantee: while any caller holds the count of a tree, all callers get the same one; it is removed
            with its last holder.
    Cancel safety: nothing here waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[str, OpenCalls] = WeakValueDictionary()

    def of(self, root_id: str) -> OpenCalls:
        with self._lock:
            found = self._known.get(root_id)
            if found is None:
                found = self._known[root_id] = OpenCalls()
            return found
