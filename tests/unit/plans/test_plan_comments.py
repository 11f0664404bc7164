"""Comments on a result: sent as one batch, answered by the executor, never lost or sent twice as new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.actors.model.actor import Actor, CommandNode, StateKey
from cleveragents.core.errors import PlanError, RequestRefused, StaleFile, StalePlan, UnknownFile
from cleveragents.plans.comments import CommentLines
from cleveragents.plans.model.comment import Comment, CommentState
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
    steps,
    strategizes,
)
from tests.agent_bench import agent_bench
from tests.plan_bench import new_repository

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
REQUESTED = "Changes to your result are requested"
DONE = says("done")
FIRST = executes(
    answer(call("write", path="a.txt", content="one\ntwo\n")), DONE, when={"first_user": "make it"}
)
PLANNED = strategizes(steps({"title": "make it", "instructions": "make it"}))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path_factory.mktemp("comments")) as made:
        yield made


@pytest.fixture
def bench(shared: ActorPlanBench, tmp_path: Path) -> ActorPlanBench:
    shared.repository = new_repository(tmp_path / "repository")
    shared.said.clear()
    shared.adapt = lambda run: run
    return shared


def reached(bench: ActorPlanBench, *turns: dict[str, Any]) -> Plan:
    """Return a plan with a result; its executor takes these turns in a revision."""
    plan = bench.reached(executes(*turns, when={"first_user": REQUESTED}), FIRST, PLANNED, reviews(accept()))
    assert plan.phase_state == COMPLETE, plan.error
    return plan


def comments(bench: ActorPlanBench, plan: Plan) -> list[Comment]:
    return [*bench.parts.comments.store.of_plan(plan.id)]


def revised(bench: ActorPlanBench, plan: Plan, message: str = "") -> Plan:
    _, plan = bench.parts.comments.revise(plan, message)
    return bench.work(plan)


def tasks(plan: Plan) -> list[str]:
    return [task.instructions for task in Strategy.from_json(plan.strategy).tasks]


EDIT = answer(call("edit", path="a.txt", old="two", new="2"))


def test_the_executor_answers_every_comment_of_a_batch(bench: ActorPlanBench) -> None:
    plan = reached(
        bench,
        EDIT,
        answer(call("answer_comment", comment=1, resolution="resolved")),
        answer(call("answer_comment", comment=2, resolution="declined", reason="out of scope")),
        DONE,
    )
    add = bench.parts.comments.add
    add(plan, "a digit, please", author="ada", lines=CommentLines("a.txt", 2, 2))
    add(plan, "and a changelog", author="bob")
    plan = revised(bench, plan, "keep it short")
    assert plan.phase_state == COMPLETE, plan.error
    first, second = comments(bench, plan)
    edit = next(made for made in bench.calls(plan) if made.tool == "edit")
    assert (first.state, first.answers[-1].made.call) == (CommentState.RESOLVED, edit.number)
    assert (second.state, second.answers[-1].made.reason) == (CommentState.DECLINED, "out of scope")
    task = tasks(plan)[-1]
    for said in (
        "Comment 1, by ada, on a.txt, line 2:\n> two\na digit",
        "Comment 2, by bob",
        "keep it short",
    ):
        assert said in task
    assert bench.parts.comments.places(plan, [first]) == {1: None}  # its line was changed


def test_an_agent_without_tools_answers_in_its_report(bench: ActorPlanBench) -> None:
    report = (
        "The second line is a digit.\n\n```\nComment 3: resolved: quoted, not an answer\n```\n\n"
        "Comment 1: resolved: it is a digit now\n- **Comment 2**: declined – there is no changelog\n"
        "Comment 9: resolved: there is no such comment\n"
    )
    plan = reached(bench, EDIT, says(report))
    for text in ("a digit", "a changelog", "and a test"):
        bench.parts.comments.add(plan, text, author="ada")
    plan = revised(bench, plan)
    found = comments(bench, plan)
    assert [one.state for one in found] == [
        CommentState.RESOLVED,
        CommentState.DECLINED,
        CommentState.OPEN,
    ]
    (resolved,), (declined,) = found[0].answers, found[1].answers
    edit = next(made for made in bench.calls(plan) if made.tool == "edit")
    assert (resolved.made.reason, resolved.made.call) == ("it is a digit now", edit.number)
    assert (declined.made.reason, declined.made.call) == ("there is no changelog", None)
    # A report that is read again does not settle what a person reopened.
    bench.parts.comments.answer(plan, 1, CommentState.OPEN, author="ada")
    bench.parts.comments.record_answers(plan, "builtin/executor", report)
    assert comments(bench, plan)[0].is_open


def test_a_claim_without_a_change_resolves_nothing(bench: ActorPlanBench) -> None:
    plan = reached(bench, says("Comment 1: resolved: it is a digit now\nComment 2: declined"))
    for text in ("a digit", "a changelog"):
        bench.parts.comments.add(plan, text, author="ada")
    plan = revised(bench, plan)
    assert [one.state for one in comments(bench, plan)] == [CommentState.OPEN, CommentState.OPEN]


def test_an_agent_without_tools_settles_the_comments_whose_lines_it_changed(tmp_path: Path) -> None:
    """Lines beside them, equal lines, deleted files and the plan as a whole do not count."""
    text = "one\\ntwo\\nthree\\nsame\\nfour\\nsame\\n"
    script = (
        "if test -f new.txt; then sed -i -e s/two/2/ -e 0,/same/s/same/other/ new.txt; rm gone.txt;"
        f" else printf '{text}' > new.txt; echo gone > gone.txt; fi"
    )
    node = CommandNode(name="work", argv=("/bin/sh", "-c", script), prompt="${task}", output="report")
    actor = Actor(name="tests/external", entry="work", nodes=(node,), state=(StateKey("report"),))
    with agent_bench(tmp_path) as bench:
        plan = bench.work(bench.task(actor, profile="full-auto"))
        add = bench.parts.comments.add
        for line in (2, 3, 4):
            add(plan, "better", author="ada", lines=CommentLines("new.txt", line, line))
        add(plan, "better", author="ada", lines=CommentLines("gone.txt", 1, 1))
        add(plan, "better", author="ada")
        plan = revised(bench, plan)
        assert (bench.sandbox(plan).root / "new.txt").read_text().startswith("one\n2\nthree\nother\n")
        found = comments(bench, plan)
        assert [one.state.value for one in found] == ["resolved", *["open"] * 4]
        made = found[0].answers[-1].made
        last = bench.calls(plan)[-1]
        assert (made.reason, made.author, made.call) == ("the lines were changed", actor.name, last.number)
        # A run that is read again does not settle what a person reopened.
        bench.parts.comments.answer(plan, 1, CommentState.OPEN, author="ada")
        bench.parts.comments.record_answers(plan, actor.name, "", by_change=True)
        assert comments(bench, plan)[0].is_open


def test_an_agent_with_tools_answers_by_itself(bench: ActorPlanBench) -> None:
    plan = reached(bench, EDIT, says("forgot it"))
    bench.parts.comments.add(plan, "a digit", author="ada", lines=CommentLines("a.txt", 2, 2))
    plan = revised(bench, plan)
    assert comments(bench, plan)[0].is_open


def test_a_comment_without_an_answer_stays_open_and_is_sent_again(bench: ActorPlanBench) -> None:
    plan = reached(bench, says("forgot it"))
    bench.parts.comments.add(plan, "a digit", author="ada")
    plan = revised(bench, plan)
    assert comments(bench, plan)[0].is_open
    bench.parts.comments.add(plan, "another", author="ada")
    plan = revised(bench, plan)
    assert [one.batch for one in comments(bench, plan)] == [2, 2]


def test_a_killed_process_leaves_the_batch_with_its_task(bench: ActorPlanBench) -> None:
    """A resume carries it out. Another revise sends only what came since."""

    class Died(BaseException):
        """Stands for a kill."""

    plan = reached(bench, EDIT, answer(call("answer_comment", comment=1, resolution="resolved")), DONE)
    bench.parts.comments.add(plan, "a digit", author="ada")
    correction = replace(bench.parts.correction, faults=RaiseAt("correct.kept", Died))
    with pytest.raises(Died):
        replace(bench.parts.comments, correction=correction).revise(plan)
    left = bench.parts.plans.get(plan.id)
    assert [one.batch for one in comments(bench, left)] == [1]
    with pytest.raises(PlanError, match="no open comment to send"):
        bench.parts.comments.revise(left)
    bench.parts.comments.add(left, "and this", author="bob")
    plan = revised(bench, left)
    assert plan.phase_state == COMPLETE, plan.error
    assert [one.batch for one in comments(bench, plan)] == [1, 2]
    assert [text.count("Comment 1,") for text in tasks(plan)] == [0, 1, 0]
    assert [one.state.value for one in comments(bench, plan)] == ["resolved", "open"]


def test_a_comment_that_comes_during_a_revision_belongs_to_the_next(bench: ActorPlanBench) -> None:
    early = answer(call("answer_comment", comment=2, resolution="declined", reason="I guess"))
    plan = reached(bench, early, DONE)
    bench.parts.comments.add(plan, "a digit", author="ada")
    _, queued = bench.parts.comments.revise(plan)
    bench.parts.comments.add(queued, "one more", author="bob")
    plan = bench.work(queued)
    assert plan.phase_state == COMPLETE, plan.error
    assert [(one.batch, one.state.value) for one in comments(bench, plan)] == [(1, "open"), (None, "open")]
    refused = next(made for made in bench.calls(plan) if made.tool == "answer_comment")
    assert "not part of this revision" in str(refused.error)


def test_a_second_revision_of_the_same_version_is_stale(bench: ActorPlanBench) -> None:
    """The first one has sent the comment, and its run goes on."""
    plan = reached(bench, DONE)
    bench.parts.comments.add(plan, "a digit", author="ada")
    _, queued = bench.parts.comments.revise(plan)
    with pytest.raises(StalePlan):
        bench.parts.comments.revise(plan)
    assert bench.now(plan) == queued
    assert len(tasks(queued)) == len(tasks(plan)) + 1


def test_the_tool_does_not_exist_without_a_revision(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        executes(
            answer(call("answer_comment", comment=1, resolution="declined", reason="x")),
            answer(call("write", path="a.txt", content="one\n")),
            DONE,
        ),
        PLANNED,
        reviews(accept()),
    )
    assert plan.phase_state == COMPLETE, plan.error
    refused = [made for made in bench.calls(plan) if made.tool == "answer_comment"]
    assert all(made.error for made in refused)
    assert comments(bench, plan) == []


def test_an_answer_needs_a_change_or_a_reason(bench: ActorPlanBench) -> None:
    plan = reached(
        bench,
        answer(call("answer_comment", comment=1, resolution="resolved")),
        answer(call("answer_comment", comment=1, resolution="declined")),
        answer(call("answer_comment", comment=1, resolution="resolved", call=99)),
        answer(call("answer_comment", comment=9, resolution="declined", reason="x")),
        DONE,
    )
    bench.parts.comments.add(plan, "a digit", author="ada")
    plan = revised(bench, plan)
    errors = [str(made.error) for made in bench.calls(plan) if made.tool == "answer_comment"]
    assert [
        said in error
        for said, error in zip(
            ["no change was made", "needs a reason", "no finished call 99", "no comment 9"],
            errors,
            strict=True,
        )
    ] == [True] * 4
    assert comments(bench, plan)[0].is_open


def test_a_rollback_of_the_answer_opens_the_comment_again(bench: ActorPlanBench) -> None:
    plan = reached(bench, EDIT, answer(call("answer_comment", comment=1, resolution="resolved")), DONE)
    bench.parts.comments.add(plan, "a digit", author="ada", lines=CommentLines("a.txt", 2, 2))
    plan = revised(bench, plan)
    assert comments(bench, plan)[0].state is CommentState.RESOLVED
    edit = next(made for made in bench.calls(plan) if made.tool == "edit")
    bench.parts.sandbox_edits.rollback(plan, edit.number)
    (kept,) = comments(bench, plan)
    assert kept.is_open
    assert bench.parts.comments.places(plan, [kept]) == {1: (2, 2)}


def test_findings_of_a_reviewer_are_comments(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        executes(
            EDIT,
            answer(call("answer_comment", comment=1, resolution="resolved", reason="a digit now")),
            DONE,
            when={"first_user": "The reviewer sends it back"},
        ),
        FIRST,
        PLANNED,
        reviews(accept(), when={"first_user": r"\+2"}),
        reviews(revise("a.txt:2: write a digit", "no test")),
    )
    assert plan.phase_state == COMPLETE, plan.error
    first, second = comments(bench, plan)
    assert (first.made.author, first.made.by_actor) == ("builtin/reviewer", True)
    assert first.made.anchor is not None
    assert first.made.anchor.lines == ("two",)
    assert first.answers[-1].made.author == "builtin/executor"
    # The executor did not answer it, and the next review accepts the result.
    assert (second.state, second.answers[-1].made.author) == (CommentState.RESOLVED, "builtin/reviewer")


def test_findings_with_characters_that_no_database_stores_are_escaped(bench: ActorPlanBench) -> None:
    plan = reached(bench, DONE)
    for _ in range(2):  # the second review repeats the findings
        found = bench.parts.comments.record_review(
            plan, "reviewer", ["a \x00 b", "c \udcff d"], key="call-1", accepted=False
        )
        assert [one.made.text for one in found] == ["a \\x00 b", "c \\udcff d"]
    assert len(bench.parts.comments.store.of_plan(plan.id)) == 2


def test_a_finding_on_too_many_lines_is_on_the_plan(bench: ActorPlanBench) -> None:
    made = executes(answer(call("write", path="big.txt", content="same\n" * 2_000)), DONE)
    plan = bench.reached(made, PLANNED, reviews(accept()))
    record = bench.parts.comments.record_review
    texts = ["big.txt:1-1001: too long", "big.txt:1-1000: long"]
    whole, lines = record(plan, "reviewer", texts, key="call-1", accepted=False)
    assert whole.made.anchor is None
    assert lines.made.anchor is not None


def test_a_finding_that_no_one_answers_stays_open_once(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        executes(says("no"), when={"first_user": "The reviewer sends it back"}),
        FIRST,
        PLANNED,
        reviews(revise("no test")),
    )
    assert [(one.made.text, one.state.value) for one in comments(bench, plan)] == [("no test", "open")]


def test_refuses_comments_without_text_or_lines(bench: ActorPlanBench) -> None:
    plan = reached(bench, DONE)
    add = bench.parts.comments.add
    with pytest.raises(RequestRefused, match="empty"):
        add(plan, "  ", author="ada")
    with pytest.raises(UnknownFile):
        add(plan, "x", author="ada", lines=CommentLines("b.txt", 1, 1))
    with pytest.raises(RequestRefused, match="has 2 lines"):
        add(plan, "x", author="ada", lines=CommentLines("a.txt", 2, 3))
    with pytest.raises(PlanError, match="no open comment"):
        bench.parts.comments.revise(plan)
    assert comments(bench, plan) == []


def test_refuses_a_comment_on_a_file_that_was_not_seen(bench: ActorPlanBench) -> None:
    plan = reached(bench, DONE)
    now = bench.parts.history.states(plan.id)["a.txt"]
    assert now is not None
    seen = CommentLines("a.txt", 2, 2, blob=now.content)
    added = bench.parts.comments.add(plan, "a digit", author="ada", lines=seen)
    assert added.made.anchor is not None
    bench.sandbox(plan).root.joinpath("a.txt").write_text("zero\none\ntwo\n")
    bench.parts.sandbox_edits.reread(plan)
    for before in (False, True):  # there was no such file before the plan
        with pytest.raises(StaleFile, match=r"a\.txt has changed since you saw it: reload the diff"):
            bench.parts.comments.add(plan, "a digit", author="ada", lines=replace(seen, before=before))
    assert comments(bench, plan) == [added]


@pytest.mark.parametrize("end", ["apply", "cancel", "reject"])
def test_refuses_comments_on_an_ended_plan(bench: ActorPlanBench, end: str) -> None:
    plan = reached(bench, DONE)
    ended = {"reject": bench.parts.lifecycle.reject, "apply": bench.apply, "cancel": bench.cancel}[end](plan)
    for seen in (ended, plan):  # the second was read before the plan ended
        with pytest.raises(PlanError, match=r"already \w+, so no agent reads a comment") as refused:
            bench.parts.comments.add(seen, "a digit", author="ada")
        assert [remedy.action for remedy in refused.value.remedies] == ["run"]
    assert comments(bench, plan) == []


def test_masks_secrets_in_comments(bench: ActorPlanBench) -> None:
    plan = reached(bench, DONE)
    key = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    added = bench.parts.comments.add(plan, f"use {key}", author="ada")
    assert key not in added.made.text
