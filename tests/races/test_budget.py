"""Of two calls that would each fit alone, one is refused: the limit holds for concurrent spenders."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

import pytest

from cleveragents.core.errors import BudgetExhausted
from cleveragents.models.model.budget import BudgetLimits, Spend
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.testing.clock import CountingIdentifiers
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_budget import LookThenReserveBudgetStore, SettledLaterBudgetStore
from tests.races.one_connection import content_of, in_memory_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 10


@dataclass
class Shared:
    """A tree of plans with ten tokens, and two callers that each need six."""

    store: type[SqlBudgetStore]
    answers: dict[int, Hashable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database = in_memory_database(_beginning())
        self.budgets = self.store(self.database, CountingIdentifiers("new"))

    def spend(self, who: int) -> None:
        worst = Spend(0, 6, 1)
        try:
            call = self.budgets.reserve(
                "root", f"plan{who}", worst, key="k", actor="a", node="n", model="m", now=NOW
            )
        except BudgetExhausted:
            self.answers[who] = "refused"
            return
        self.answers[who] = "given"
        self.budgets.settle(call, worst, None, now=NOW)

    def outcome(self) -> Hashable:
        view = self.budgets.view("root")
        self.database.close()
        return (self.answers[0], self.answers[1], view.spent.tokens, view.reserved.tokens)


@cache
def _beginning() -> bytes:
    with in_memory_database() as database:
        SqlBudgetStore(database, CountingIdentifiers("old")).open("root", BudgetLimits(tokens=LIMIT), now=NOW)
        return content_of(database)


def scenario(store: type[SqlBudgetStore]) -> Scenario[Shared]:
    outcomes: set[Hashable] = {("given", "refused", 6, 0), ("refused", "given", 6, 0)}
    return Scenario(
        name="two calls on one budget",
        setup=lambda: Shared(store),
        workers=[lambda shared: shared.spend(0), lambda shared: shared.spend(1)],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome in outcomes,
        reachable=frozenset(outcomes),
    )


def test_of_two_calls_that_fit_alone_one_is_refused() -> None:
    assert_holds(scenario(SqlBudgetStore), effort=40)


@pytest.mark.parametrize("naive", [LookThenReserveBudgetStore, SettledLaterBudgetStore])
def test_catches_budgets_that_check_before_they_reserve(naive: type[SqlBudgetStore]) -> None:
    assert_caught(scenario(naive), effort=120)
