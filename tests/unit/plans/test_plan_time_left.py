"""The remaining time of a plan: the limit of its tree, less the time its tree has used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from cleveragents.core.tool import CallState
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench, executes, says

ALONE = (None, "builtin/executor", None)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        yield made


def below(root: Plan) -> Plan:
    """Return a sub-plan as its worker sees it."""
    return replace(root, id="SUBPLAN", parent_id=root.id, root_id=root.id, depth=1)


def left(bench: ActorPlanBench, plan: Plan, strategy: Strategy) -> float:
    return bench.parts.actor_parts.time_left(plan, strategy)


def test_a_sub_plan_shares_the_time_of_its_root(bench: ActorPlanBench) -> None:
    root = bench.goal(bench.script(), cast=ALONE, limits=BudgetLimits(seconds=100.0))
    own = replace(bench.strategies[root.id], limit_seconds=5.0)
    assert left(bench, below(root), own) == 100.0
    bench.raise_limits(root, BudgetLimits(seconds=300.0))
    assert left(bench, below(root), own) == 300.0
    now = bench.container.clock.now()
    call = bench.parts.calls.add(root.id, "command", {}, step="1", state=CallState.STARTED, now=now)
    bench.parts.calls.move(call, CallState.ENDED, now=now + timedelta(seconds=40))
    assert left(bench, below(root), own) == 260.0


def test_without_a_budget_the_strategy_limits_the_time(bench: ActorPlanBench) -> None:
    model = bench.script(executes(says("done")))
    root = bench.work(bench.goal(model, cast=ALONE, limit_seconds=500.0))
    own = replace(bench.strategies[root.id], limit_seconds=5.0)
    assert 400.0 < left(bench, below(root), own) <= 500.0
    assert 400.0 < left(bench, below(root), replace(own, casting=None)) <= 500.0
    begun = bench.goal(model, cast=ALONE)
    assert left(bench, below(begun), own) == 5.0, "the root has no strategy yet"
