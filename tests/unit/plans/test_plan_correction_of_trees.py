"""Corrections of plans with sub-plans: merged results stay, the rest is redone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleveragents.jobs.model.job import AttemptOutcome, JobState
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import TreeLimits
from cleveragents.plans.run import PlanRun
from tests.actor_plan_bench import ActorPlanBench, answer, call, executes, says, strategizes

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
CAST = ("builtin/strategist", "builtin/executor", None)
DONE = says("done")
A_PART = "one part of a larger goal"


class Bench(ActorPlanBench):
    """Sub-plans use the same actors as the root."""

    def handler(self) -> PlanRun:
        run = super().handler()
        return replace(run, make_strategy=lambda plan: self.strategies[plan.root])

    def work_once(self, plan: Plan) -> Plan:
        """Run one job of the tree."""
        job = self.owned_job(plan)
        self.handler()(job)
        outcome = AttemptOutcome(JobState.SUCCEEDED)
        self.container.jobs.finish(job.id, job.fence, outcome, now=self.container.clock.now())
        return self.now(plan)

    def changed(self, plan: Plan) -> list[str]:
        self.ensure_consistent(plan)
        return self.diff(plan, "--name-only").split()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with made.container:
        yield made


def part(title: str, *decisions: int, **facts: Any) -> dict[str, Any]:
    step = {"title": title, "instructions": f"see to {title}", "sub_plan": True, "decisions": [*decisions]}
    return {**step, **facts}


def thought(choices: list[str], *steps: dict[str, Any]) -> dict[str, Any]:
    decisions = [{"question": f"{choice}?", "choice": choice, "rationale": "r"} for choice in choices]
    return says({"summary": "s", "decisions": decisions, "steps": [*steps]})


def writes(goal: str) -> dict[str, Any]:
    changed = answer(call("write", path=f"{goal}.txt", content=f"{goal}\n"))
    return executes(changed, DONE, when={"first_user": f"see to {goal}\\n"})


FIRST = thought(["whole", "left", "right"], part("left", 2), part("right", 3), part("own", 1, sub_plan=False))
RULES = (
    strategizes(thought(["so"], {"title": "it", "instructions": "at once"}), when={"first_user": A_PART}),
    strategizes(thought(["other"], part("other", 4)), when={"first_user": "This was planned before"}),
    strategizes(FIRST),
    *(writes(goal) for goal in ("left", "right", "other", "own")),
)


def keys(bench: Bench, plan: Plan) -> list[tuple[str | None, str]]:
    return [(child.key, child.state.value) for child in bench.parts.plans.children(plan.id)]


def test_a_corrected_sub_plan_is_redone_and_the_others_stay(bench: Bench) -> None:
    plan = bench.reached(*RULES, cast=CAST)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.changed(plan) == ["left.txt", "own.txt", "right.txt"]
    undoing = bench.parts.correction.preview(plan, 3)
    assert (undoing.tasks, undoing.paths) == (("right",), ("right.txt",))
    _, plan = bench.parts.correction.correct(plan, 3, "other, please")
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.changed(plan) == ["left.txt", "other.txt", "own.txt"]
    assert keys(bench, plan) == [("1", "complete"), ("2", "cancelled"), ("2~1", "complete")]
    assert [task.name for task in Strategy.from_json(plan.strategy).tasks] == ["left", "other", "own"]
    # A sub-plan receives the guidance of its root.
    other = bench.parts.plans.children(plan.id)[-1]
    assert Strategy.from_json(other.strategy).guidance == ("other, please",)


def test_only_the_corrected_sub_plan_is_cancelled(bench: Bench) -> None:
    plan = bench.work_once(bench.goal(bench.script(*RULES), cast=CAST))
    assert bench.waited(plan)["for"] == "sub-plans"
    left, right = (child.id for child in bench.parts.plans.children(plan.id))
    undoing = bench.parts.correction.preview(plan, 2)
    assert (undoing.sub_plans, undoing.sub_plans_kept) == ((left,), (right,))
    _, plan = bench.parts.correction.correct(plan, 2, "other, please")
    assert keys(bench, plan) == [("1", "cancelled"), ("2", "queued")]
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert keys(bench, plan) == [("1", "cancelled"), ("2", "complete"), ("1~1", "complete")]
    assert bench.changed(plan) == ["other.txt", "own.txt", "right.txt"]


def test_a_reverted_merge_is_made_again(bench: Bench) -> None:
    plan = bench.reached(*RULES, cast=CAST)
    assert plan.phase_state == COMPLETE, plan.error
    left, right = (child.id for child in bench.parts.plans.children(plan.id))
    undoing = bench.parts.correction.preview(plan, 2)
    assert (undoing.sub_plans, undoing.sub_plans_kept) == ((left,), (right,))
    thoughts = len(bench.thoughts(bench.now(bench.parts.plans.get(right))))
    _, plan = bench.parts.correction.correct(plan, 2, "other, please")
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert keys(bench, plan) == [("1", "cancelled"), ("2", "complete"), ("1~1", "complete")]
    assert {"other.txt", "right.txt"} <= {*bench.changed(plan)}
    assert len(bench.thoughts(bench.parts.plans.get(right))) == thoughts


def test_a_sub_plan_built_on_reverted_work_is_cancelled(bench: Bench) -> None:
    """It carries out another decision, but has the other's file in its own sandbox."""
    first = thought(["whole", "left", "right"], part("left", 2), part("right", 3, needs=[1]))
    plan = bench.goal(bench.script(*RULES[:2], strategizes(first), *RULES[3:]), cast=CAST)
    while not (children := bench.parts.plans.children(plan.id))[1:]:
        plan = bench.work_once(plan)
    left, right = (child.id for child in children)
    undoing = bench.parts.correction.preview(plan, 2)
    assert (undoing.sub_plans, undoing.sub_plans_kept) == ((left, right), ())
    _, plan = bench.parts.correction.correct(plan, 2, "other, please")
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert keys(bench, plan) == [("1", "cancelled"), ("2", "cancelled"), ("1~1", "complete")]
    assert bench.changed(plan) == ["other.txt"]


def test_a_failed_sub_plan_is_planned_again(bench: Bench) -> None:
    plan = bench.reached(*RULES[:3], writes("left"), writes("own"), cast=CAST)
    assert plan.state is PlanState.ERRORED
    _, plan = bench.parts.correction.correct(plan, 2, "other, please", model=bench.script(*RULES))
    assert keys(bench, plan) == [("1", "cancelled"), ("2", "cancelled")]
    assert bench.work(plan).phase_state == COMPLETE


def test_added_guidance_keeps_sub_plans_running(bench: Bench) -> None:
    more = executes(
        answer(call("write", path="more.txt", content="")), DONE, when={"first_user": "more of it"}
    )
    plan = bench.work_once(bench.goal(bench.script(*RULES, more), cast=CAST))
    _, plan = bench.parts.correction.append(plan, "more of it")
    assert {state for _, state in keys(bench, plan)} == {"queued"}
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.changed(plan) == ["left.txt", "more.txt", "own.txt", "right.txt"]


def test_a_plan_at_the_depth_limit_has_no_sub_plans(bench: Bench) -> None:
    bench.adapt = lambda run: replace(
        run, strategize_phase=lambda by: replace(run.strategize_phase(by), limits=TreeLimits(depth=0))
    )
    plan = bench.reached(*RULES, cast=CAST)
    assert plan.phase_state == COMPLETE, plan.error
    assert keys(bench, plan) == []
    assert bench.changed(plan) == ["left.txt", "own.txt", "right.txt"]
