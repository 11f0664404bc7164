"""Results that nobody is asked about: applied by themselves where that is allowed, else left for a person."""

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
    """A plan that did that under a policy which lets nothing be applied without a question, unless another is
    named."""
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
def test_a_result_is_applied_if_its_user_or_its_policy_says_so(
    bench: PlanBench, request_: dict[str, Any], state: str
) -> None:
    plan = done(bench, CHANGE, **request_)
    assert apply_if_allowed(bench.parts, plan).state.value == state
    assert bench.text("b.txt") == ("beta\n" if state == "applied" else "alpha\n")


def test_a_check_that_did_not_pass_leaves_it_for_a_person_and_is_told(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, checks=(check("false"),), apply="auto")
    told: list[str] = []
    assert apply_if_allowed(bench.parts, plan, told.append).state.value == "complete"
    assert any("did not pass" in line for line in told)
    assert bench.text("b.txt") == "alpha\n"


def test_what_stands_in_the_way_is_kept_with_the_plan(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, apply="auto")
    (bench.repository / "b.txt").write_text("gamma password=hunter2\n")
    after = apply_if_allowed(bench.parts, plan)
    assert after.state.value == "constrained"
    assert "b.txt" in (after.error or "")
    assert "gamma" in str(after.waiting_for)
    assert "hunter2" not in str(after)
    assert bench.text("b.txt") == "gamma password=hunter2\n"


def test_one_that_is_not_done_or_changed_nothing_stays_as_it_is(bench: PlanBench) -> None:
    failed = done(bench, edit("b.txt", "no such text", "x"), apply="auto")
    assert failed.state.value == "errored"
    assert apply_if_allowed(bench.parts, failed) == failed
    idle = done(bench, apply="auto")
    assert apply_if_allowed(bench.parts, idle) == idle
    assert idle.state.value == "complete"


def test_who_is_told_to_stop_hears_of_it_and_nothing_is_applied(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, apply="auto")
    stop = CancellationToken()
    stop.cancel("no longer wanted")
    with pytest.raises(Cancelled):
        apply_if_allowed(bench.parts, plan, stop=stop)
    assert bench.text("b.txt") == "alpha\n"


def test_a_result_whose_sandbox_is_gone_is_left_and_that_is_told(bench: PlanBench) -> None:
    plan = done(bench, CHANGE, apply="auto")
    bench.parts.sandboxes.remove(plan.id)
    told: list[str] = []
    assert apply_if_allowed(bench.parts, plan, told.append).state.value == "complete"
    assert len(told) == 1
