"""Corrections: which decisions and work are reverted, what stays, and what never continues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from cleveragents.core.clock import SystemClock
from cleveragents.core.decision import DecisionState
from cleveragents.core.errors import NeedsHuman, PlanError, StalePlan, UnknownDecision
from cleveragents.core.identifiers import Fence
from cleveragents.core.tool import CallState
from cleveragents.plans.actors.actor_stage import ActorTurn
from cleveragents.plans.calls.tool_execution import ToolExecution
from cleveragents.plans.corrections.correct import PlanCorrection
from cleveragents.plans.model.correction import MOST_RETURNS, NewCorrection
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.strategize import StrategizePhase
from cleveragents.testing.clock import RaiseAt, RecordFaultPoints
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    says,
    strategizes,
)
from tests.plan_bench import new_repository, write

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
QUEUED = (Phase.STRATEGIZE, PlanState.QUEUED)
DONE = says("done")
ALONE = (None, "builtin/executor", None)
AGAIN = "This was planned before"


def decided(question: str, choice: str, **more: Any) -> dict[str, Any]:
    return {"question": question, "choice": choice, "rationale": "it fits", **more}


def planned(decisions: list[dict[str, Any]], *steps: dict[str, Any]) -> dict[str, Any]:
    return says({"summary": "s", "decisions": decisions, "steps": list(steps)})


def writes(words: str, path: str, **when: str) -> dict[str, Any]:
    """Script the executor to write a file for this task."""
    turn = answer(call("write", path=path, content=f"{path}\n"))
    return executes(turn, DONE, when={"first_user": words, **when})


FIRST = planned(
    [decided("Where?", "in a file"), decided("Called?", "notes"), decided("Format?", "JSON", parent=1)],
    {"title": "the notes", "instructions": "do the notes", "decisions": [2]},
    {"title": "the file", "instructions": "do it as JSON", "decisions": [3]},
)
SECOND = planned(
    [decided("Format?", "YAML", parent=1)],
    {"title": "the other file", "instructions": "do it as YAML", "decisions": [4]},
)
USUAL = (
    strategizes(SECOND, when={"first_user": AGAIN}),
    strategizes(FIRST),
    writes("do the notes", "notes.txt"),
    writes("do it as JSON", "settings.json"),
    writes("do it as YAML", "settings.yaml"),
    writes("mention it", "mention.txt"),
    reviews(accept()),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path_factory.mktemp("corrections")) as made:
        yield made


@pytest.fixture
def bench(shared: ActorPlanBench, tmp_path: Path) -> ActorPlanBench:
    shared.repository = new_repository(tmp_path / "repository")
    shared.said.clear()
    shared.adapt = lambda run: run
    return shared


def correction_of(bench: ActorPlanBench) -> PlanCorrection:
    return bench.parts.correction


def states_of(bench: ActorPlanBench, plan: Plan) -> list[str]:
    return [one.state.value for one in bench.parts.actor_parts.decisions.of_plan(plan.id)]


def changed(bench: ActorPlanBench, plan: Plan) -> list[str]:
    bench.ensure_consistent(plan)
    return bench.diff(plan, "--name-only").split()


def test_a_corrected_decision_is_planned_again_and_the_rest_stays(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    assert plan.phase_state == COMPLETE, plan.error
    tree = bench.sandbox(plan).tree(bench.parts.history.states(plan.id))
    thoughts = len(bench.thoughts(plan))
    kept, plan = correction_of(bench).correct(plan, 3, "people want comments in it")
    assert plan.phase_state == QUEUED
    assert (kept.number, kept.made.superseded, kept.made.outcome) == (1, (3,), tree)
    assert changed(bench, plan) == ["notes.txt"]
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["notes.txt", "settings.yaml"]
    assert states_of(bench, plan) == ["active", "active", "superseded", "active"]
    assert [call.step for call in bench.calls(plan) if call.tool == "write"] == [
        "1.1.think.1",
        "2.2.think.1",
        "2~1.2~1.think.1",
    ]
    # Kept work is not requested again: a strategist, an executor with two turns, a reviewer.
    assert len(bench.thoughts(plan)) == thoughts + 4
    strategy = Strategy.from_json(plan.strategy)
    assert [(task.name, task.round) for task in strategy.tasks] == [("the notes", 0), ("the other file", 1)]
    assert (strategy.round, strategy.returns) == (1, 0)
    assert strategy.guidance == ("people want comments in it",)
    assert "kept: 1. the notes" in bench.said


def test_correcting_the_first_decision_reverts_everything(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    undoing = correction_of(bench).preview(plan, 1)
    assert [decision.number for decision in undoing.superseded] == [1, 2, 3]
    assert (undoing.checkpoint, undoing.calls) == (1, 2)
    assert undoing.tasks == ("the notes", "the file")
    assert undoing.paths == ("notes.txt", "settings.json")
    assert bench.now(plan) == plan
    _, plan = correction_of(bench).correct(plan, 1, "somewhere else")
    assert changed(bench, plan) == []
    plan = bench.work(plan)
    assert changed(bench, plan) == ["settings.yaml"]
    assert [task.part(n) for n, task in enumerate(Strategy.from_json(plan.strategy).tasks, 1)] == ["1~1"]


class Overhearing:
    """A turn of an actor that records its prompts."""

    def __init__(self, turn: ActorTurn) -> None:
        self._turn = turn
        self.told: list[str] = []

    def run(self, *where: Any, **what: Any) -> Any:
        self.told.append(what["task"])
        return self._turn.run(*where, **what)


def test_the_strategist_learns_which_decisions_hold_and_why(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    _, plan = correction_of(bench).correct(plan, 3, "no JSON, please")
    heard: list[Overhearing] = []

    def overheard(strategize_phase: StrategizePhase) -> StrategizePhase:
        heard.append(Overhearing(strategize_phase.turn))
        return replace(strategize_phase, turn=cast("ActorTurn", heard[0]))

    bench.adapt = lambda run: replace(run, strategize_phase=lambda by: overheard(run.strategize_phase(by)))
    assert bench.work(plan).phase_state == COMPLETE
    (told,) = heard[0].told
    assert told.split("\n\n")[:-1] == [
        "This was planned before. Some of it was wrong, so you plan it again.",
        "Decisions that hold. Do not decide them again:\n1. Where? -> in a file\n2. Called? -> notes",
        "Decisions that do not hold any more:\n3. Format? -> JSON\nA person says:\nno JSON, please",
        "Your first decision has the number 4, the next 5, and so on. "
        "`parent` may be one of yours or one that holds.",
        "Done or running, and it stays. Plan no step for it:\n- the notes",
        "Planned before, not done or undone. Plan it anew if it is wanted:\n- the file",
    ]
    assert "At most 32 steps may be sub-plans" in told


def test_later_actors_receive_the_guidance(bench: ActorPlanBench) -> None:
    guided = "it counts more than the plan:\n- with a comment"
    plan = bench.reached(
        strategizes(SECOND, when={"first_user": AGAIN}),
        strategizes(FIRST),
        writes("do the notes", "notes.txt"),
        writes("do it as JSON", "settings.json"),
        executes(
            answer(call("write", path="commented.yaml", content="#\n")), DONE, when={"first_user": guided}
        ),
        reviews(accept(), when={"first_user": guided}),
        reviews(accept(), when={"first_user": "settings.json"}),
    )
    _, plan = correction_of(bench).correct(plan, 3, "with a comment")
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["commented.yaml", "notes.txt"]


@pytest.mark.parametrize("point", ["correct.paused", "correct.rolled_back", "correct.kept"])
def test_a_plan_can_be_corrected_or_resumed_after_a_crash_in_a_correction(
    bench: ActorPlanBench, point: str
) -> None:
    plan = bench.reached(*USUAL)
    dying = structs.replace(correction_of(bench), faults=RaiseAt(point, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        dying.correct(plan, 3, "people want comments in it")
    left = bench.now(plan)
    kept = point == "correct.kept"
    assert left.phase_state != COMPLETE or not kept
    assert (states_of(bench, plan)[2] == "superseded") is kept
    bench.ensure_consistent(plan)
    if left.phase_state == COMPLETE:
        left = bench.resume(left)
        assert changed(bench, plan) == ["notes.txt", "settings.json"]
        _, left = correction_of(bench).correct(left, 3, "people want comments in it")
        left = bench.work(left)
    else:
        left = bench.resume(left)
    assert left.phase_state == COMPLETE, left.error
    assert changed(bench, plan) == ["notes.txt", "settings.yaml"]
    assert states_of(bench, plan) == ["active", "active", "superseded", "active"]


def test_every_step_of_a_correction_is_a_fault_point(bench: ActorPlanBench) -> None:
    points = RecordFaultPoints()
    plan = bench.reached(*USUAL)
    structs.replace(correction_of(bench), faults=points).correct(plan, 3, "otherwise")
    assert points.reached == ["correct.paused", "correct.rolled_back", "correct.kept"]


def test_an_unfinished_plan_can_be_corrected_again(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    _, plan = correction_of(bench).correct(plan, 3, "otherwise")
    first = bench.container.jobs.get(str(plan.job_id))
    kept, plan = correction_of(bench).correct(plan, 2, "another name")
    assert bench.container.jobs.get(first.id).state.ended
    assert (kept.number, kept.made.superseded, kept.made.checkpoint) == (2, (2,), 1)
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert Strategy.from_json(plan.strategy).round == 2
    assert changed(bench, plan) == ["settings.yaml"]


def test_added_guidance_reverts_nothing_and_adds_a_task(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    kept, plan = correction_of(bench).append(plan, "mention it  in the changelog")
    assert (kept.made.decision, kept.made.superseded, kept.made.checkpoint) == (None, (), None)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.QUEUED)
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["mention.txt", "notes.txt", "settings.json"]
    assert set(states_of(bench, plan)) == {"active"}
    strategy = Strategy.from_json(plan.strategy)
    assert strategy.tasks[-1].name == "mention it in the changelog"
    assert (strategy.round, strategy.guidance) == (0, ("mention it  in the changelog",))


def test_added_guidance_counts_in_later_rounds(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    _, plan = correction_of(bench).append(plan, "mention it in the changelog")
    plan = bench.work(plan)
    _, plan = correction_of(bench).correct(plan, 3, "otherwise")
    strategy = Strategy.from_json(bench.work(plan).strategy)
    assert strategy.guidance == ("mention it in the changelog", "otherwise")
    assert strategy.round == 1


def test_a_waiting_plan_requests_approval_again_after_guidance(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL, profile="manual")
    assert bench.waited(plan)["for"] == "leave"
    _, plan = correction_of(bench).append(plan, "mention it in the changelog")
    plan = bench.work(plan)
    assert bench.waited(plan)["for"] == "leave"
    assert len(Strategy.from_json(plan.strategy).tasks) == 3


def test_a_failed_plan_continues_with_added_guidance(bench: ActorPlanBench) -> None:
    failing = strategizes(FIRST), writes("do the notes", "notes.txt")
    plan = bench.reached(*failing)
    assert plan.state is PlanState.ERRORED
    model = bench.script(*USUAL)
    _, plan = correction_of(bench).append(plan, "mention it in the changelog", model=model)
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["mention.txt", "notes.txt", "settings.json"]


def test_guidance_before_the_first_decision_is_kept(bench: ActorPlanBench) -> None:
    plan = bench.goal(bench.script(*USUAL))
    _, plan = correction_of(bench).append(plan, "mention it in the changelog")
    assert plan.phase_state == QUEUED
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert Strategy.from_json(plan.strategy).guidance == ("mention it in the changelog",)


# ── Going back by itself ──────────────────────────────────────────────────────────────────────────


def rethink(*findings: str) -> dict[str, Any]:
    return says({"verdict": "rethink", "findings": list(findings), "summary": "not so"})


def test_a_reviewer_can_send_a_plan_back_to_strategize(
    bench: ActorPlanBench,
) -> None:
    plan = bench.reached(
        strategizes(SECOND, when={"first_user": "The review of the result says:\n- JSON has no comments"}),
        *USUAL[1:-1],
        reviews(rethink("JSON has no comments"), when={"first_user": "settings.json"}),
        reviews(accept()),
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["settings.yaml"]
    assert states_of(bench, plan) == ["superseded"] * 3 + ["active"]
    (kept,) = bench.parts.actor_parts.corrections.of_plan(plan.id)
    assert (kept.made.by_itself, kept.made.decision, kept.made.checkpoint) == (True, 1, 1)
    strategy = Strategy.from_json(plan.strategy)
    assert (strategy.round, strategy.returns, strategy.guidance) == (1, 1, ())


def test_a_plan_goes_back_a_limited_number_of_times_then_fixes(bench: ActorPlanBench) -> None:
    one = planned([decided("How?", "so")], {"title": "it", "instructions": "do the notes"})
    plan = bench.reached(
        strategizes(one),
        writes("do the notes", "notes.txt"),
        executes(DONE, when={"first_user": "The reviewer sends it back"}),
        reviews(rethink("no good")),
    )
    assert plan.phase_state == COMPLETE, plan.error
    corrections = bench.parts.actor_parts.corrections.of_plan(plan.id)
    assert [kept.made.by_itself for kept in corrections] == [True] * MOST_RETURNS
    assert Strategy.from_json(plan.strategy).returns == MOST_RETURNS
    _, plan = correction_of(bench).correct(plan, 4, "a person may always")
    assert plan.phase_state == QUEUED


def test_a_plan_without_a_strategist_is_fixed_instead(bench: ActorPlanBench) -> None:
    cast = (None, "builtin/executor", "builtin/reviewer")
    plan = bench.reached(
        executes(DONE, when={"first_user": "The reviewer sends it back"}),
        writes("a goal", "notes.txt"),
        reviews(rethink("no good")),
        cast=cast,
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert not bench.parts.actor_parts.corrections.of_plan(plan.id)


# ── Decisions of executors ────────────────────────────────────────────────────────────────────────


def test_decisions_of_an_executor_can_be_corrected(bench: ActorPlanBench) -> None:
    choose = call("decide", question="Which name?", choice="x", rationale="short", instead_of=["y"])
    plan = bench.reached(
        executes(
            answer(call("write", path="y.txt", content="y\n")),
            DONE,
            when={"first_user": "it counts more than the plan:\n- call it y"},
        ),
        executes(
            answer(call("write", path="first.txt", content="1\n")),
            answer(choose),
            answer(call("write", path="x.txt", content="x\n")),
            DONE,
        ),
        cast=ALONE,
    )
    assert plan.phase_state == COMPLETE, plan.error
    (decision,) = bench.parts.actor_parts.decisions.of_plan(plan.id)
    made = decision.made
    assert (made.question, made.choice, made.parent, made.checkpoint) == ("Which name?", "x", None, 2)
    assert (made.made_by, made.alternatives[0].choice) == ("builtin/executor", "y")
    _, plan = correction_of(bench).correct(plan, 1, "call it y")
    assert changed(bench, plan) == ["first.txt"]
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["first.txt", "y.txt"]
    assert states_of(bench, plan) == ["superseded"]


def test_decisions_of_an_executor_follow_from_valid_ones(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(FIRST),
        executes(
            answer(call("decide", question="a?", choice="b", parent=2)),
            answer(call("decide", question="c?", choice="d", parent=77)),
            DONE,
            when={"first_user": "do the notes"},
        ),
        writes("do it as JSON", "settings.json"),
        reviews(accept()),
    )
    parents = [one.made.parent for one in bench.parts.actor_parts.decisions.of_plan(plan.id)]
    assert parents == [None, 1, 1, 2, 1]
    undoing = correction_of(bench).preview(plan, 2)
    assert [decision.number for decision in undoing.superseded] == [2, 4, 5]


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────────


def refusal(bench: ActorPlanBench, plan: Plan, number: int = 1, guidance: str = "otherwise") -> str:
    before = bench.now(plan)
    with pytest.raises((PlanError, UnknownDecision)) as refused:
        correction_of(bench).correct(before, number, guidance)
    assert bench.now(plan) == before
    return str(refused.value)


def test_refuses_a_correction_with_a_remedy(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    assert "no decision 9; it has 3" in refusal(bench, plan, 9)
    assert "guidance is empty" in refusal(bench, plan, guidance=" \n")
    _, corrected = correction_of(bench).correct(plan, 3, "otherwise")
    corrected = bench.work(corrected)
    assert "decision 3 was already superseded by correction 1" in refusal(bench, corrected, 3)
    bench.apply(corrected)
    assert "applied, which is final; start a new plan" in refusal(bench, corrected)


def test_a_plan_with_fixed_steps_has_nothing_to_correct(bench: ActorPlanBench) -> None:
    plan = bench.done(write("x.txt", ""))
    assert "plan of fixed steps has no decisions" in refusal(bench, plan)
    with pytest.raises(PlanError, match="plan of fixed steps has no decisions"):
        correction_of(bench).append(bench.now(plan), "more")


def test_a_plan_without_decisions_says_so(bench: ActorPlanBench) -> None:
    plan = bench.reached(writes("a goal", "notes.txt"), cast=ALONE)
    assert "it has 0" in refusal(bench, plan)


def test_refuses_to_correct_a_failed_apply(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    now = SystemClock().now()
    for state in (PlanState.QUEUED, PlanState.PROCESSING, PlanState.ERRORED):
        plan = bench.parts.plans.move(plan, (Phase.APPLY, state), now=now)
        wanted = "its last apply failed" if state is PlanState.ERRORED else "an apply is running"
        assert wanted in refusal(bench, plan)


def test_a_blocked_plan_can_be_corrected(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    for state in (PlanState.QUEUED, PlanState.PROCESSING, PlanState.CONSTRAINED):
        plan = bench.parts.plans.move(plan, (Phase.APPLY, state), now=SystemClock().now())
    _, plan = correction_of(bench).correct(plan, 3, "otherwise")
    assert bench.work(plan).phase_state == COMPLETE


def test_a_correction_refuses_unrecorded_edits(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    (bench.sandbox(plan).root / "mine.txt").write_text("mine\n")
    for correct in (
        lambda: correction_of(bench).correct(plan, 3, "otherwise"),
        lambda: correction_of(bench).append(plan, "more"),
    ):
        with pytest.raises(NeedsHuman, match=r"mine\.txt"):
            correct()
    bench.parts.sandbox_edits.reread(bench.now(plan))
    _, plan = correction_of(bench).append(bench.now(plan), "mention it")
    assert "mine.txt" in changed(bench, bench.work(plan))


def test_edits_stay_if_nothing_is_reverted(bench: ActorPlanBench) -> None:
    plan = bench.reached(strategizes(FIRST))
    (bench.sandbox(plan).root / "mine.txt").write_text("mine\n")
    with pytest.raises(NeedsHuman, match=r"mine\.txt"):
        correction_of(bench).correct(plan, 3, "otherwise")


def test_refuses_to_correct_a_plan_that_moved(bench: ActorPlanBench) -> None:
    """The other move happens between the stop and the recording of the correction."""
    plan = bench.reached(*USUAL)

    class Rejecting:
        def reach(self, name: str) -> None:
            if name == "correct.rolled_back":
                bench.parts.lifecycle.reject(bench.now(plan))

    with pytest.raises(StalePlan):
        structs.replace(correction_of(bench), faults=Rejecting()).correct(plan, 3, "otherwise")
    assert bench.now(plan).state is PlanState.REJECTED
    assert set(states_of(bench, plan)) == {DecisionState.ACTIVE.value}


def test_refuses_to_correct_a_merged_sub_plan(bench: ActorPlanBench) -> None:
    parent, child = bench.reached(*USUAL), bench.reached(*USUAL)
    child = structs.replace(child, parent_id=parent.id, key="1")
    correction_of(bench).ensure_correctable(child)
    calls = bench.parts.calls
    made = calls.add(parent.id, "note", {}, step="merge-1", state=CallState.STARTED, now=SystemClock().now())
    calls.move(made, CallState.ENDED, now=SystemClock().now())
    with pytest.raises(PlanError, match=f"merged into plan {parent.id}"):
        correction_of(bench).ensure_correctable(child)


def test_corrects_a_plan_without_a_sandbox(bench: ActorPlanBench) -> None:
    plan = bench.reached(strategizes(FIRST))
    assert plan.state is PlanState.ERRORED
    bench.parts.sandboxes.remove(plan.id)
    kept, plan = correction_of(bench).correct(plan, 3, "otherwise", model=bench.script(*USUAL))
    assert (kept.made.outcome, kept.made.checkpoint) == (None, None)
    assert bench.work(plan).phase_state == COMPLETE


def test_decisions_of_an_unsaved_strategy_can_be_corrected(bench: ActorPlanBench) -> None:
    """The plan was interrupted after its decisions were recorded and before its strategy was."""
    plan = bench.reached(*USUAL, cast=("builtin/strategist", "builtin/executor", None))
    bare = structs.replace(bench.now(plan), strategy=None)
    undoing = correction_of(bench).preview(bare, 1)
    assert (undoing.checkpoint, len(undoing.superseded)) == (None, 3)


def test_a_correction_clears_the_error(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    facts = PlanFacts(error="x")
    plan = bench.parts.plans.move(plan, (Phase.EXECUTE, PlanState.QUEUED), now=SystemClock().now())
    plan = bench.parts.plans.move(plan, (Phase.EXECUTE, PlanState.ERRORED), facts, now=SystemClock().now())
    _, plan = correction_of(bench).correct(plan, 3, "otherwise")
    assert plan.error is None


def test_refuses_to_go_back_without_a_strategist_or_returns(bench: ActorPlanBench) -> None:
    alone = bench.reached(writes("a goal", "notes.txt"), cast=ALONE)
    execution, fence = cast("ToolExecution", None), cast("Fence", None)
    assert correction_of(bench).think_again(alone, "no good", execution, fence) is None
    plan = bench.reached(strategizes(FIRST))
    for _ in range(MOST_RETURNS):
        made = NewCorrection("no good", by_itself=True)
        plan = bench.parts.actor_parts.corrections.add(plan, made, [QUEUED], now=SystemClock().now())[1]
        for state in (PlanState.PROCESSING, PlanState.WAITING):
            plan = bench.parts.plans.move(plan, (Phase.STRATEGIZE, state), now=SystemClock().now())
    assert correction_of(bench).think_again(plan, "no good", execution, fence) is None


def test_a_plan_can_go_back_before_its_first_call(bench: ActorPlanBench) -> None:
    plan = bench.parts.lifecycle.queue(bench.reached(strategizes(FIRST)))
    job = bench.owned_job(plan)
    plan = bench.parts.plans.move(plan, (Phase.EXECUTE, PlanState.PROCESSING), now=SystemClock().now())
    run, sandbox = bench.handler(), bench.sandbox(plan)
    execution = run.open_execution(plan, Strategy.from_json(plan.strategy), sandbox, job)
    moved = correction_of(bench).think_again(plan, "no good", execution, Fence(job.id, job.fence))
    assert moved is not None
    assert moved.phase_state == QUEUED
    assert states_of(bench, plan) == ["superseded"] * 3
    assert not bench.calls(plan)
