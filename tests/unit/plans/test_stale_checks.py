"""A verdict belongs to the files that were checked; for other files it is out of date."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cleveragents.api.plans.details import details_of
from cleveragents.changes.model.review import ReviewKind
from cleveragents.cli.plan.sections import in_short
from cleveragents.core.actions.model import REVIEW, CheckRun, CheckVerdict
from cleveragents.core.errors import ApplyConflict, CheckFailed
from cleveragents.core.json_value import FrozenObject
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.apply_policy import ensure_checked
from cleveragents.plans.model.plan import Plan, PlanState
from tests.plan_bench import PlanBench, check, edit, write


def said(plans: PlanBench, plan: Plan) -> list[tuple[str, str]]:
    """Return the displayed verdict of each check."""
    rows = details_of(plans.parts, plans.now(plan))["checks"]
    assert isinstance(rows, tuple)
    return [
        (str(row["name"]), str(in_short(row)["verdict"])) for row in rows if isinstance(row, FrozenObject)
    ]


def test_a_pass_before_a_rollback_is_out_of_date(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"), write("y.txt", "2\n"), checks=[check("true"), check("false")])
    assert said(plans, plan) == [("true", "passed"), ("false", "failed")]
    plans.parts.sandbox_edits.rollback(plan, 2)
    assert said(plans, plan) == [("true", "passed, out of date"), ("false", "failed, out of date")]
    plans.parts.sandbox_edits.rollback(plan, 1)
    assert said(plans, plan)[0] == ("true", "passed, out of date"), "nothing is changed any more"
    plans.parts.sandbox_edits.rollback(plan, 3)
    assert said(plans, plan)[0] == ("true", "passed"), "the rollbacks were taken back: these files it saw"


def test_edits_and_rejected_files_make_checks_out_of_date(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"), write("y.txt", "2\n"), checks=[check("true")])
    plans.parts.result.review(plan, ReviewKind.PATH, "y.txt", accepted=False)
    assert said(plans, plan) == [("true", "passed, out of date")]
    plans.parts.result.review(plan, ReviewKind.PATH, "y.txt", accepted=True)
    assert said(plans, plan) == [("true", "passed")]
    (plans.sandbox(plan).root / "x.txt").write_text("mine\n")
    plans.parts.sandbox_edits.reread(plan)
    assert said(plans, plan) == [("true", "passed, out of date")]


def test_checks_stay_valid_without_a_sandbox(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", "1\n"), write("y.txt", "2\n"), checks=[check("true")])
    plans.parts.sandbox_edits.rollback(plan, 2)
    plans.parts.sandboxes.remove(plan.id)
    assert said(plans, plan) == [("true", "passed")]


def test_a_check_that_did_not_run_is_not_out_of_date(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""), write("y.txt", ""), checks=[check("no-such-program-at-all")])
    plans.parts.sandbox_edits.rollback(plan, 2)
    assert said(plans, plan) == [("no-such-program-at-all", "not run")]


def test_a_check_of_the_merged_result_is_valid_for_the_apply(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "two", "2"), checks=[check("true")])
    (plans.repository / "b.txt").write_text("the user's\n")
    assert plans.apply(plan).state is PlanState.APPLIED
    first, merged = plans.parts.check_runs.of_plan(plan.id)
    assert first.tree != merged.tree
    assert said(plans, plan) == [("true", "passed")]


def test_a_failed_check_of_the_merged_result_blocks_the_plan(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "two", "2"), checks=[check("grep alpha b.txt")])
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(CheckFailed):
        plans.apply(plan)
    assert said(plans, plan) == [("grep alpha b.txt", "failed")]


def test_a_pass_of_other_files_is_out_of_date_for_a_blocked_plan(plans: PlanBench) -> None:
    """The obstacle was found before any check ran."""
    plan = plans.done(edit("b.txt", "alpha", "beta"), write("y.txt", ""), checks=[check("true")])
    plans.parts.sandbox_edits.rollback(plan, 2)
    (plans.repository / "b.txt").write_text("the user's\n")
    with pytest.raises(ApplyConflict):
        plans.apply(plan)
    assert said(plans, plan) == [("true", "passed, out of date")]


def test_a_check_of_the_merged_files_is_valid_during_the_apply(plans: PlanBench) -> None:
    """The first of two checks shows its verdict while the second runs."""
    seen: list[list[tuple[str, str]]] = []
    both = [check("true"), check("true; true")]
    plan = plans.done(edit("a.txt", "two", "2"), write("y.txt", ""), checks=both)
    plans.parts.sandbox_edits.rollback(plan, 2)
    (plans.repository / "b.txt").write_text("the user's\n")
    plans.parts.own_checkout = lambda *asked: seen.append(said(plans, plan))
    plans.apply(plan)
    other = "passed, out of date"
    assert seen == [
        [("true", other), ("true; true", other)],
        [("true", "passed"), ("true; true", other)],
    ]


def reviewed(plan: Plan, tree: str, actor: str) -> CheckRun:
    return CheckRun(plan.id, REVIEW, actor, False, CheckVerdict.PASSED, "", tree, plan.updated_at)


def test_a_review_stays_valid_for_its_files_after_the_apply(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""), write("y.txt", ""))
    runs, tree = plans.parts.check_runs, plans.parts.result.tree(plan, plans.sandbox(plan))
    runs.record(reviewed(plan, tree, "builtin/reviewer"))
    assert said(plans, plan) == [(REVIEW, "passed")]
    plans.parts.sandbox_edits.rollback(plan, 2)
    assert said(plans, plan) == [(REVIEW, "passed, out of date")]
    assert plans.apply(plan).state is PlanState.APPLIED
    assert said(plans, plan) == [(REVIEW, "passed, out of date")]
    runs.record(reviewed(plan, "", "builtin/reviewer"))
    assert said(plans, plan) == [(REVIEW, "passed")], "which files an older version's saw is not known"


def test_a_review_is_not_a_check_with_the_name_of_its_actor(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    strategy = replace(plans.strategies[plan.id], checks=(check("my/reviewer"),))
    held = replace(plan, strategy=strategy.to_json())
    tree = plans.parts.result.tree(plan, plans.sandbox(plan))
    plans.parts.check_runs.record(reviewed(plan, tree, "my/reviewer"))
    with pytest.raises(CheckFailed, match="not run"):
        ensure_checked(plans.parts, held, tree)
    with pytest.raises(CheckFailed, match="did not run"):
        plans.parts.apply.apply(held, CancellationToken())
    assert said(plans, plan) == [(REVIEW, "passed"), ("my/reviewer", "not run")]


def test_on_unknown_files_no_check_has_passed(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    strategy = replace(plans.strategies[plan.id], checks=(check("true"),))
    held = replace(plan, strategy=strategy.to_json())
    run = CheckRun(plan.id, "true", "true", True, CheckVerdict.PASSED, "", "", plan.updated_at)
    plans.parts.check_runs.record(run)
    with pytest.raises(CheckFailed, match="not run"):
        ensure_checked(plans.parts, held, None)
