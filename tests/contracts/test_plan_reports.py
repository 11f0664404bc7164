"""Queries over all plans give the same answers on each database: text search and sums of costs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cleveragents.access.store.sql_project_store import SqlProjectStore
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.tool import CallState
from cleveragents.models.model.budget import BudgetLimits, Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.models.store.sql_cost_report import CostGroup, CostSum, SqlCostReport
from cleveragents.plans.store.sql_plan_search import SqlPlanSearch
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import LATER, NOW, PlanStand

DAY = timedelta(days=1)


@pytest.fixture
def stand(database: Database) -> PlanStand:
    projects = SqlProjectStore(database, UlidSource(), "/home")
    for name in ("shop", "far"):
        projects.add(name, now=NOW)
    return PlanStand(database)


def test_a_search_finds_goals_and_changes_in_either_case(stand: PlanStand, database: Database) -> None:
    old = stand.plan(goal="Paint it 100% BLUE", project="shop")
    new = stand.plan(goal="other", project="shop")
    stand.plan(goal="blue elsewhere", project="far")
    call = stand.calls.add(
        new.id, "write", {"path": "f", "content": "blüe Blue"}, step="1", state=CallState.STARTED, now=NOW
    )
    changeset = stand.changesets.start(new.id)
    stand.changesets.record(changeset, ChangeEntry(ChangeKind.CREATE, "f", after_hash="h"))
    stand.calls.move(call, CallState.ENDED, changeset_id=changeset, now=NOW)
    search = SqlPlanSearch(database)

    def found(text: str) -> list[tuple[str, str]]:
        texts = search.find(text, project="shop", scope=frozenset({"shop"}))
        return [(one.plan_id, one.place) for one in texts if text in one.text.lower()]

    assert found("blue") == [(new.id, "changes"), (old.id, "goal")]
    assert found("blüe") == [(new.id, "changes")]
    assert found("100% b") == [(old.id, "goal")]
    assert found("100_ b") == []  # no wildcard
    assert search.find("blue", project=None, scope=frozenset()) == []
    assert search.find("nul\0", project=None, scope=None) == ()


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("day", ["2026-01-01", "2026-01-02"]),
        ("project", ["far", "shop"]),
        ("model", ["m/x"]),
        ("actor", ["a/b"]),
    ],
)
def test_costs_are_summed_by_each_group(
    stand: PlanStand, database: Database, by: CostGroup, names: list[str]
) -> None:
    budgets = SqlBudgetStore(database, UlidSource())
    for project, when, cost in (("shop", NOW, 7), ("far", NOW + DAY, 9)):
        plan = stand.plan(project=project)
        budgets.open(plan.id, BudgetLimits(), now=when)
        for key in ("paid", "lost"):
            worst = Spend(50, 100, 1)
            made = budgets.reserve(
                plan.id, plan.id, worst, key=key, actor="a/b", node="n", model="m/x", now=when
            )
            if key == "paid":
                budgets.settle(made, Spend(cost, 30, 1), Usage(20, 10, 5), now=when)
        budgets.forfeit(plan.id, now=LATER)
    report = SqlCostReport(database)
    sums = report.sums(by, since=NOW - DAY, until=NOW + 2 * DAY, project=None, scope=None)
    assert [one.name for one in sums] == names
    assert sum(one.picodollars for one in sums) == 7 + 9 + 2 * 50
    assert sum(one.interrupted for one in sums) == 2
    [shop] = report.sums(by, since=NOW, until=NOW + DAY, project="shop", scope=frozenset({"shop"}))
    assert shop == CostSum(shop.name, 2, 57, shop.input_tokens, shop.output_tokens, 0, 1, 5)
    assert list(report.sums(by, since=NOW, until=NOW + DAY, project=None, scope=frozenset())) == []
