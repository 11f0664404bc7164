"""Plans of actors: what each phase leaves, who may do what, what is waited for, and how it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cleveragents.application.services.actor_phases import REVIEW
from cleveragents.domain.actor import StateKey
from cleveragents.domain.plan import Phase, PlanState
from cleveragents.domain.strategy import Strategy
from cleveragents.interfaces.cli.plan_account import objection_to
from tests.actor_bench import actor, thinker
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    revise,
    rule,
    says,
    steps,
    strategizes,
)
from tests.plan_bench import check

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
ONE = steps({"title": "the only step", "instructions": "write it"})
DONE = says("done")
ALONE = (None, "builtin/executor", None)
STEPS_STATE = (StateKey("steps", "list", default=[]), StateKey("decisions", "list", default=[]))
STEPS_SCHEMA = {"type": "object", "required": ["steps", "decisions"]}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        yield made


def test_a_goal_is_thought_through_worked_at_and_reviewed(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(answer(call("read", path="a.txt")), ONE),
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
        reviews(accept()),
    )
    assert plan.standing == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["read", "write"]
    assert [d.made.choice for d in bench.parts.thinking.decisions.of_plan(plan.id)] == ["so"]
    bench.ensure_consistent(plan)
    assert bench.spent(plan).reserved.tokens == 0


# ── Strategize ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "forbidden",
    [
        call("write", path="a.txt", content="spoilt\n"),
        call("command", script="echo spoilt > a.txt"),
        call("delete", path="a.txt"),
    ],
    ids=lambda made: made["tool"],
)
def test_a_strategist_that_wants_to_change_something_is_refused(
    bench: ActorPlanBench, forbidden: dict[str, Any]
) -> None:
    """Also one that has been given the tools: the policy of the phase stands before the actor's list."""
    armed = thinker(tools=("*",), schema=STEPS_SCHEMA)
    bench.actors["tests/armed"] = actor(armed, name="tests/armed", state=STEPS_STATE)
    sandboxes = bench.parts.sandboxes
    model = bench.script(
        rule(answer(forbidden), steps({"title": "t", "instructions": "i"}), when={"first_user": "Do a goal"}),
        executes(says("nothing to do")),
    )
    plan = bench.work(bench.goal(model, cast=("tests/armed", "builtin/executor", None)))
    assert plan.standing == COMPLETE, plan.error
    assert sandboxes.open(plan.id).scan() == {}
    assert bench.calls(plan) == []
    assert Strategy.from_json(plan.strategy).tasks[0].name == "t"


def test_decisions_form_a_tree_and_tasks_are_done_in_the_order_of_their_needs(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(
            steps(
                {"title": "last", "instructions": "c", "needs": [3]},
                {"title": "first", "instructions": "a"},
                {"title": "second", "instructions": "b", "needs": [2, 99, 3]},
                decisions=[
                    {"question": "Then?", "choice": "x", "rationale": "r", "confidence": 0.5},
                    {"question": "And?", "choice": "y", "rationale": "r", "parent": 2},
                    {"question": "Never?", "choice": "z", "rationale": "r", "parent": 9},
                ],
            )
        ),
        *[
            executes(
                answer(call("write", path=f"{name}.txt", content=name)),
                DONE,
                when={"user": f"{name} +<- this one"},
            )
            for name in ("last", "first", "second")
        ],
        reviews(accept()),
    )
    assert plan.standing == COMPLETE, plan.error
    written = [made.arguments["path"] for made in bench.calls(plan)]
    assert written == ["first.txt", "second.txt", "last.txt"]
    decisions = bench.parts.thinking.decisions.of_plan(plan.id)
    assert [(d.number, d.made.parent) for d in decisions] == [(1, None), (2, 1), (3, 2), (4, 1)]
    assert decisions[1].made.confidence == 0.5


# ── Execute ───────────────────────────────────────────────────────────────────────────────────────


def test_a_check_that_fails_is_told_to_the_executor_which_mends_it(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(ONE),
        executes(
            answer(call("write", path="new.txt", content="right\n")),
            DONE,
            when={"first_user": "The check `grep -q right new.txt` does not pass"},
        ),
        executes(answer(call("write", path="new.txt", content="wrong\n")), DONE),
        reviews(accept()),
        checks=[check("grep -q right new.txt")],
    )
    assert plan.standing == COMPLETE, plan.error
    assert (bench.sandbox(plan).root / "new.txt").read_text() == "right\n"
    verdicts = [run.verdict.value for run in bench.parts.check_runs.of_plan(plan.id) if run.required]
    assert verdicts == ["failed", "passed"]


def test_a_reviewer_sends_back_three_times_and_then_the_objection_stays(bench: ActorPlanBench) -> None:
    model = bench.script(
        strategizes(ONE),
        executes(
            answer(call("command", script="echo more >> new.txt")), DONE, when={"first_user": "sends it back"}
        ),
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
        reviews(revise("say it better")),
    )
    plan = bench.work(bench.goal(model))
    assert plan.standing == COMPLETE, plan.error
    assert (bench.sandbox(plan).root / "new.txt").read_text() == "new\nmore\nmore\nmore\n"
    assert objection_to(bench.parts, plan) == "not good - say it better"
    reviewed = [run for run in bench.parts.check_runs.of_plan(plan.id) if run.name == REVIEW]
    assert [run.verdict.value for run in reviewed] == ["failed"] * 4


def test_what_the_executor_does_not_change_is_not_reviewed_twice(bench: ActorPlanBench) -> None:
    """The same changes get the same verdict, and nobody pays for it again."""
    plan = bench.reached(
        strategizes(ONE),
        executes(says("I would not change it"), when={"first_user": "sends it back"}),
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
        reviews(revise("say it better")),
    )
    assert plan.standing == COMPLETE, plan.error
    actors = [thought.actor for thought in bench.thoughts(plan)]
    assert actors.count("builtin/reviewer") == 1
    assert objection_to(bench.parts, plan) is not None


def test_changes_too_long_to_read_are_reviewed_in_part(bench: ActorPlanBench) -> None:
    script = "for n in $(seq 20000); do echo line $n; done > long.txt; echo end > z.txt"
    model = bench.script(
        strategizes(ONE),
        executes(answer(call("command", script=script)), DONE),
        reviews(accept(), when={"first_user": "(?s)long.txt.*left out here.*z.txt"}),
        context_tokens=16_000,
        output_tokens=1_000,
    )
    plan = bench.work(bench.goal(model))
    assert plan.standing == COMPLETE, plan.error
    assert objection_to(bench.parts, plan) is None


def test_an_invariant_is_enforced_whatever_way_it_is_broken(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(ONE),
        executes(
            answer(call("write", path="folder/c.txt", content="spoilt\n")),
            answer(call("command", script="echo spoilt > folder/c.txt; echo x > other.txt")),
            answer(call("write", path="new.txt", content="new\n")),
            DONE,
        ),
        reviews(accept()),
        invariants=("never touch folder/",),
    )
    assert plan.standing == COMPLETE, plan.error
    assert bench.states_of(plan) == ["failed", "failed", "ended"]
    assert sorted(bench.parts.history.differences(plan.id)) == ["new.txt"]
    bench.ensure_consistent(plan)


def test_a_denied_call_is_told_to_the_actor_which_goes_on(bench: ActorPlanBench) -> None:
    model = bench.script(
        executes(
            answer(call("command", script="echo x > x.txt")),
            answer(call("write", path="new.txt", content="new\n")),
            DONE,
        ),
    )
    plan = bench.work(bench.goal(model, cast=ALONE, profile="manual"))
    assert plan.state is PlanState.WAITING
    assert bench.waited(plan)["for"] == "leave"
    thoughts = len(bench.thoughts(plan))
    plan = bench.answer(plan, False)
    assert plan.state is PlanState.WAITING, plan.error
    assert "call 2 (write)" in str(bench.waited(plan)["what"])
    plan = bench.answer(plan, True)
    assert plan.standing == COMPLETE, plan.error
    assert bench.states_of(plan) == ["failed", "ended"]
    assert sorted(bench.parts.history.differences(plan.id)) == ["new.txt"]
    # Each was thought of once, however often the run was put down.
    assert (thoughts, len(bench.thoughts(plan))) == (1, 3)


def test_an_actor_that_says_it_only_reads_changes_nothing_in_any_phase(bench: ActorPlanBench) -> None:
    bench.actors["tests/reader"] = actor(thinker(tools=("*",)), name="tests/reader", read_only=True)
    model = bench.script(rule(answer(call("write", path="new.txt", content="new\n")), says("done")))
    plan = bench.work(bench.goal(model, cast=(None, "tests/reader", None)))
    assert plan.standing == COMPLETE, plan.error
    assert bench.sandbox(plan).scan() == {}


@pytest.mark.parametrize("cast", [("no/body", "builtin/executor", None), (None, "no/body", None)])
def test_an_actor_that_nobody_knows_is_said_so(
    bench: ActorPlanBench, cast: tuple[str | None, str, None]
) -> None:
    plan = bench.work(bench.goal(bench.script(executes(DONE)), cast=cast))
    assert plan.state is PlanState.ERRORED
    assert "there is no actor 'no/body'" in str(plan.error)


@pytest.mark.parametrize(("model", "said"), [("nobody/m", "nobody/m"), ("scripted//no/file", "/no/file")])
def test_a_model_that_nobody_knows_is_said_so(bench: ActorPlanBench, model: str, said: str) -> None:
    plan = bench.work(bench.goal(model))
    assert plan.state is PlanState.ERRORED
    assert said in str(plan.error)


def test_a_model_that_cannot_be_reached_ends_the_plan_which_goes_on_later(bench: ActorPlanBench) -> None:
    model = bench.script(
        {"when": {"tool": "write"}, "times": 1, "reply": answer(fault={"status": 503})},
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
    )
    plan = bench.work(bench.goal(model, cast=ALONE))
    assert plan.state is PlanState.ERRORED
    assert "does not answer" in str(plan.error)
    assert bench.spent(plan).reserved.tokens == 0
    plan = bench.resume(plan)
    assert plan.standing == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["write"]
    states = [thought.state for thought in bench.thoughts(plan)]
    assert states == ["settled"] * 3
