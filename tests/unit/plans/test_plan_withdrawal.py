"""A revision without a good result is withdrawn: the result from before it is ready again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.api.plans.apply_jobs import apply_later
from cleveragents.api.plans.available_actions import possible_actions
from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.status_text import obstacle_of
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.actions.model import REVIEW, CheckRun, CheckVerdict
from cleveragents.core.errors import ApplyConflict, NeedsHuman, PlanError, StalePlan
from cleveragents.plans.apply_policy import apply_if_allowed, held_back, reviewer_objection
from cleveragents.plans.jobs.shared_jobs import PlanJob, PlanObserver
from cleveragents.plans.model.comment import CommentState
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanFacts
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)
from tests.plan_bench import check, new_repository

READY = (Phase.EXECUTE, PlanState.COMPLETE)
DONE = says("done")
EDIT = answer(call("edit", path="a.txt", old="two", new="2"))
FAULT = answer(fault={"status": 400})
REST = (
    executes(says("unfixed"), when={"first_user": "does not pass"}),
    executes(
        answer(call("write", path="a.txt", content="one\ntwo\n")),
        says("made it"),
        when={"first_user": "make it"},
    ),
    strategizes(steps({"title": "make it", "instructions": "make it"})),
    reviews(accept()),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path_factory.mktemp("withdrawal")) as made:
        yield made


@pytest.fixture
def bench(shared: ActorPlanBench, tmp_path: Path) -> ActorPlanBench:
    shared.repository = new_repository(tmp_path / "repository")
    return shared


def reached(bench: ActorPlanBench, *turns: dict[str, Any], **facts: Any) -> Plan:
    """Return a plan with a result. Its executor takes these turns in a revision that asks for digits, and
    changes the first line in one that asks for words.
    """
    digits = executes(*turns, when={"first_user": "use digits"})
    words = executes(
        answer(call("edit", path="a.txt", old="one", new="uno")), DONE, when={"first_user": "use words"}
    )
    plan = bench.reached(words, digits, *REST, **facts)
    assert plan.phase_state == READY, plan.error
    return plan


def revised(bench: ActorPlanBench, plan: Plan, message: str = "use digits") -> Plan:
    return bench.work(bench.parts.comments.revise(bench.now(plan), message)[1])


def withdrawn(bench: ActorPlanBench, plan: Plan) -> Plan:
    restored = bench.parts.correction.withdraw(bench.now(plan))
    assert restored.phase_state == READY
    bench.ensure_consistent(plan)
    return restored


def text(bench: ActorPlanBench, plan: Plan) -> str:
    return (bench.sandbox(plan).root / "a.txt").read_text()


@pytest.mark.parametrize("turns", [(EDIT, FAULT), (FAULT,)], ids=["after a change", "at once"])
def test_the_next_revision_does_not_repeat_a_withdrawn_one(
    bench: ActorPlanBench, turns: tuple[dict[str, Any], ...]
) -> None:
    plan = reached(bench, *turns)
    bench.parts.comments.add(plan, "digits in a.txt", author="ada")
    failed = revised(bench, plan)
    assert failed.state is PlanState.ERRORED
    plan = withdrawn(bench, plan)
    assert text(bench, plan) == "one\ntwo\n"
    assert "resume" not in possible_actions(bench.parts, plan)
    revision, plan = bench.parts.comments.revise(plan, "use words")
    plan = bench.work(plan)
    assert (plan.phase_state, revision.number) == (READY, 2), plan.error
    assert text(bench, plan) == "uno\ntwo\n"
    strategy = Strategy.from_json(plan.strategy)
    _, task = strategy.tasks
    assert "Comment 1, by ada" in task.instructions  # sent again
    assert "use digits" not in "".join([task.instructions, *strategy.guidance])
    assert (strategy.withdrawn, strategy.ready) == ((1,), None)


def test_comments_that_a_report_settled_are_open_again(bench: ActorPlanBench) -> None:
    said = says("Comment 1: resolved: used digits\nComment 2: declined: no need")
    plan = reached(bench, EDIT, said, checks=[check("grep -q two a.txt")])
    comments = bench.parts.comments
    for text in ("digits in a.txt", "be quick", "be kind"):
        comments.add(plan, text, author="ada")
    plan = revised(bench, plan)
    comments.answer(plan, 3, CommentState.RESOLVED, author="ada")
    settled = [one.state.value for one in comments.store.of_plan(plan.id)]
    assert settled == ["resolved", "declined", "resolved"]
    plan = comments.withdraw(bench.now(plan), author="bob")
    found = comments.store.of_plan(plan.id)
    assert [one.state.value for one in found] == ["open", "open", "resolved"]
    last = found[0].answers[-1].made
    assert (last.author, last.reason) == ("bob", "the revision was withdrawn")
    revised(bench, plan)
    again = [one.state.value for one in comments.store.of_plan(plan.id)]
    assert again == settled, "the same report settles them again"


def test_a_rollback_of_a_restored_result_can_be_resumed(bench: ActorPlanBench) -> None:
    plan = withdrawn(bench, revised(bench, reached(bench, EDIT, FAULT)))
    bench.parts.sandbox_edits.rollback(plan, 1)
    assert "resume" in possible_actions(bench.parts, plan)
    plan = bench.resume(plan)
    assert (plan.phase_state, text(bench, plan)) == (READY, "one\ntwo\n"), plan.error
    assert Strategy.from_json(plan.strategy).restored is None


def test_several_failed_revisions_return_to_the_result_before_the_first(bench: ActorPlanBench) -> None:
    plan = reached(bench, EDIT, DONE, checks=[check("grep -q two a.txt")])
    failed = revised(bench, plan)
    assert (failed.phase_state, text(bench, plan)) == (READY, "one\n2\n")
    failed = revised(bench, plan, "use words")
    assert text(bench, plan) == "uno\n2\n"
    assert failed.answer == "done"
    plan = withdrawn(bench, plan)
    assert (text(bench, plan), plan.answer) == ("one\ntwo\n", "made it")
    assert Strategy.from_json(plan.strategy).withdrawn == (1, 2)
    assert bench.apply(plan).state is PlanState.APPLIED
    assert bench.text("a.txt") == "one\ntwo\n"


def test_edits_captured_before_a_revision_are_kept(bench: ActorPlanBench) -> None:
    plan = reached(bench, EDIT, FAULT)
    (bench.sandbox(plan).root / "b.txt").write_text("by hand\n")
    bench.parts.sandbox_edits.reread(plan)
    withdrawn(bench, revised(bench, plan))
    assert (bench.sandbox(plan).root / "b.txt").read_text() == "by hand\n"


def test_a_revision_of_an_earlier_version_is_withdrawn(bench: ActorPlanBench) -> None:
    plan = revised(bench, reached(bench, EDIT, DONE, checks=[check("grep -q two a.txt")]))
    strategy = Strategy.from_json(plan.strategy)
    assert strategy.ready is not None
    kept = replace(strategy, ready=replace(strategy.ready, job=None, answer=None))
    now, facts = bench.container.clock.now(), PlanFacts(strategy=kept.to_json())
    plan = withdrawn(bench, bench.parts.plans.move(plan, READY, facts, now=now))
    assert (text(bench, plan), plan.job_id, plan.answer) == ("one\ntwo\n", None, None)


def test_a_good_revision_is_not_withdrawn(bench: ActorPlanBench) -> None:
    plan = reached(bench, EDIT, DONE, checks=[check("grep -q one a.txt")])
    plan = revised(bench, plan)
    with pytest.raises(PlanError, match="no unfinished revision") as refused:
        bench.parts.correction.withdraw(plan)
    assert [remedy.action for remedy in refused.value.remedies] == ["plan.log"]
    assert text(bench, plan) == "one\n2\n"


@pytest.mark.parametrize("captured", [False, True])
def test_edits_by_hand_are_not_lost_with_a_withdrawn_revision(bench: ActorPlanBench, captured: bool) -> None:
    plan = revised(bench, reached(bench, EDIT, FAULT))
    (bench.sandbox(plan).root / "b.txt").write_text("by hand\n")
    if captured:
        assert bench.parts.sandbox_edits.reread(plan) is not None
        (bench.sandbox(plan).root / "c.txt").write_text("not captured\n")
    files = "b.txt, c.txt" if captured else "b.txt"
    with pytest.raises(NeedsHuman, match=f"edits by hand since the earlier result: {files}$") as refused:
        bench.parts.correction.withdraw(plan)
    assert [remedy.action for remedy in refused.value.remedies] == ["plan.rollback"]
    assert bench.now(plan).state is PlanState.ERRORED
    assert (bench.sandbox(plan).root / "b.txt").exists()
    assert bench.parts.correction.withdraw(plan, discard=True).phase_state == READY
    bench.ensure_consistent(plan)


def blocked(bench: ActorPlanBench, plan: Plan) -> Plan:
    """Return the plan after an apply that a file of the user prevented."""
    (bench.repository / "a.txt").write_text("by ada\n")
    with pytest.raises(ApplyConflict):
        bench.apply(plan)
    plan = bench.now(plan)
    assert plan.state is PlanState.CONSTRAINED
    return plan


def test_a_result_that_was_blocked_is_blocked_again(bench: ActorPlanBench) -> None:
    before = blocked(bench, reached(bench, EDIT, FAULT))
    steps, obstacle = steps_from(bench.parts, before), obstacle_of(bench.parts, before)
    failed = revised(bench, before)
    assert failed.state is PlanState.ERRORED
    (step,) = [one for one in steps_from(bench.parts, failed) if one.action == "plan.rollback"]
    assert step.text.endswith("which could not be applied")
    plan = bench.parts.correction.withdraw(failed)
    bench.ensure_consistent(plan)
    assert (plan.phase_state, plan.error, text(bench, plan)) == (
        before.phase_state,
        before.error,
        "one\ntwo\n",
    )
    assert obstacle_of(bench.parts, plan) == obstacle is not None
    assert {"apply", "rebase", "resolve", "reject"} <= {*possible_actions(bench.parts, plan)}
    assert steps_from(bench.parts, plan) == steps
    again = bench.parts.correction.withdraw(revised(bench, plan))
    assert (again.phase_state, again.error) == (before.phase_state, before.error)


def test_a_blocked_result_that_was_merged_since_is_ready(bench: ActorPlanBench) -> None:
    plan = blocked(bench, reached(bench, EDIT, FAULT))
    bench.parts.rebase.merge(plan, path="a.txt")
    bench.parts.manual_resolution.resolve(plan, "a.txt", Take.OURS)
    plan = withdrawn(bench, revised(bench, plan))
    assert bench.apply(plan).state is PlanState.APPLIED
    assert bench.text("a.txt") == "one\ntwo\n"


def test_a_blocked_result_that_was_rolled_back_since_is_ready(bench: ActorPlanBench) -> None:
    plan = blocked(bench, reached(bench, FAULT))
    bench.parts.sandbox_edits.rollback(plan, 1)
    failed = revised(bench, plan)
    assert failed.state is PlanState.ERRORED
    assert withdrawn(bench, failed).error is None


def test_a_withdrawal_and_the_reopening_of_its_comments_are_one_transaction(bench: ActorPlanBench) -> None:
    said = says("Comment 1: resolved: used digits")
    plan = reached(bench, EDIT, said, checks=[check("grep -q two a.txt")])
    comments = bench.parts.comments
    comments.add(plan, "digits in a.txt", author="ada")
    plan = revised(bench, plan)
    found: list[bool] = []

    def look(commit: Any) -> None:
        if bench.now(plan).version != plan.version:  # after a kill here, nothing else is stored
            found.append(comments.store.of_plan(plan.id)[0].is_open)

    forget = bench.container.database.add_commit_listener(look)
    try:
        comments.withdraw(plan, author="bob")
    finally:
        forget()
    assert found
    assert found[0]


class HeldMoves:
    """Plans whose next move waits until another decision was made."""

    def __init__(self, bench: ActorPlanBench, decide: Any) -> None:
        self._plans = bench.parts.plans
        self._decide = decide

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plans, name)

    def move(self, *facts: Any, **more: Any) -> Plan:
        self._decide()
        return self._plans.move(*facts, **more)


def test_a_cancel_wins_over_a_withdrawal_that_has_not_finished(bench: ActorPlanBench) -> None:
    plan = revised(bench, reached(bench, EDIT, FAULT))
    correction = bench.parts.correction
    plans: Any = HeldMoves(bench, lambda: bench.cancel(plan))
    edits = replace(correction.sandbox_edits, plans=plans)
    with pytest.raises(StalePlan):
        replace(correction, sandbox_edits=edits).withdraw(plan)
    assert bench.now(plan).state is PlanState.CANCELLED
    bench.ensure_consistent(plan)


def test_a_job_that_is_retried_does_not_apply_a_restored_result(bench: ActorPlanBench) -> None:
    before = bench.text("a.txt")
    plan = reached(bench, EDIT, FAULT)
    job = bench.owned_job(bench.parts.comments.revise(plan, "use digits")[1])
    bench.handler()(job)  # its worker is killed before the job ends
    plan = withdrawn(bench, plan)
    bench.give_back(job)
    again = bench.owned_job(plan)
    PlanJob(bench.handler(), bench.parts, PlanObserver())(again)
    assert (again.id, again.attempt) == (job.id, 2)
    assert bench.now(plan) == plan
    assert bench.text("a.txt") == before


def test_a_command_that_follows_a_revision_does_not_apply_a_restored_result(bench: ActorPlanBench) -> None:
    plan = withdrawn(bench, revised(bench, reached(bench, EDIT, FAULT)))
    (said,) = held_back(bench.parts, plan)
    assert said.startswith("a revision was withdrawn")
    assert apply_if_allowed(bench.parts, plan) == plan
    with pytest.raises(NeedsHuman, match="a revision was withdrawn"):  # another agent asks for it
        apply_later(bench.container, plan.id, message=None, by=None, unattended=True)
    plan = revised(bench, plan, "use words")
    assert held_back(bench.parts, plan) == []
    assert apply_if_allowed(bench.parts, plan).state is PlanState.APPLIED


def test_the_review_of_the_restored_result_counts(bench: ActorPlanBench) -> None:
    plan = reached(bench)
    tree, now = bench.parts.result.tree(plan, bench.sandbox(plan)), bench.container.clock.now()

    def review(verdict: CheckVerdict, tree: str) -> str | None:
        run = CheckRun(plan.id, REVIEW, "builtin/reviewer", False, verdict, "not good", tree, now)
        bench.parts.check_runs.record(run)
        return reviewer_objection(bench.parts, plan)

    assert review(CheckVerdict.FAILED, "the tree of a revision") is None
    assert review(CheckVerdict.FAILED, tree) == "not good"
    assert review(CheckVerdict.PASSED, "the tree of a revision") == "not good"
    (bench.sandbox(plan).root / "b.txt").write_text("by hand\n")
    bench.parts.sandbox_edits.reread(plan)
    assert reviewer_objection(bench.parts, plan) is None, "without a review of its own, the last one counts"


def test_a_withdrawal_whose_process_died_is_repeated(bench: ActorPlanBench) -> None:
    plan = revised(bench, reached(bench, EDIT, FAULT))

    def die() -> None:
        raise KeyboardInterrupt

    correction = bench.parts.correction
    plans: Any = HeldMoves(bench, die)
    with pytest.raises(KeyboardInterrupt):
        replace(correction, sandbox_edits=replace(correction.sandbox_edits, plans=plans)).withdraw(plan)
    assert bench.now(plan).state is PlanState.ERRORED
    plan = withdrawn(bench, plan)
    assert text(bench, plan) == "one\ntwo\n"
