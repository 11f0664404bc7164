"""Strategists that delegate to sub-plans, and executors that resolve conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.run import PlanRun
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
DONE = says("done")
A_PART = "one part of a larger goal"


class Bench(ActorPlanBench):
    """Sub-plans use the same actors as the root."""

    def handler(self) -> PlanRun:
        run = super().handler()
        return replace(run, make_strategy=lambda plan: self.strategies[plan.root])

    def child(self, plan: Plan, number: int) -> Plan:
        return self.parts.plans.children(plan.id)[number - 1]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with made.container:
        yield made


def part(title: str, **facts: Any) -> dict[str, Any]:
    return {"title": title, "instructions": f"see to {title}", "sub_plan": True, **facts}


def thinks(*wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Script the strategist: the root has these steps, a sub-plan has one."""
    return [
        strategizes(steps({"title": "do it", "instructions": "at once"}), when={"first_user": A_PART}),
        strategizes(steps(*wanted)),
    ]


def writes(goal: str, path: str, content: str) -> dict[str, Any]:
    changed = answer(call("write", path=path, content=content))
    return executes(changed, DONE, when={"first_user": f"(?s){goal}.*{A_PART}"})


def test_a_strategist_delegates_large_parts_to_sub_plans(bench: Bench) -> None:
    plan = bench.reached(
        *thinks(part("left"), part("right"), {"title": "last", "instructions": "join", "needs": [1, 2]}),
        writes("see to left", "left.txt", "left\n"),
        writes("see to right", "right.txt", "right\n"),
        executes(answer(call("command", script="cat left.txt right.txt > both.txt")), DONE),
        reviews(accept()),
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert (bench.sandbox(plan).root / "both.txt").read_text() == "left\nright\n"
    assert bench.tools_of(plan) == ["spawn", "merge", "merge", "command", "task"]
    left = bench.child(plan, 1)
    assert left.goal.startswith("left\n\nsee to left\n\nThis is one part of a larger goal")
    assert left.action == "tests/goal"
    assert "step 3 of 3: last" in bench.said
    bench.ensure_consistent(plan)


def test_the_parent_does_its_own_steps_beside_sub_plans(bench: Bench) -> None:
    plan = bench.reached(
        *thinks(part("left"), {"title": "own", "instructions": "itself"}),
        writes("see to left", "left.txt", "left\n"),
        executes(answer(call("write", path="own.txt", content="own\n")), DONE),
        reviews(accept()),
    )
    assert plan.phase_state == COMPLETE, plan.error
    # Done before the sub-plan, and not repeated when the parent continued.
    assert bench.tools_of(plan) == ["spawn", "write", "task", "merge"]
    assert bench.said.count("step 2 of 2: own") == 1


CLASH = (
    *thinks(part("left"), part("right")),
    writes("see to left", "b.txt", "left\n"),
    writes("see to right", "b.txt", "right\n"),
    reviews(accept()),
)


def test_the_executor_resolves_conflicts(bench: Bench) -> None:
    resolves = executes(
        answer(call("write", path="b.txt", content="left and right\n")),
        answer(call("resolve", path="b.txt", take="edited")),
        DONE,
        when={"first_user": "Conflicts came up when this was merged"},
    )
    plan = bench.reached(resolves, *CLASH)
    assert plan.phase_state == COMPLETE, (plan.error, plan.waiting_for)
    assert (bench.sandbox(plan).root / "b.txt").read_text() == "left and right\n"
    assert bench.tools_of(plan) == ["spawn", "merge", "merge", "write", "resolve"]
    assert bench.parts.sub_plan_merge.open_conflicts(plan.id) == ()
    bench.ensure_consistent(plan)


def test_conflicts_left_open_by_the_executor_go_to_a_person(bench: Bench) -> None:
    leaves = executes(says("I cannot say"), when={"first_user": "Conflicts came up when this was merged"})
    plan = bench.reached(leaves, *CLASH)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    assert bench.waited(plan)["for"] == "conflict"
    asked = len(bench.thoughts(plan))
    assert bench.resume(plan).state is PlanState.WAITING
    assert len(bench.thoughts(plan)) == asked  # an executor that could not decide is not asked again


def test_a_failed_sub_plan_fails_the_parent_before_the_review(bench: Bench) -> None:
    model = bench.script(*thinks(part("left")), executes(answer(fault={"status": 400})), reviews(accept()))
    plan = bench.work(bench.goal(model))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.ERRORED)
    assert "sub-plan 1 of 1 (left) failed" in str(plan.error)
    assert "reviewer reads the changes" not in bench.said
