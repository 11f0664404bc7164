"""The process that corrects or revises a plan is killed at each step, with kill -9.

Afterwards the plan is never complete with superseded decisions. It can be corrected again or resumed, and
reaches the same result.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench
from tests.crash.programs.corrector import GUIDANCE, RULES, at_work, known
from tests.crash.runner import Runner, running

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
POINTS = ["correct.paused", "correct.rolled_back", "correct.kept"]


@pytest.fixture(scope="module")
def corrector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    template = tmp_path_factory.mktemp("corrector") / "template"
    with actor_plan_bench(template) as bench:
        bench.script(*RULES)
        assert bench.parts.plans.list() == []
    with running("corrector", template) as made:
        yield made


def ensure_sound(bench: ActorPlanBench, plan: Plan, *, superseded: int) -> None:
    """Assert that the result belongs to the new decisions only."""
    assert plan.phase_state == COMPLETE, plan.error
    bench.ensure_consistent(plan)
    assert "settings.json" not in bench.diff(plan)
    assert "settings.yaml" in bench.diff(plan)
    states = [one.state.value for one in bench.parts.actor_parts.decisions.of_plan(plan.id)]
    assert states == ["active"] * (2 - superseded) + ["superseded"] * superseded + ["active"]
    assert len(bench.parts.actor_parts.corrections.of_plan(plan.id)) == 1
    assert Strategy.from_json(plan.strategy).round == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_correction_is_repeated_or_the_plan_resumed(
    corrector: Runner, tmp_path: Path, point: str
) -> None:
    home = corrector.home(tmp_path / "home")
    with actor_plan_bench(home) as bench:
        at_work(bench, home, reviewed=False)
    assert corrector.run(home, do="correct", point=point) == -signal.SIGKILL
    with actor_plan_bench(home) as bench:
        known(bench, home, reviewed=False)
        (plan,) = bench.parts.plans.list()
        plan = bench.parts.lifecycle.reconciled(plan)
        bench.ensure_consistent(plan)
        kept = bench.parts.actor_parts.corrections.of_plan(plan.id)
        assert len(kept) == (point == "correct.kept")
        if kept:
            assert plan.phase_state != COMPLETE
            plan = bench.parts.lifecycle.resume(plan)
        else:
            _, plan = bench.parts.correction.correct(plan, 2, GUIDANCE)
        ensure_sound(bench, bench.work(plan), superseded=1)


@pytest.mark.parametrize("point", ["correct.paused", "correct.kept"])
def test_a_killed_revision_loses_no_comment_and_sends_none_twice(
    corrector: Runner, tmp_path: Path, point: str
) -> None:
    home = corrector.home(tmp_path / "home")
    with actor_plan_bench(home) as bench:
        at_work(bench, home, reviewed=False)
        (plan,) = bench.parts.plans.list()
        bench.parts.comments.add(plan, "an empty object", author="ada")
    assert corrector.run(home, do="revise", point=point) == -signal.SIGKILL
    with actor_plan_bench(home) as bench:
        known(bench, home, reviewed=False)
        (plan,) = bench.parts.plans.list()
        plan = bench.parts.lifecycle.reconciled(plan)
        (comment,) = bench.parts.comments.store.of_plan(plan.id)
        assert (comment.is_open, comment.batch) == (True, 1 if point == "correct.kept" else None)
        if comment.batch is None:
            _, plan = bench.parts.comments.revise(plan)
        else:
            plan = bench.parts.lifecycle.resume(plan)
        plan = bench.work(plan)
        assert plan.phase_state == COMPLETE, plan.error
        (comment,) = bench.parts.comments.store.of_plan(plan.id)
        assert (comment.state.value, comment.batch) == ("resolved", 1)
        texts = [task.instructions for task in Strategy.from_json(plan.strategy).tasks]
        assert sum("Comment 1," in text for text in texts) == 1


def test_a_plan_killed_during_its_own_correction_plans_again(corrector: Runner, tmp_path: Path) -> None:
    home = corrector.home(tmp_path / "home")
    assert corrector.run(home, do="think again", point="correct.rolled_back") == -signal.SIGKILL
    with actor_plan_bench(home) as bench:
        known(bench, home, reviewed=True)
        (plan,) = bench.parts.plans.list()
        assert plan.state is PlanState.PROCESSING
        bench.ensure_consistent(plan)
        plan = bench.work(bench.parts.lifecycle.resume(plan))
        ensure_sound(bench, plan, superseded=2)
        (kept,) = bench.parts.actor_parts.corrections.of_plan(plan.id)
        assert kept.made.by_itself
