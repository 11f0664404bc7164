"""Prompt caching: a goal of ten model calls reuses the start of its requests, and pays the cached price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from cleveragents.api.plans.budget import spending_of
from cleveragents.models.catalogue import PriceList
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits, Spend, exceeded
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import ModelCall
from cleveragents.models.script_document import read_script
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.testing.scripted_server import ScriptedServer
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)

# Found without importing: imports take seconds, and every collection would pay for them.
if find_spec("langchain_openai") is None:
    pytest.skip("langchain_openai is not installed", allow_module_level=True)

MODEL = "openai/gpt-4.1-mini"
LEAST_HIT_RATE = 0.70
"""Of all input tokens of the goal. docs/reference/performance.md states the measured rate."""
RULES = (
    strategizes(
        answer(call("list", path=".")),
        answer(call("read", path="a.txt")),
        steps({"title": "the only step", "instructions": "write it"}),
    ),
    executes(
        answer(call("read", path="a.txt")),
        answer(call("write", path="b.txt", content="new\n")),
        answer(call("edit", path="b.txt", old="new", new="newer")),
        answer(call("command", script="cat b.txt")),
        says("done"),
    ),
    reviews(answer(call("read", path="b.txt")), accept()),
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    import json

    script = read_script(json.dumps({"rules": RULES}), "s")
    with ScriptedServer(script, prompt_cache=True) as started:
        yield started


@pytest.fixture
def bench(tmp_path: Path, server: ScriptedServer) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path, models={"base_url": server.base_url}) as made:
        yield made


def reached(bench: ActorPlanBench, limits: BudgetLimits | None = None) -> tuple[Plan, Sequence[ModelCall]]:
    plan = bench.work(bench.goal(MODEL, limits=limits))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
    return plan, bench.thoughts(plan)


def used(calls: Sequence[ModelCall]) -> Usage:
    return Usage.sum(call.usage for call in calls if call.usage is not None)


def test_a_goal_of_ten_calls_reads_most_of_its_input_from_the_cache(
    bench: ActorPlanBench, server: ScriptedServer
) -> None:
    _, calls = reached(bench)
    assert len(calls) == len(server.bodies()) == 10
    total = used(calls)
    assert total.cached_tokens / total.input_tokens >= LEAST_HIT_RATE
    for later, call_ in enumerate(calls):
        usage = call_.usage
        assert usage is not None
        # Each actor pays for its first request, and from then on only for what is new.
        assert bool(usage.cached_tokens) is (later not in (0, 3, 8))


def test_a_conversation_is_sent_again_byte_for_byte(bench: ActorPlanBench, server: ScriptedServer) -> None:
    reached(bench)
    bodies = server.bodies()
    for first, last in ((0, 2), (3, 7), (8, 9)):
        for before, after in zip(bodies[first:last], bodies[first + 1 : last + 1], strict=True):
            assert after["tools"] == before["tools"]
            assert after["messages"][: len(before["messages"])] == before["messages"]
            assert len(after["messages"]) > len(before["messages"])


def test_cached_tokens_are_paid_at_their_price_and_shown(bench: ActorPlanBench) -> None:
    plan, calls = reached(bench)
    price = PriceList().facts(MODEL).price
    assert price is not None
    total = used(calls)
    fresh = total.input_tokens - total.cached_tokens
    cost = fresh * 400_000 + total.cached_tokens * 100_000 + total.output_tokens * 1_600_000
    assert bench.spent(plan).spent.picodollars == cost < price.worst(total)
    shown = spending_of(bench.parts, plan)
    assert (shown["input_tokens"], shown["cached_tokens"]) == (total.input_tokens, total.cached_tokens)
    assert shown["usd"] == cost / PICODOLLARS


def test_a_money_limit_holds_although_the_cache_is_not_known_before_a_call(bench: ActorPlanBench) -> None:
    limits = BudgetLimits(picodollars=PICODOLLARS // 20)
    plan, calls = reached(bench, limits)
    spent = bench.spent(plan)
    assert exceeded(limits, spent.spent + spent.reserved) == ()
    assert spent.reserved == Spend()
    assert sum(call.picodollars or 0 for call in calls) == spent.spent.picodollars
