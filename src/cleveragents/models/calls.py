"""The model calls of one plan: reserved at their worst case, made, settled at what they took.

A call whose end nobody saw (cancelled, cut off, no word in time) counts at its worst case: the provider may
charge for it. One that the provider turned down, or that never reached it, costs nothing.

A call that does not fit waits for those of its run, and of its tree's other plans in this process, that are
under way: they were reserved at their worst case and mostly take less. Giving up at once would end the run:
they would be cancelled, and count at that worst.

How many calls on a budget are under way in this process, and how many have ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    BudgetExhausted,
    CleverAgentsError,
    ModelRefused,
    ModelUnavailable,
)
from cleveragents.models.model.budget import Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import Model, ModelReply, ModelRequest, ModelSource, Reservation
from cleveragents.models.store.sql_budget_store import SqlBudgetStore

__all__ = ["CallName", "ModelCalls", "OpenCalls", "OpenCallsOfTrees", "Traffic", "out_of_time"]


_LEAST_OUTPUT = 512
"""Tokens that an answer needs to be worth asking for, when the budget leaves no more."""
_LOOK_SECONDS = 0.05

_ELSEWHERE_SECONDS = 2.0
"""How long calls of other processes are waited for: nobody here knows whether they are alive."""
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


def out_of_time(plan_id: str) -> BudgetExhausted:
    """What a plan is told whose time is over."""
    return BudgetExhausted(plan_id, "the time it may take is over")


@dataclass(frozen=True, slots=True)
class CallName:
    """Who calls. `key` names the call for good within its plan: made again, it forfeits its first try."""

    key: str
    actor: str
    node: str


class OpenCalls:
    """Counts calls that hold a part of a budget.

    Thread safety:
        Owner: the runs whose calls it counts; any thread may begin and end one.
        Lock: `_lock` guards both counts, for arithmetic only.
        Guarantee: `open` is how many were begun and not ended, and no end goes uncounted.
    Cancel safety: nothing here waits. Whoever began a call ends it, cancelled or not.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """Calls on one budget. Any number may run at once, on one event loop.

    A try that may have cost something is paid for before the next is made, up to `retries` times more; what
    costs nothing the model itself tries again. `patience_seconds` is how long an answer may take: after it
    nothing is tried again, and no call under way is waited for any longer. When there are no `seconds_left`,
    no call is begun any more.

    Cancel safety: a cancelled call has closed its connection, and counts at its worst case; one that still
        waits for room has reserved nothing.
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
            return await self._tried(await self._opened(model), request, name, heard)
        except ModelUnavailable:
            second = self.fallback
            if second is None or second == model or heard.anything:  # guard: no answer out of two halves
                raise
            other = replace(name, key=f"{name.key}/fallback")
            return await self._tried(await self._opened(second), request, other, heard)

    async def _opened(self, model: str) -> Model:
        known = self.models.get_nowait(model)
        # The first time a provider's library is imported, which may take seconds: not on the loop.
        return known if known is not None else await asyncio.to_thread(self.models.get, model)

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
        if self.seconds_left is not None and self.seconds_left() <= 0:  # guard: an actor's time began later
            raise out_of_time(self.plan_id)
        reservation, request = await self._leave(model, request, name)
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
            # Cancelled, or worse: what the provider did meanwhile nobody knows.
            await self._settled(reservation, reservation.worst, None, priced)
            raise
        await self._settled(reservation, _spent(model, reply.usage, reservation), reply.usage, priced)
        return reply

    async def _leave(
        self, model: Model, request: ModelRequest, name: CallName
    ) -> tuple[Reservation, ModelRequest]:
        """Leave to make the call; a shorter answer is asked for where the budget leaves no room for more, and
        nobody is under way who may yet give some back."""
        give_up = self.clock.monotonic() + self.patience_seconds
        alone = False
        while True:
            ended = self.open_calls.look().ended
            try:
                return await self._asked(lambda: self._reserved(model, request, name))
            except BudgetExhausted:
                if await self._wait_ended(ended):  # guard: siblings would be cancelled, at their worst
                    continue
            try:
                return await self._asked(lambda: self._afforded(model, request, name))
            except BudgetExhausted:
                # Of several that found nobody under way, one has the rest by now, or is about to begin with
                # it: it is waited for like any other. Who is alone twice is alone.
                nobody = not self.open_calls.look().open
                if (alone and nobody) or self.clock.monotonic() >= give_up:  # guard: nobody waits for ever
                    raise
                alone = nobody

    async def _wait_ended(self, before: int) -> bool:
        """Whether a call has ended since there were that many; False if none is under way, or none ends in
        time."""
        began = self.clock.monotonic()
        while True:
            traffic = self.open_calls.look()
            if traffic.ended != before:
                return True
            patience = self.patience_seconds
            if not traffic.open:
                view = await asyncio.to_thread(self.budgets.view, self.root_id)
                patience = min(patience, _ELSEWHERE_SECONDS) if view.reserved.steps else 0.0
            if self.clock.monotonic() - began >= patience:  # guard: nobody waits for ever, nor for nobody
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
                reservation, _ = await reserving  # guard: given after the cancel, it is still given back
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
            priced=price is not None,
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

    async def _settled(
        self, reservation: Reservation, spent: Spend, usage: Usage | None, priced: bool
    ) -> None:
        def settle() -> None:
            try:
                self.budgets.settle(reservation, spent, usage, now=self.clock.now(), priced=priced)
            finally:
                self.open_calls.end()

        # Shielded: a cancel that comes now must not leave the reservation open.
        await asyncio.shield(asyncio.to_thread(settle))

    def _released(self, reservation: Reservation) -> None:
        try:
            self.budgets.release(reservation, now=self.clock.now())
        finally:
            self.open_calls.end()


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


def _charged(error: CleverAgentsError) -> bool:
    return isinstance(error, ModelUnavailable | ModelRefused) and error.charged


def _took(error: CleverAgentsError) -> Usage | None:
    """What the provider says a failed call took."""
    if not isinstance(error, ModelUnavailable | ModelRefused) or error.took is None:
        return None
    return Usage(*error.took)


@dataclass(frozen=True, slots=True)
class Traffic:
    """A moment: calls that are `open` now, and those that `ended` before."""

    open: int
    ended: int


class OpenCallsOfTrees:
    """One count for all plans of a tree: what a sibling here has reserved, it will settle or give back.

    Thread safety:
        Owner: whoever lets plans run in this process; any thread may ask.
        Lock: `_lock` guards the dictionary, for a look-up or an insertion.
        Guarantee: all who ask for a tree while somebody holds its count get the same one; when nobody does,
            it is gone.
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
