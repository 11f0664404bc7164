"""Where budgets are kept: reserved before a call, settled after it, across the whole tree of plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cleveragents.models.model.budget import Limits, Spend
from cleveragents.models.model.conversation import Usage

__all__ = ["BudgetStore", "BudgetView", "ModelCall", "Reservation"]


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A budget as it stands. `reserved` is for calls that are under way, at their worst case."""

    root_id: str
    limits: Limits
    spent: Spend
    reserved: Spend


@dataclass(frozen=True, slots=True)
class Reservation:
    """Leave to spend that much, once. `id` names it for `settle`."""

    id: str
    root_id: str
    plan_id: str
    worst: Spend


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model, for the account: what it took, or the worst it may have."""

    plan_id: str
    actor: str
    node: str
    model: str
    usage: Usage | None
    picodollars: int | None
    state: str
    started_at: datetime
    ended_at: datetime | None = None


class BudgetStore(Protocol):
    """Budgets by the root plan of a tree. Every method is one atomic step, from any process.

    At no moment is spent + reserved more than a limit; what was reserved by a worker that died stays
    reserved until `forfeit` counts it as spent.
    """

    def open(self, root_id: str, limits: Limits, *, now: datetime) -> BudgetView:
        """The budget, made if there is none; an existing one keeps its limits."""
        ...

    def view(self, root_id: str) -> BudgetView:
        """A budget that was never opened has no limits and nothing spent."""
        ...

    def reserve(
        self,
        root_id: str,
        plan_id: str,
        worst: Spend,
        *,
        key: str,
        actor: str,
        node: str,
        model: str,
        now: datetime,
        priced: bool = True,
    ) -> Reservation:
        """`BudgetExhausted` when it does not fit, `PriceUnknown` when money is limited and the call is not
        `priced`: then nothing is reserved.

        A repeated `key` (a call that is made again after a crash) forfeits what was reserved before, in
        the same step. A spend that takes the tree over 90 % of a limit leaves an event, once for a limit.
        """
        ...

    def settle(
        self,
        reservation: Reservation,
        spent: Spend,
        usage: Usage | None,
        *,
        now: datetime,
        priced: bool = True,
    ) -> None:
        """Once: counts what was really spent. Settling again changes nothing. Where nobody knows the price,
        the call's money stays unknown, which is not nothing."""
        ...

    def release(self, reservation: Reservation, *, now: datetime) -> None:
        """The call was never made: nothing is spent."""
        ...

    def forfeit(self, plan_id: str, *, now: datetime) -> Spend:
        """Counts as spent what earlier, dead runs of the plan had reserved."""
        ...

    def raise_limits(self, root_id: str, limits: Limits, *, now: datetime) -> BudgetView:
        """New limits; what is None there stays as it is."""
        ...

    def calls_of(self, plan_id: str) -> Sequence[ModelCall]:
        """In order."""
        ...
