"""Budgets: spent plus reserved never exceeds a limit, and no reservation is ever lost."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleveragents.cli.render.remedies import command_line
from cleveragents.core.errors import BudgetExhausted, PriceUnknown
from cleveragents.core.identifiers import UlidSource
from cleveragents.models.model.budget import BudgetLimits, Price, Spend, dollars
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import Reservation
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import LATER, NOW, PlanStand


@pytest.fixture
def stand(database: Database) -> PlanStand:
    return PlanStand(database)


@pytest.fixture
def budgets(database: Database) -> SqlBudgetStore:
    return SqlBudgetStore(database, UlidSource())


def reserve(
    budgets: SqlBudgetStore, tokens: int, *, key: str = "k", plan: str = "p", picodollars: int = 0
) -> Reservation:
    worst = Spend(picodollars, tokens, 1)
    return budgets.reserve("p", plan, worst, key=key, actor="a/b", node="n", model="m/x", now=NOW)


def told(stand: PlanStand) -> list[str]:
    return [event for event, _, _ in stand.events()]


def test_a_budget_keeps_the_limits_it_was_opened_with(budgets: SqlBudgetStore) -> None:
    budgets.open("p", BudgetLimits(tokens=100, seconds=2.5), now=NOW)
    budgets.open("p", BudgetLimits(tokens=900), now=NOW)
    assert budgets.view("p").limits == BudgetLimits(tokens=100, seconds=2.5)


def test_an_unopened_budget_has_no_limits(budgets: SqlBudgetStore) -> None:
    assert budgets.view("p").limits == BudgetLimits()
    reserve(budgets, 10**12)
    assert budgets.view("p").reserved == Spend(0, 10**12, 1)


def test_an_exact_fit_is_reserved_and_one_more_token_is_not(budgets: SqlBudgetStore) -> None:
    budgets.open("p", BudgetLimits(tokens=100), now=NOW)
    reserve(budgets, 60, key="1")
    with pytest.raises(BudgetExhausted) as refused:
        reserve(budgets, 41, key="2")
    reserve(budgets, 40, key="3")
    assert budgets.view("p").reserved == Spend(0, 100, 2)
    assert "0 of 100 tokens spent, 60 reserved; the next call may use up to 41" in str(refused.value)
    assert refused.value.remedies[0].options == {"limits.tokens": 101}


def test_a_money_limit_refuses_a_call_without_a_price(budgets: SqlBudgetStore) -> None:
    named = {"actor": "a/b", "node": "n", "model": "m/x", "now": NOW, "priced": False}
    budgets.open("p", BudgetLimits(tokens=100), now=NOW)
    budgets.reserve("p", "p", Spend(tokens=1), key="1", **named)
    budgets.raise_limits("p", BudgetLimits(picodollars=10**9), now=NOW)
    with pytest.raises(PriceUnknown, match="m/x"):
        budgets.reserve("p", "p", Spend(tokens=1), key="2", **named)
    assert budgets.view("p").reserved == Spend(tokens=1)


@pytest.mark.parametrize(
    ("limits", "option"),
    [
        (BudgetLimits(picodollars=10), "--max-usd"),
        (BudgetLimits(tokens=1), "--max-tokens"),
        (BudgetLimits(steps=0), "--max-steps"),
    ],
)
def test_every_kind_of_limit_refuses_and_names_its_option(
    budgets: SqlBudgetStore, limits: BudgetLimits, option: str
) -> None:
    budgets.open("p", limits, now=NOW)
    with pytest.raises(BudgetExhausted) as refused:
        reserve(budgets, 5, picodollars=11)
    assert option in command_line(refused.value.remedies[0])
    assert budgets.view("p").reserved == Spend()


def test_a_settled_call_counts_its_usage_and_returns_the_rest(budgets: SqlBudgetStore) -> None:
    budgets.open("p", BudgetLimits(tokens=100), now=NOW)
    call = reserve(budgets, 100)
    budgets.settle(call, Spend(7, 30, 1), Usage(20, 10, 5), now=LATER)
    budgets.settle(call, Spend(7, 30, 1), Usage(20, 10, 5), now=LATER)
    view = budgets.view("p")
    assert (view.spent, view.reserved) == (Spend(7, 30, 1), Spend())
    [kept] = budgets.calls_of("p")
    assert (kept.state, kept.usage, kept.picodollars, kept.ended_at) == (
        "settled",
        Usage(20, 10, 5),
        7,
        LATER,
    )
    reserve(budgets, 70, key="2")


def test_a_released_call_costs_nothing(budgets: SqlBudgetStore) -> None:
    call = reserve(budgets, 100)
    budgets.release(call, now=LATER)
    view = budgets.view("p")
    assert (view.spent, view.reserved) == (Spend(), Spend())


def test_a_retried_call_counts_its_first_attempt_at_the_worst_case(budgets: SqlBudgetStore) -> None:
    first = reserve(budgets, 30)
    second = reserve(budgets, 20)
    budgets.settle(first, Spend(0, 1, 1), None, now=LATER)
    budgets.settle(second, Spend(0, 2, 1), None, now=LATER)
    view = budgets.view("p")
    assert (view.spent, view.reserved) == (Spend(0, 32, 2), Spend())
    assert [call.state for call in budgets.calls_of("p")] == ["forfeited", "settled"]


def test_reservations_of_a_dead_run_count_as_spent_once_forfeited(budgets: SqlBudgetStore) -> None:
    reserve(budgets, 30, key="1")
    reserve(budgets, 12, key="2")
    reserve(budgets, 5, key="3", plan="another")
    assert budgets.forfeit("p", now=LATER) == Spend(0, 42, 2)
    assert budgets.forfeit("p", now=LATER) == Spend()
    view = budgets.view("p")
    assert (view.spent, view.reserved) == (Spend(0, 42, 2), Spend(0, 5, 1))


def test_a_raised_limit_lets_the_next_call_through_and_leaves_the_others(budgets: SqlBudgetStore) -> None:
    budgets.open("p", BudgetLimits(tokens=10, steps=5), now=NOW)
    view = budgets.raise_limits("p", BudgetLimits(tokens=50), now=NOW)
    assert view.limits == budgets.view("p").limits == BudgetLimits(tokens=50, steps=5)
    reserve(budgets, 50)


def test_a_nearly_spent_limit_is_reported_once_and_again_for_a_new_limit(
    budgets: SqlBudgetStore, stand: PlanStand
) -> None:
    budgets.open("p", BudgetLimits(tokens=100), now=NOW)
    for key, tokens in (("1", 89), ("2", 1), ("3", 1)):
        budgets.settle(reserve(budgets, tokens, key=key), Spend(0, tokens, 1), None, now=NOW)
        assert told(stand).count("budget.nearly_spent") == (0 if key == "1" else 1)
    budgets.raise_limits("p", BudgetLimits(tokens=101), now=NOW)
    budgets.settle(reserve(budgets, 1, key="4"), Spend(0, 1, 1), None, now=NOW)
    assert told(stand).count("budget.nearly_spent") == 2


def test_a_deleted_plan_deletes_its_budget_and_calls(budgets: SqlBudgetStore, stand: PlanStand) -> None:
    plan, other = stand.plan(), stand.plan()
    for each in (plan, other):
        budgets.open(each.id, BudgetLimits(tokens=5), now=NOW)
        worst = Spend(0, 1, 1)
        budgets.reserve(each.id, each.id, worst, key="k", actor="a", node="n", model="m", now=NOW)
    stand.plans.delete(plan, now=NOW)
    assert budgets.view(plan.id).limits == BudgetLimits()
    assert not budgets.calls_of(plan.id)
    assert budgets.view(other.id).reserved == Spend(0, 1, 1)


@given(
    limit=st.integers(0, 60),
    steps=st.lists(st.tuples(st.sampled_from("rsxf"), st.integers(0, 30), st.integers(0, 3)), max_size=25),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_limit_holds_and_the_sums_equal_the_calls(
    database: Database, limit: int, steps: list[tuple[str, int, int]]
) -> None:
    identifiers = UlidSource()
    budgets = SqlBudgetStore(database, identifiers)
    root = identifiers.new()
    budgets.open(root, BudgetLimits(tokens=limit), now=NOW)
    under_way: list[Reservation] = []
    for act, tokens, key in steps:
        worst = Spend(tokens * 3, tokens, 1)
        if act == "r":
            try:
                call = budgets.reserve(
                    root, root, worst, key=str(key), actor="a", node="n", model="m", now=NOW
                )
                under_way.append(call)
            except BudgetExhausted:
                pass
        elif act == "f":
            budgets.forfeit(root, now=NOW)
        elif under_way:
            call = under_way.pop(tokens % len(under_way))
            if act == "x":
                budgets.release(call, now=NOW)
            else:
                share = Spend(call.worst.picodollars // 2, call.worst.tokens // 2, 1)
                budgets.settle(call, share, None, now=NOW)
        view = budgets.view(root)
        assert view.spent.tokens + view.reserved.tokens <= limit
        calls = budgets.calls_of(root)
        assert view.spent.picodollars == sum(call.picodollars or 0 for call in calls)
        assert view.reserved.steps == sum(call.state == "reserved" for call in calls)


def test_money_is_counted_without_rounding() -> None:
    price = Price(input=150_000, output=600_000, cached=75_000)
    assert price.of(Usage(1_000_000, 1_000_000, 400_000)) == 90_000_000_000 + 30_000_000_000 + 600_000_000_000
    assert Price(3, 5).of(Usage(10, 1, 4)) == 35
    assert [dollars(n) for n in (0, 10**12, 12_300_000_000)] == ["$0.00", "$1.00", "$0.0123"]
    assert [dollars(n) for n in (7_100_000, 1)] == ["$0.000007", "$0.000000000001"]
