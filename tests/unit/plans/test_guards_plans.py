"""Refusals for interrupted applies and for answers to other requests."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, select

from cleveragents.apply import commit as commit_module
from cleveragents.apply.applier import TreeApplier
from cleveragents.apply.journal import JournalEntry
from cleveragents.apply.ports import CommitRequest
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import ApplyBusy, PlanError
from cleveragents.core.identifiers import UlidSource
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.storage.tables import applies
from tests.plan_bench import PlanBench, command, write

UNDER_WAY = (Phase.APPLY, PlanState.PROCESSING)


def left_half_applied(plans: PlanBench, commit: CommitRequest | None = None) -> Plan:
    """All its files are moved, and the journal entry is still open."""

    def dies(connection: Connection, entry: JournalEntry, done: bool) -> None:
        raise RuntimeError("dies")

    plan = plans.done(write("x.txt", "1\n"))
    dying = TreeApplier(plans.container.database, UlidSource(), conclusion=dies)
    with pytest.raises(RuntimeError, match="dies"):
        replace(plans.parts.apply, applier=dying).apply(plan, CancellationToken(), commit=commit)
    assert plans.parts.applier.undecided() == {plan.id}
    return plans.now(plan)


def test_leaves_an_almost_finished_apply_to_its_journal(plans: PlanBench) -> None:
    plan = left_half_applied(plans)
    assert plan.phase_state == UNDER_WAY, "that it failed would be a lie: its files are there"
    plans.parts.apply.settle()
    assert plans.now(plan).phase_state == (Phase.APPLY, PlanState.APPLIED)
    assert plans.text("x.txt") == "1\n"


def test_settle_claims_no_rollback_of_unreachable_files(plans: PlanBench) -> None:
    plan = left_half_applied(plans)
    away = plans.repository.with_name("away")
    plans.repository.rename(away)
    plans.parts.apply.settle()
    assert plans.now(plan).phase_state == UNDER_WAY
    away.rename(plans.repository)
    plans.parts.apply.settle()
    assert plans.now(plan).phase_state == (Phase.APPLY, PlanState.APPLIED)


def test_refuses_to_delete_a_plan_with_an_unfinished_apply(plans: PlanBench) -> None:
    plan = left_half_applied(plans)
    with pytest.raises(PlanError, match="was interrupted"):
        plans.parts.plans.delete(plan, now=SystemClock().now())
    assert (plans.now(plan), plans.parts.applier.undecided()) == (plan, {plan.id})
    plans.parts.apply.settle()
    assert plans.text("x.txt") == "1\n"


def test_does_not_abandon_an_apply_whose_git_still_runs(
    plans: PlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "_STRAGGLER_PATIENCE_SECONDS", 0.05)
    plan = left_half_applied(plans, CommitRequest("words"))
    with plans.container.database.read() as connection:
        apply_id = connection.execute(select(applies.c.id).where(applies.c.plan_id == plan.id)).scalar_one()
    # A process that looks like that git and lives until its stdin is closed.
    words = ["-c", "import sys; sys.stdin.read()", "update-ref", "-m", f"cleveragents: apply {apply_id}"]
    with subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE) as straggler:
        try:
            with pytest.raises(ApplyBusy):
                plans.parts.apply.give_up(plan)
        finally:
            straggler.communicate(timeout=60)
    assert plans.parts.applier.undecided() == {plan.id}
    assert plans.parts.apply.give_up(plan).state is PlanState.ERRORED
    assert plans.parts.applier.undecided() == frozenset()


@pytest.mark.parametrize("granted", [True, False])
def test_refuses_an_answer_to_another_call(plans: PlanBench, granted: bool) -> None:
    plan = plans.done(command("echo 1", granted=True), command("echo 2"), profile="manual")
    for number in (1, 3):
        with pytest.raises(PlanError, match=f"call {number} is not pending; call 2 is"):
            plans.parts.lifecycle.answer(plan, granted, number)
    assert plans.now(plan) == plan
    asking = plans.parts.lifecycle.asking(plan)
    assert asking is not None
    assert asking.approval is None
    assert plans.parts.lifecycle.answer(plan, granted, 2).state is PlanState.QUEUED


def test_an_edit_that_breaks_an_invariant_fails_the_plan(plans: PlanBench) -> None:
    plan = plans.done(command("test -e ready.log"), invariants=("never touch folder/",))
    root = plans.sandbox(plan).root
    (root / "ready.log").touch()
    (root / "folder/c.txt").write_text("by hand\n")
    plans.parts.sandbox_edits.reread(plan)
    plan = plans.resume(plan)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.ERRORED)
    assert "folder/c.txt was changed, which an invariant forbids" in str(plan.error)
