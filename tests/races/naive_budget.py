"""Budgets that check before they reserve: two callers get the same remainder."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from cleveragents.core.errors import BudgetExhausted
from cleveragents.models.model.budget import BudgetLimits, Spend, exceeded
from cleveragents.models.ports import Reservation
from cleveragents.models.store.sql_budget_store import SqlBudgetStore

__all__ = ["LookThenReserveBudgetStore", "OwnBudgetStore", "SettledLaterBudgetStore"]


class LookThenReserveBudgetStore(SqlBudgetStore):
    """Decides on a read of the budget, and writes in a separate transaction."""

    def reserve(self, root_id: str, plan_id: str, worst: Spend, **call: Any) -> Reservation:
        view = self.view(root_id)
        if exceeded(view.limits, view.spent + view.reserved + worst):
            raise BudgetExhausted(plan_id, "")
        limits = view.limits
        self.raise_limits(root_id, BudgetLimits(tokens=10**9), now=call["now"])
        reserved = super().reserve(root_id, plan_id, worst, **call)
        self.raise_limits(root_id, limits, now=call["now"])
        return reserved


class SettledLaterBudgetStore(SqlBudgetStore):
    """Reserves nothing: counts a call when it is over, as most tools do."""

    def reserve(self, root_id: str, plan_id: str, worst: Spend, **call: Any) -> Reservation:
        view = self.view(root_id)
        if exceeded(view.limits, view.spent + worst):
            raise BudgetExhausted(plan_id, "")
        return replace(super().reserve(root_id, plan_id, Spend(), **call), worst=worst)

    def settle(
        self, reservation: Reservation, spent: Spend, usage: Any, *, now: datetime, priced: bool = True
    ) -> None:
        super().settle(replace(reservation, worst=Spend()), spent, usage, now=now, priced=priced)


class OwnBudgetStore(SqlBudgetStore):
    """Gives every plan a separate budget as large as the root's, as agents that start agents do."""

    def reserve(self, root_id: str, plan_id: str, worst: Spend, **call: Any) -> Reservation:
        self.open(plan_id, self.view(root_id).limits, now=call["now"])
        return super().reserve(plan_id, plan_id, worst, **call)
