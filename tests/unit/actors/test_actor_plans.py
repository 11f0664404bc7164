"""Plans with actors: the result of each phase, permissions, waiting, and resuming."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cleveragents.actors.model.actor import Actor, ActorLimits, HumanNode, StateKey, SubgraphNode, ToolNode
from cleveragents.cli.render.remedies import remedy_lines
from cleveragents.core.actions.model import REVIEW, CheckVerdict
from cleveragents.core.errors import PlanError, remedies_from_json
from cleveragents.core.json_value import thaw
from cleveragents.core.tool import CallState
from cleveragents.models.model.budget import BudgetLimits, Spend, exceeded
from cleveragents.plans.apply_policy import reviewer_objection
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.strategy import Strategy
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
from tests.cli_bench import Agents, command_line, use_home
from tests.plan_bench import check, new_repository

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
ONE = steps({"title": "the only step", "instructions": "write it"})
DONE = says("done")
ALONE = (None, "builtin/executor", None)
# For runs to interrupt in the middle: on a busy machine, a short time limit passes before they start.
TRIED_SECONDS = (1.0, 6.0, 36.0)
STEPS_STATE = (StateKey("steps", "list", default=[]), StateKey("decisions", "list", default=[]))
STEPS_SCHEMA = {"type": "object", "required": ["steps", "decisions"]}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        yield made


def test_a_goal_is_planned_executed_and_reviewed(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(answer(call("read", path="a.txt")), ONE),
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
        reviews(accept()),
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["read", "write"]
    assert [d.made.choice for d in bench.parts.actor_parts.decisions.of_plan(plan.id)] == ["so"]
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
    """Even if it was given the tools: the policy of the phase takes precedence over the actor's list."""
    armed = thinker(tools=("*",), schema=STEPS_SCHEMA)
    bench.actors["tests/armed"] = actor(armed, name="tests/armed", state=STEPS_STATE)
    sandboxes = bench.parts.sandboxes
    model = bench.script(
        rule(answer(forbidden), steps({"title": "t", "instructions": "i"}), when={"first_user": "Do a goal"}),
        executes(says("nothing to do")),
    )
    plan = bench.work(bench.goal(model, cast=("tests/armed", "builtin/executor", None)))
    assert plan.phase_state == COMPLETE, plan.error
    assert sandboxes.open(plan.id).scan() == {}
    made = bench.calls(plan)
    assert [(one.state, one.changeset_id) for one in made] == [(CallState.FAILED, None)], "seen, and not made"
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
    assert plan.phase_state == COMPLETE, plan.error
    written = [made.arguments["path"] for made in bench.calls(plan)]
    assert written == ["first.txt", "second.txt", "last.txt"]
    decisions = bench.parts.actor_parts.decisions.of_plan(plan.id)
    assert [(d.number, d.made.parent) for d in decisions] == [(1, None), (2, 1), (3, 2), (4, 1)]
    assert decisions[1].made.confidence == 0.5


# ── Execute ───────────────────────────────────────────────────────────────────────────────────────


def test_the_executor_fixes_a_failed_check(bench: ActorPlanBench) -> None:
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
    assert plan.phase_state == COMPLETE, plan.error
    assert (bench.sandbox(plan).root / "new.txt").read_text() == "right\n"
    verdicts = [run.verdict.value for run in bench.parts.check_runs.of_plan(plan.id) if run.required]
    assert verdicts == ["failed", "passed"]


def test_a_missing_check_program_needs_a_person_and_costs_no_fix_attempt(
    bench: ActorPlanBench,
) -> None:
    plan = bench.work(
        bench.goal(
            bench.script(executes(answer(call("write", path="new.txt", content="new\n")), DONE)),
            cast=ALONE,
            checks=[check("no-such-program-at-all new.txt")],
        )
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["write"]
    assert [run.verdict for run in bench.parts.check_runs.of_plan(plan.id)] == [CheckVerdict.NOT_RUN]


def test_a_missing_check_script_of_the_plan_is_fixed(
    bench: ActorPlanBench,
) -> None:
    script = call("command", script="printf '#!/bin/sh\ntrue\n' > check.sh && chmod +x check.sh")
    plan = bench.work(
        bench.goal(
            bench.script(
                executes(answer(script), DONE, when={"first_user": "The check `./check.sh` does not pass"}),
                executes(says("done")),
            ),
            cast=ALONE,
            checks=[check("./check.sh")],
        )
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["command"]
    verdicts = [run.verdict for run in bench.parts.check_runs.of_plan(plan.id)]
    assert verdicts == [CheckVerdict.NOT_RUN, CheckVerdict.PASSED]


def test_a_reviewer_requests_changes_three_times_at_most(bench: ActorPlanBench) -> None:
    model = bench.script(
        strategizes(ONE),
        executes(
            answer(call("command", script="echo more >> new.txt")), DONE, when={"first_user": "sends it back"}
        ),
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
        reviews(revise("say it better")),
    )
    plan = bench.work(bench.goal(model))
    assert plan.phase_state == COMPLETE, plan.error
    assert (bench.sandbox(plan).root / "new.txt").read_text() == "new\nmore\nmore\nmore\n"
    assert reviewer_objection(bench.parts, plan) == "not good - say it better"
    reviewed = [run for run in bench.parts.check_runs.of_plan(plan.id) if run.name == REVIEW]
    assert [run.verdict.value for run in reviewed] == ["failed"] * 4
    assert len({run.tree for run in reviewed}) == 4, "each is of the files that were read"
    assert reviewed[-1].tree == bench.parts.result.tree(plan, bench.sandbox(plan))


def test_unchanged_work_is_not_reviewed_twice(bench: ActorPlanBench) -> None:
    """The same changes get the same verdict without another review."""
    plan = bench.reached(
        strategizes(ONE),
        executes(says("I would not change it"), when={"first_user": "sends it back"}),
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
        reviews(revise("say it better")),
    )
    assert plan.phase_state == COMPLETE, plan.error
    actors = [thought.actor for thought in bench.thoughts(plan)]
    assert actors.count("builtin/reviewer") == 1
    assert bench.said.count("reviewer reads the changes") == 1, "what is remembered is not read again"
    assert reviewer_objection(bench.parts, plan) is not None


def test_changes_too_long_to_read_are_reviewed_in_part(bench: ActorPlanBench) -> None:
    script = "for n in $(seq 20000); do echo line $n; done > long.txt; echo end > z.txt"
    model = bench.script(
        strategizes(ONE),
        executes(answer(call("command", script=script)), DONE),
        reviews(accept(), when={"first_user": "(?s)long.txt.*characters omitted.*z.txt"}),
        context_tokens=16_000,
        output_tokens=1_000,
    )
    plan = bench.work(bench.goal(model))
    assert plan.phase_state == COMPLETE, plan.error
    assert reviewer_objection(bench.parts, plan) is None


def test_an_invariant_is_enforced_against_every_kind_of_change(bench: ActorPlanBench) -> None:
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
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.states_of(plan) == ["failed", "failed", "ended"]
    assert sorted(bench.parts.history.differences(plan.id)) == ["new.txt"]
    bench.ensure_consistent(plan)


def test_an_actor_continues_after_a_denied_call(bench: ActorPlanBench) -> None:
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
    assert "call 2 needs approval for create: write" in str(bench.waited(plan)["what"])
    plan = bench.answer(plan, True)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.states_of(plan) == ["failed", "ended"]
    assert sorted(bench.parts.history.differences(plan.id)) == ["new.txt"]
    # Each was asked once, however often the run was interrupted.
    assert (thoughts, len(bench.thoughts(plan))) == (1, 3)


def test_an_actor_that_says_it_only_reads_changes_nothing_in_any_phase(bench: ActorPlanBench) -> None:
    bench.actors["tests/reader"] = actor(thinker(tools=("*",)), name="tests/reader", read_only=True)
    model = bench.script(rule(answer(call("write", path="new.txt", content="new\n")), says("done")))
    plan = bench.work(bench.goal(model, cast=(None, "tests/reader", None)))
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.sandbox(plan).scan() == {}


@pytest.mark.parametrize("cast", [("no/body", "builtin/executor", None), (None, "no/body", None)])
def test_an_unknown_actor_is_reported(bench: ActorPlanBench, cast: tuple[str | None, str, None]) -> None:
    plan = bench.work(bench.goal(bench.script(executes(DONE)), cast=cast))
    assert plan.state is PlanState.ERRORED
    assert "there is no actor 'no/body'" in str(plan.error)


@pytest.mark.parametrize(("model", "said"), [("nobody/m", "nobody/m"), ("scripted//no/file", "/no/file")])
def test_an_unknown_model_is_reported(bench: ActorPlanBench, model: str, said: str) -> None:
    plan = bench.work(bench.goal(model))
    assert plan.state is PlanState.ERRORED
    assert said in str(plan.error)


def test_an_unreachable_model_ends_the_plan_which_can_be_resumed(bench: ActorPlanBench) -> None:
    model = bench.script(
        {"when": {"tool": "write"}, "times": 1, "reply": answer(fault={"status": 503})},
        executes(answer(call("write", path="new.txt", content="new\n")), DONE),
    )
    plan = bench.work(bench.goal(model, cast=ALONE))
    assert plan.state is PlanState.ERRORED
    assert "does not answer" in str(plan.error)
    assert bench.spent(plan).reserved.tokens == 0
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["write"]
    states = [thought.state for thought in bench.thoughts(plan)]
    assert states == ["settled"] * 3


def test_work_undone_by_a_rollback_is_repeated(bench: ActorPlanBench) -> None:
    model = bench.script(
        strategizes(steps({"title": "one", "instructions": "1"}, {"title": "two", "instructions": "2"})),
        executes(answer(call("write", path="one.txt", content="1")), DONE, when={"user": "one +<- this one"}),
        executes(answer(call("write", path="two.txt", content="2")), DONE),
        reviews(accept()),
    )
    plan = bench.work(bench.goal(model))
    bench.parts.sandbox_edits.rollback(plan, 2)
    assert sorted(bench.parts.history.differences(plan.id)) == ["one.txt"]
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert sorted(bench.parts.history.differences(plan.id)) == ["one.txt", "two.txt"]
    # A second time, now starting with the first task.
    bench.parts.sandbox_edits.rollback(bench.now(plan), 1)
    plan = bench.resume(plan)
    assert sorted(bench.parts.history.differences(plan.id)) == ["one.txt", "two.txt"]
    bench.ensure_consistent(plan)


# ── Budgets ───────────────────────────────────────────────────────────────────────────────────────

WORKED = (
    executes(
        answer(call("command", script="echo ran >> new.txt"), usage={"input": 10, "output": 10}),
        says("done", usage={"input": 10, "output": 10}),
    ),
)
ENOUGH = BudgetLimits(10**12, 10**6, 100, 600.0)


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        (BudgetLimits(steps=1), "--max-steps 2"),
        (BudgetLimits(tokens=2_000), "--max-tokens "),
        (BudgetLimits(picodollars=2_000 * 10**6), "--max-usd 0.01"),
    ],
    ids=["steps", "tokens", "money"],
)
def test_a_plan_that_has_spent_its_budget_waits_for_a_larger_one(
    bench: ActorPlanBench, limits: BudgetLimits, remedy: str
) -> None:
    first, second = WORKED[0]["turns"]
    costly = {**first, "usage": {"unsaid": True}}  # so it counts at its worst case
    prices = {"input_price": 1.0, "output_price": 1.0}
    bench.actors["tests/worker"] = actor(thinker(tools=("command",)), name="tests/worker")
    model = bench.script(rule(costly, second), output_tokens=1_000, **prices)
    plan = bench.work(bench.goal(model, cast=(None, "tests/worker", None), limits=limits))
    assert plan.state is PlanState.WAITING, plan.error
    assert bench.waited(plan)["for"] == "budget"
    assert remedy in offered_in(bench.waited(plan))
    spent = bench.spent(plan)
    assert exceeded(limits, spent.spent + spent.reserved) == ()
    # Without a larger budget it waits again, and nothing is done meanwhile.
    assert bench.resume(plan).state is PlanState.WAITING
    assert (len(bench.thoughts(plan)), bench.tools_of(plan)) == (1, ["command"])
    bench.raise_limits(plan, ENOUGH)
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert (bench.sandbox(plan).root / "new.txt").read_text() == "ran\n"
    assert [thought.state for thought in bench.thoughts(plan)] == ["settled"] * 2


@pytest.mark.parametrize("phase", ["strategize", "execute"])
def test_a_plan_that_has_used_its_time_waits_for_more(bench: ActorPlanBench, phase: str) -> None:
    """In Strategize, too: the user's limit applies from the first call on."""
    rules = {
        "strategize": strategizes(ONE),
        "execute": executes(answer(call("write", path="n.txt", content="n")), DONE),
    }
    late = {"when": rules[phase]["when"], "reply": says("never said", delay_seconds=600.0), "times": 1}
    model = bench.script(late, *rules.values(), input_price=1.0, output_price=1.0)
    cast = ("builtin/strategist", "builtin/executor", None)
    for seconds in TRIED_SECONDS:
        plan = bench.work(bench.goal(model, cast=cast, limits=BudgetLimits(seconds=seconds)))
        assert plan.state is PlanState.WAITING, plan.error
        if plan.phase.value == phase:
            break
    assert plan.phase.value == phase
    assert "--timeout TIME" in offered_in(bench.waited(plan))
    assert bench.spent(plan).reserved.tokens == 0
    bench.raise_limits(plan, ENOUGH)
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["write"]


def test_branches_that_do_not_fit_together_run_in_turn(bench: ActorPlanBench) -> None:
    names = ("north", "east", "south", "west")
    branches = [thinker(name=name) for name in names]
    bench.actors["tests/wide"] = actor(thinker(name="first", next=names), *branches, name="tests/wide")
    cheap = says("so", delay_seconds=0.1, usage={"input": 20, "output": 10})
    model = bench.script(rule(cheap), output_tokens=1_500)
    plan = bench.work(bench.goal(model, cast=(None, "tests/wide", None), limits=BudgetLimits(tokens=4_000)))
    assert plan.phase_state == COMPLETE, plan.error
    assert (len(bench.thoughts(plan)), bench.spent(plan).spent.tokens) == (5, 150)


def test_a_command_ends_with_the_plans_time(bench: ActorPlanBench) -> None:
    bench.actors["tests/worker"] = actor(thinker(tools=("command",)), name="tests/worker")
    model = bench.script(rule(answer(call("command", script="sleep 600")), says("done")))
    cast = (None, "tests/worker", None)
    for seconds in TRIED_SECONDS:
        plan = bench.work(bench.goal(model, cast=cast, limits=BudgetLimits(seconds=seconds)))
        if bench.calls(plan):
            break
    assert plan.state is PlanState.WAITING, (plan.phase_state, plan.error, bench.calls(plan))
    assert "--timeout TIME" in offered_in(bench.waited(plan))
    [made] = bench.calls(plan)
    assert isinstance(made.result, Mapping)
    assert made.result["timed_out"] is True
    bench.raise_limits(plan, BudgetLimits(seconds=600.0))
    assert bench.resume(plan).phase_state == COMPLETE


def test_idle_time_does_not_count_for_the_plan(bench: ActorPlanBench) -> None:
    plan = bench.goal(bench.script(*WORKED), cast=ALONE, limits=BudgetLimits(seconds=100.0))
    budgets, now = bench.parts.actor_parts.budgets, bench.container.clock.now()
    named = {"actor": "a/b", "node": "n", "model": "m/x"}
    budgets.open(plan.id, BudgetLimits(seconds=100.0), now=now)
    ended = budgets.reserve(plan.id, plan.id, Spend(steps=1), key="1", now=now, **named)
    budgets.settle(ended, Spend(steps=1), None, now=now + timedelta(seconds=30))
    budgets.reserve(plan.id, plan.id, Spend(steps=1), key="2", now=now, **named)
    budgets.forfeit(plan.id, now=now + timedelta(days=3))
    assert bench.parts.actor_parts.time_left(plan, bench.strategies[plan.id]) == pytest.approx(70.0)


def test_a_larger_budget_for_a_plan_that_has_not_begun_keeps_its_other_limits(bench: ActorPlanBench) -> None:
    plan = bench.goal(bench.script(*WORKED), limits=BudgetLimits(steps=1))
    bench.raise_limits(plan, BudgetLimits(tokens=5_000))
    assert bench.spent(plan).limits == BudgetLimits(tokens=5_000, steps=1)


def test_a_time_limit_of_the_actors_own_is_not_the_budgets(bench: ActorPlanBench) -> None:
    limits = ActorLimits(seconds=0.2)
    bench.actors["tests/hasty"] = actor(thinker(), name="tests/hasty", limits=limits)
    model = bench.script(rule(says("late", delay_seconds=600.0)))
    plan = bench.work(bench.goal(model, cast=(None, "tests/hasty", None)))
    assert plan.state is PlanState.ERRORED
    assert "tests/hasty was stopped" in str(plan.error)
    assert "a stronger model" not in str(plan.error)


@pytest.mark.parametrize("below", [False, True], ids=["alone", "in a subgraph"])
def test_a_command_ends_with_the_time_of_its_actor(bench: ActorPlanBench, below: bool) -> None:
    around = SubgraphNode(name="below", actor="tests/hasty")
    bench.actors["tests/around"] = actor(around, name="tests/around", limits=ActorLimits(seconds=600))
    model = bench.script(rule(answer(call("command", script="sleep 600")), DONE))
    name = "tests/around" if below else "tests/hasty"
    for seconds in TRIED_SECONDS:
        limits = ActorLimits(seconds=seconds)
        bench.actors["tests/hasty"] = actor(thinker(tools=("command",)), name="tests/hasty", limits=limits)
        plan = bench.work(bench.goal(model, cast=(None, name, None)))
        if bench.calls(plan):
            break
    assert plan.state is PlanState.ERRORED
    assert "tests/hasty" in str(plan.error)
    [made] = bench.calls(plan)
    assert isinstance(made.result, Mapping)
    assert made.result["timed_out"] is True


def test_an_actors_limit_is_not_reported_as_the_models(bench: ActorPlanBench) -> None:
    limited = actor(thinker(tools=("read",)), name="tests/brief", limits=ActorLimits(steps=1))
    bench.actors["tests/brief"] = limited
    model = bench.script(rule(answer(call("read", path="a.txt")), DONE))
    plan = bench.work(bench.goal(model, cast=(None, "tests/brief", None)))
    assert plan.state is PlanState.ERRORED
    assert "reached its limit" in str(plan.error)
    assert "a stronger model" not in str(plan.error)


def test_money_is_not_counted_where_no_price_is_known(bench: ActorPlanBench) -> None:
    plan = bench.work(bench.goal(bench.script(*WORKED), cast=ALONE, limits=BudgetLimits(picodollars=10**12)))
    assert plan.state is PlanState.ERRORED
    assert "the price of scripted/" in str(plan.error)
    assert bench.thoughts(plan) == []


# ── Questions ─────────────────────────────────────────────────────────────────────────────────────


def asking() -> Actor:
    """Asks twice and writes the answers to a file."""
    return actor(
        HumanNode(name="colour", question="Which colour?", output="colour", next=("size",)),
        HumanNode(name="size", question="Which size?", output="size", choices=("s", "l"), next=("write",)),
        ToolNode(
            name="write", tool="write", arguments={"path": "told.txt", "content": "${colour} ${size}\n"}
        ),
        name="tests/asking",
        state=(StateKey("colour"), StateKey("size")),
    )


def test_each_answer_applies_only_to_its_question(bench: ActorPlanBench) -> None:
    bench.actors["tests/asking"] = asking()
    plan = bench.work(bench.goal(bench.script(executes(DONE)), cast=(None, "tests/asking", None)))
    first = bench.waited(plan)
    assert (plan.state, first["for"], first["what"]) == (PlanState.WAITING, "question", "Which colour?")
    assert "plan answer" in offered_in(first)
    # Without an answer, it asks the same question again.
    assert bench.waited(bench.resume(plan)) == first
    plan = bench.reply(plan, "l")
    second = bench.waited(plan)
    assert second["what"] == "Which size? (s, l)"
    assert second["question"] != first["question"]
    # The answer to the first question is not used for the second.
    assert bench.waited(bench.resume(plan)) == second
    with pytest.raises(PlanError, match="another question is pending"):
        bench.parts.lifecycle.reply(bench.now(plan), "l", str(first["question"]))
    with pytest.raises(PlanError, match="not one of the choices"):
        bench.reply(plan, "red")
    plan = bench.reply(plan, "s")
    assert plan.phase_state == COMPLETE, plan.error
    assert (bench.sandbox(plan).root / "told.txt").read_text() == "l s\n"
    with pytest.raises(PlanError, match="no question is pending"):
        bench.reply(plan, "s")


def test_an_answer_that_comes_twice_or_late_is_used_once(bench: ActorPlanBench) -> None:
    """The job of the first answer still exists when the second question is asked."""
    bench.actors["tests/asking"] = asking()
    plan = bench.work(bench.goal(bench.script(executes(DONE)), cast=(None, "tests/asking", None)))
    lifecycle = bench.parts.lifecycle
    asked = bench.now(plan)
    lifecycle.reply(asked, "red")
    with pytest.raises(PlanError):
        lifecycle.reply(asked, "blue")
    plan = bench.work(plan)
    assert bench.waited(plan)["what"] == "Which size? (s, l)"
    assert bench.reply(plan, "l").phase_state == COMPLETE
    assert (bench.sandbox(plan).root / "told.txt").read_text() == "red l\n"


def test_a_truncated_answer_does_not_end_the_work(bench: ActorPlanBench) -> None:
    """A model whose reasoning reaches the token limit has neither done the work nor said that it is done."""
    model = bench.script(
        executes(answer(call("write", path="n.txt", content="n")), DONE, when={"user": "cut off"}),
        executes(says("Let me think about that, at length", cut_off=True)),
    )
    plan = bench.work(bench.goal(model, cast=ALONE))
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["write"]


def test_a_model_that_is_always_cut_off_is_stopped(bench: ActorPlanBench) -> None:
    plan = bench.work(bench.goal(bench.script({"reply": says("and on, and on", cut_off=True)}), cast=ALONE))
    assert plan.state is PlanState.ERRORED
    assert "the answer was cut off" in str(plan.error)
    assert "try a stronger model" in str(plan.error)
    assert len(bench.thoughts(plan)) == 4


# ── From the command line ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(new_repository(tmp_path / "repository"))
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_yes_does_not_apply_a_result_that_the_reviewer_rejects(agents: Agents, tmp_path: Path) -> None:
    rules = [
        strategizes(ONE),
        executes(answer(call("write", path="b.txt", content="new\n")), DONE),
        reviews(revise("say it better")),
    ]
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"version": 1, "rules": rules}))
    ran = agents("run", "--yes", "--model", f"scripted/{script}", "a goal")
    assert ran.code == 3, ran
    assert "the reviewer rejected the result: not good - say it better" in ran.err
    assert (tmp_path / "repository" / "b.txt").read_text() == "alpha\n"
    # A person must decide.
    assert agents("plan", "apply", ran.id).code == 0
    assert (tmp_path / "repository" / "b.txt").read_text() == "new\n"


def test_a_question_is_answered_from_the_command_line(agents: Agents, tmp_path: Path) -> None:
    actors = tmp_path / ".config" / "cleveragents" / "actors"
    actors.mkdir(parents=True)
    (actors / "asking.yaml").write_text(ASKING)
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"version": 1, "rules": [rule(DONE)]}))
    ran = agents("run", "--actor", "mine/asking", "--yes", "--model", f"scripted/{script}", "a goal")
    assert ran.code == 3, ran
    assert "Which colour?" in ran.err
    answered = agents("plan", "answer", ran.id, "red")
    assert answered.code == 3, answered
    assert agents("plan", "apply", ran.id).code == 0
    assert (tmp_path / "repository" / "told.txt").read_text() == "red"


ASKING = """
name: mine/asking
type: graph
state:
  colour: {type: string}
entry: ask
nodes:
  ask: {type: human, question: "Which colour?", output: colour, next: tell}
  tell: {type: tool, tool: write, with: {path: told.txt, content: "${colour}"}, next: end}
"""


def offered_in(waiting: Mapping[str, Any]) -> str:
    """Return the command of the pending request."""
    (line,) = remedy_lines(remedies_from_json(thaw(waiting["remedies"])))
    return line
