"""Automatic applies: only if allowed, otherwise left for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.actions.model import Check
from cleveragents.core.errors import Cancelled
from cleveragents.core.json_value import freeze
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.apply_policy import apply_if_allowed
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, StrategyStep
from cleveragents.plans.ports.plans import PlanDraft
from tests.plan_bench import PlanBench, check, edit, plan_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PlanBench]:
    with plan_bench(tmp_path, isolation="off") as bench:
        yield bench


def done(bench: PlanBench, *steps: StrategyStep, checks: tuple[Check, ...] = (), **request: Any) -> Plan:
    """Return a finished plan; its policy asks before an apply unless another one is named."""
    profile = request.pop("profile", "supervised")
    frozen = freeze(request)
    assert isinstance(frozen, Mapping)
    plan = bench.parts.lifecycle.create(PlanDraft("a goal", "tests/steps", str(bench.repository), frozen))
    bench.strategies[plan.id] = Strategy(steps, checks, profile=profile)
    return bench.work(plan)


CHANGE = edit("b.txt", "alpha", "beta")


@pytest.mark.parametrize(
    ("request_", "state"),
    [
        ({}, "complete"),
        ({"apply": "auto"}, "applied"),
        ({"profile": "full-auto"}, "applied"),
        ({"profile": "full-auto", "apply": "review"}, "complete"),
    ],
    ids=["asks", "user says so", "policy says so", "user wants to look at it"],
)
def test_applies_a_result_if_user_or_policy_allow_it(
    bench: PlanBench, request_: dict[str, Any], state: str
) -> None:
    plan = done(bench, CHANGE, **request_)
    assert apply_if_allowed(bench.parts, plan).state.value == state
    assert bench.text("b.txt") == ("beta\n" if state == "applied" else "alpha\n")


def test_a_failed_check_prevents_an_automatic_apply(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, checks=(check("false"),), apply="auto")
    told: list[str] = []
    assert apply_if_allowed(bench.parts, plan, told.append).state.value == "complete"
    assert any("did not pass" in line for line in told)
    assert bench.text("b.txt") == "alpha\n"


def test_the_plan_stores_why_it_is_blocked(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, apply="auto")
    (bench.repository / "b.txt").write_text("gamma password=hunter2\n")
    after = apply_if_allowed(bench.parts, plan)
    assert after.state.value == "constrained"
    assert "b.txt" in (after.error or "")
    assert "gamma" in str(after.waiting_for)
    assert "hunter2" not in str(after)
    assert bench.text("b.txt") == "gamma password=hunter2\n"


def test_applies_no_unfinished_or_empty_result(bench: PlanBench) -> None:
    failed = done(bench, edit("b.txt", "no such text", "x"), apply="auto")
    assert failed.state.value == "errored"
    assert apply_if_allowed(bench.parts, failed) == failed
    idle = done(bench, apply="auto")
    assert apply_if_allowed(bench.parts, idle) == idle
    assert idle.state.value == "complete"


def test_a_stop_signal_prevents_the_apply(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, apply="auto")
    stop = CancellationToken()
    stop.cancel("no longer wanted")
    with pytest.raises(Cancelled):
        apply_if_allowed(bench.parts, plan, stop=stop)
    assert bench.text("b.txt") == "alpha\n"


def test_reports_a_result_without_a_sandbox(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, apply="auto")
    bench.parts.sandboxes.remove(plan.id)
    told: list[str] = []
    assert apply_if_allowed(bench.parts, plan, told.append).state.value == "complete"
    assert len(told) == 1
