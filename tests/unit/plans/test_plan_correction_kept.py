"""Corrections keep no secrets, repeat no fix attempts, duplicate no decisions, and lose no edits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.core.decision import DecisionState
from cleveragents.core.errors import PlanError
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.testing.clock import RaiseAt
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    revise,
    says,
    strategizes,
)
from tests.plan_bench import new_repository

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
DONE = says("done")
AGAIN = "This was planned before"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path_factory.mktemp("kept")) as made:
        yield made


@pytest.fixture
def bench(shared: ActorPlanBench, tmp_path: Path) -> ActorPlanBench:
    shared.repository = new_repository(tmp_path / "repository")
    shared.said.clear()
    shared.adapt = lambda run: run
    return shared


def decided(question: str, choice: str, **more: Any) -> dict[str, Any]:
    return {"question": question, "choice": choice, "rationale": "it fits", **more}


def planned(decisions: list[dict[str, Any]], *steps: dict[str, Any]) -> dict[str, Any]:
    return says({"summary": "s", "decisions": decisions, "steps": list(steps)})


def step(words: str, *decisions: int, **more: Any) -> dict[str, Any]:
    return {"title": words, "instructions": f"do the {words}", "decisions": [*decisions], **more}


def writes(words: str, *turns: dict[str, Any]) -> dict[str, Any]:
    """Script the executor to take these turns for this task and write a file of that name."""
    last = answer(call("write", path=f"{words}.txt", content=f"{words}\n"))
    return executes(*turns, last, DONE, when={"first_user": f"do the {words}"})


def holding(bench: ActorPlanBench, plan: Plan) -> list[int]:
    every = bench.parts.actor_parts.decisions.of_plan(plan.id)
    return [one.number for one in every if one.state is DecisionState.ACTIVE]


def changed(bench: ActorPlanBench, plan: Plan) -> list[str]:
    bench.ensure_consistent(plan)
    return bench.diff(plan, "--name-only").split()


def names(plan: Plan) -> list[str]:
    return [task.name for task in Strategy.from_json(plan.strategy).tasks]


def holding_files(bench: ActorPlanBench, secret: bytes) -> list[str]:
    """Return the files below the bench's home, including the database, that contain the secret."""
    return [str(one) for one in bench.home.rglob("*") if one.is_file() and secret in one.read_bytes()]


FIRST = planned(
    [decided("Where?", "here"), decided("Format?", "JSON", parent=1)], step("notes", 1), step("json", 2)
)
SECOND = planned([decided("Format?", "YAML", parent=1)], step("yaml"))
USUAL = (
    strategizes(SECOND, when={"first_user": AGAIN}),
    strategizes(FIRST),
    *(writes(words) for words in ("notes", "json", "yaml", "mention")),
    reviews(accept()),
)


def test_stores_no_secret_of_guidance(bench: ActorPlanBench) -> None:
    said = "do the mention, its database has password=hunter2hunter2"
    plan = bench.reached(*USUAL)
    _, plan = bench.parts.correction.append(plan, said)
    plan = bench.work(plan)
    _, plan = bench.parts.correction.correct(plan, 2, said)
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert [one.made.guidance for one in bench.parts.actor_parts.corrections.of_plan(plan.id)] == [
        "do the mention, its database has password=***"
    ] * 2
    assert holding_files(bench, b"its database has password=")
    assert not holding_files(bench, b"hunter2")


class Died(BaseException):
    """Stands for a kill."""


def test_a_recorded_correction_is_queued_after_a_crash(
    bench: ActorPlanBench,
) -> None:
    plan = bench.reached(*USUAL)
    dying = replace(bench.parts.correction, faults=RaiseAt("correct.kept", Died))
    with pytest.raises(Died):
        dying.append(plan, "do the mention")
    left = bench.parts.plans.get(plan.id)
    assert left.state is PlanState.WAITING
    queued = bench.parts.correction.gone_on_with(left)
    assert bench.parts.correction.gone_on_with(queued) == queued
    # A process that read the plan before and continues otherwise finds that another was faster.
    assert bench.parts.correction.gone_on_with(left, "another/model") == queued
    plan = bench.work(queued)
    assert plan.phase_state == COMPLETE, (plan.error, plan.waiting_for)
    assert changed(bench, plan) == ["json.txt", "mention.txt", "notes.txt"]
    assert bench.parts.correction.gone_on_with(plan) == plan


def test_added_guidance_has_its_own_fix_attempts(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(planned([decided("Where?", "here")], step("notes", 1))),
        executes(
            answer(call("write", path="mended.txt", content="")), DONE, when={"first_user": "- the second"}
        ),
        executes(says("tried"), when={"first_user": "- the first"}),
        writes("notes"),
        writes("mention"),
        reviews(accept(), when={"first_user": r"mended\.txt"}),
        reviews(revise("the second"), when={"first_user": r"mention\.txt"}),
        reviews(revise("the first")),
    )
    assert plan.phase_state == COMPLETE, plan.error
    _, plan = bench.parts.correction.append(plan, "do the mention")
    plan = bench.work(plan)
    assert changed(bench, plan) == ["mended.txt", "mention.txt", "notes.txt"]
    mended = [one.step for one in bench.calls(plan) if one.arguments.get("path") == "mended.txt"]
    assert mended == ["mend-1~1.mend-1~1.think.1"]


def test_a_rollback_restarts_the_fix_attempts(bench: ActorPlanBench) -> None:
    """The run made no call that could be reverted, and would give the same answer again."""
    rules = strategizes(planned([decided("Where?", "here")], step("notes", 1))), writes("notes")
    tries = executes(says("tried"), when={"first_user": "- no good"})
    plan = bench.reached(*rules, tries, reviews(revise("no good")))
    bench.parts.sandbox_edits.rollback(plan, 1)
    mends = executes(
        answer(call("write", path="mended.txt", content="")), DONE, when={"first_user": "- no good"}
    )
    model = bench.script(
        *rules, mends, reviews(accept(), when={"first_user": r"mended\.txt"}), reviews(revise("no good"))
    )
    plan = bench.work(bench.parts.lifecycle.resume(plan, model=model))
    assert changed(bench, plan) == ["mended.txt", "notes.txt"]


CHOICE = answer(call("decide", question="Name?", choice="x", rationale="short"))
CHOOSING = (
    strategizes(SECOND, when={"first_user": AGAIN}),
    strategizes(
        planned(
            [decided("Where?", "here"), decided("Format?", "JSON", parent=1)],
            step("json", 2),
            step("notes", 1),
        )
    ),
    writes("json"),
    writes("notes", CHOICE),
    writes("yaml"),
    reviews(accept()),
)


def test_a_decision_of_a_reverted_call_no_longer_holds(bench: ActorPlanBench) -> None:
    plan = bench.reached(*CHOOSING)
    assert holding(bench, plan) == [1, 2, 3]
    undoing = bench.parts.correction.preview(plan, 2)
    assert [one.number for one in undoing.superseded] == [2, 3]
    kept, plan = bench.parts.correction.correct(plan, 2, "no JSON")
    assert (kept.made.superseded, holding(bench, plan)) == ((2, 3), [1])
    plan = bench.work(plan)
    assert holding(bench, plan) == [1, 4]


def test_a_rollback_reverts_later_decisions_without_duplicates(bench: ActorPlanBench) -> None:
    plan = bench.reached(*CHOOSING)
    undone = bench.parts.sandbox_edits.rollback(plan, 2)
    assert holding(bench, plan) == [1, 2]
    # While the rollback counts.
    bench.parts.sandbox_edits.rollback(plan, undone.number)
    assert holding(bench, plan) == [1, 2, 3]
    bench.parts.sandbox_edits.rollback(plan, 2)
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert holding(bench, plan) == [1, 2, 4]
    with pytest.raises(PlanError, match="decision 3 was rolled back"):
        bench.parts.correction.preview(plan, 3)
    assert bench.parts.correction.preview(plan, 4).paths == ("notes.txt",)


def test_kept_tasks_without_new_steps_are_not_repeated(bench: ActorPlanBench) -> None:
    nothing = planned([decided("Format?", "none", parent=1)])
    plan = bench.reached(strategizes(nothing, when={"first_user": AGAIN}), *USUAL[1:])
    _, plan = bench.parts.correction.correct(plan, 2, "neither")
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert (names(plan), changed(bench, plan)) == (["notes"], ["notes.txt"])


# ── Edits of a person ─────────────────────────────────────────────────────────────────────────────


def test_edits_of_other_files_survive_a_correction(bench: ActorPlanBench) -> None:
    plan = bench.reached(*USUAL)
    root = bench.sandbox(plan).root
    (root / "mine.txt").write_text("mine\n")
    (root / "notes.txt").write_text("better\n")
    (root / "json.txt").write_text("by hand\n")
    bench.parts.sandbox_edits.reread(plan)
    undoing = bench.parts.correction.preview(plan, 2)
    assert (undoing.paths, undoing.edits_lost) == (("json.txt",), ("json.txt",))
    assert undoing.edits_kept == ("mine.txt", "notes.txt")
    _, plan = bench.parts.correction.correct(plan, 2, "no JSON")
    assert changed(bench, plan) == ["mine.txt", "notes.txt"]
    assert bench.calls(plan)[-1].tool == "reread"
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["mine.txt", "notes.txt", "yaml.txt"]
    assert (root / "notes.txt").read_text() == "better\n"


def test_edits_of_reverted_files_are_reverted(bench: ActorPlanBench) -> None:
    """A reverted call deleted a file, and a person made a directory in its place."""
    gone = answer(call("command", script="rm a.txt; mkdir d; echo x > d/e"))
    plan = bench.reached(
        strategizes(planned([decided("Where?", "here")], step("notes", 1))),
        executes(gone, DONE, when={"first_user": "do the notes"}),
        reviews(accept()),
    )
    root = bench.sandbox(plan).root
    assert not (root / "a.txt").exists()
    (root / "a.txt").mkdir()
    (root / "a.txt" / "below").write_text("")
    (root / "d" / "e").unlink()
    (root / "d").rmdir()
    (root / "d").write_text("a file\n")
    (root / "free").write_text("")
    bench.parts.sandbox_edits.reread(plan)
    undoing = bench.parts.correction.preview(plan, 1)
    assert (undoing.edits_kept, undoing.edits_lost) == (("free",), ("a.txt/below", "d", "d/e"))
    _, plan = bench.parts.correction.correct(plan, 1, "otherwise")
    assert changed(bench, plan) == ["free"]


def test_a_plan_that_goes_back_keeps_edits(bench: ActorPlanBench) -> None:
    rethink = says({"verdict": "rethink", "findings": ["no JSON"], "summary": "not so"})
    plan = bench.reached(*USUAL[:-1], reviews(accept(), when={"first_user": r"json\.txt"}))
    (bench.sandbox(plan).root / "mine.txt").write_text("mine\n")
    bench.parts.sandbox_edits.reread(plan)
    model = bench.script(
        *USUAL[:-1],
        reviews(accept(), when={"first_user": r"yaml\.txt"}),
        reviews(rethink, when={"first_user": r"mention\.txt"}),
    )
    _, plan = bench.parts.correction.append(bench.now(plan), "do the mention", model=model)
    plan = bench.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert changed(bench, plan) == ["mine.txt", "yaml.txt"]
