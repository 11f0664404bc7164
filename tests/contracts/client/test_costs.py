"""Costs of model calls, through every client."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from cleveragents.api.client import Client
from cleveragents.api.views import as_json
from cleveragents.core.errors import RequestRefused
from cleveragents.core.identifiers import UlidSource
from cleveragents.models.model.budget import PICODOLLARS, Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

NOON = datetime(2020, 5, 4, 12, tzinfo=UTC)
DAYS: dict[str, Any] = {"since": date(2020, 5, 3), "until": date(2020, 5, 5)}


@pytest.fixture(scope="module")
def recorded(server: PlanServer, foreign: str) -> None:
    """Three calls on two days, one without a price, and one of a project that only admins see."""
    budgets = SqlBudgetStore(server.bench.container.database, UlidSource())
    near, far = (_plan(server, resource) for resource in ("shop", foreign))
    cents = PICODOLLARS // 100
    for plan, model, spent, priced, when in (
        (near, "openai/a", 5 * cents, True, NOON),
        (near, "openai/b", 3 * cents, True, NOON - timedelta(days=1)),
        (near, "openai/b", 0, False, NOON),
        (far, "openai/a", 90 * cents, True, NOON),
    ):
        reserved = budgets.reserve(
            plan,
            plan,
            Spend(spent, 10, 1),
            key=f"{model}{when}",
            actor="a/b",
            node="n",
            model=model,
            now=when,
        )
        budgets.settle(reserved, Spend(spent, 10, 1), Usage(7, 3, 4), now=when, priced=priced)
    lost = budgets.reserve(
        near, near, Spend(cents, 10, 1), key="lost", actor="a/c", node="n", model="openai/a", now=NOON
    )
    assert budgets.forfeit(near, now=NOON) == lost.worst


def _plan(server: PlanServer, resource: str) -> str:
    body = {"resource": resource, "action": "builtin/command", "arguments": {"argv": ["true"]}}
    made: str = server.make(server.bench.admin, **body)["id"]
    return made


@pytest.mark.usefixtures("recorded")
def test_costs_are_summed_by_day_model_and_actor(server: PlanServer, client: Client) -> None:
    days = client.costs.list(**DAYS)
    assert [(one.name, one.usd, one.calls) for one in days] == [
        ("2020-05-03", pytest.approx(0.03), 1),
        ("2020-05-04", pytest.approx(0.06), 3),
    ]
    assert (days[1].input_tokens, days[1].output_tokens, days[1].unpriced, days[1].interrupted) == (
        14,
        6,
        1,
        1,
    )
    assert days[1].cached_tokens == 8
    models = client.costs.list("model", **DAYS)
    assert [(one.name, one.calls) for one in models] == [("openai/a", 2), ("openai/b", 2)]
    assert [one.name for one in client.costs.list("actor", **DAYS)] == ["a/b", "a/c"]
    said = server.get("/costs", by="model", since="2020-05-03", until="2020-05-05")["items"]
    assert said[0]["name"] == "openai/a"
    assert as_json(models[1]) == said[1]


@pytest.mark.usefixtures("recorded")
def test_costs_follow_the_roles_of_the_user(client_of: ClientOf) -> None:
    every = [one.name for one in client_of("admin").costs.list("project", **DAYS)]
    assert every == ["elsewhere", "team"]
    assert [one.name for one in client_of("viewer").costs.list("project", **DAYS)] == ["team"]
    assert client_of("viewer").costs.list(project="elsewhere", **DAYS) == ()


@pytest.mark.usefixtures("recorded")
def test_days_are_limits_and_must_be_in_order(client: Client) -> None:
    only = date(2020, 5, 3)
    assert [one.name for one in client.costs.list(since=only, until=only)] == ["2020-05-03"]
    assert client.costs.list(until=date(1, 1, 1)) == ()
    assert client.costs.list(since=date.max, until=date.max) == ()
    with pytest.raises(RequestRefused) as refused:
        client.costs.list(since=date(2020, 5, 4), until=only)
    assert refused.value.where == "until"
