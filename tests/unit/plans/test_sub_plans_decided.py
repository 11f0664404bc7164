"""Decisions of a person about sub-plans: merged, left out, or stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from cleveragents.core.cancellation import is_resumable_stop, user_reason
from cleveragents.core.errors import Cancelled, PlanError, SandboxBusy
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import STOPPED, ended_by
from tests.plan_bench import command, write
from tests.tree_bench import TreeBench, part, tree_bench

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
ERRORED = (Phase.EXECUTE, PlanState.ERRORED)
FAILS = command("exit 4")
ASKS = changed(command("echo > asked.txt"), granted=False)


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[TreeBench]:
    with tree_bench(tmp_path) as bench:
        yield bench


def work_once(trees: TreeBench, plan: Plan) -> Plan:
    """Run one job of the tree."""
    job = trees.owned_job(plan)
    trees.handler()(job)
    now = trees.container.clock.now()
    trees.container.jobs.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=now)
    return trees.now(plan)


def test_refuses_decisions_about_a_merged_sub_plan(trees: TreeBench) -> None:
    plan = trees.worked(part("one", write("x.txt", "")))
    child = trees.child(plan, "one")
    (trees.sandbox(child).root / "x.txt").write_text("edited\n")
    sandbox_edits, lifecycle = trees.parts.sandbox_edits, trees.parts.lifecycle
    for decide in (
        lambda: lifecycle.reject(child),
        lambda: lifecycle.cancel(child, "not wanted"),
        lambda: lifecycle.resume(child),
        lambda: sandbox_edits.rollback(child, 1, discard=True),
        lambda: sandbox_edits.reread(child),
    ):
        with pytest.raises(PlanError, match=f"merged into plan {plan.id}") as told:
            decide()
        assert ("plan.rollback", plan.id) in [(one.action, one.plan) for one in told.value.remedies]
    assert trees.now(child) == child
    assert len(trees.calls(child)) == 1
    # The plan rolls the merge back: then its sub-plan can be discarded, and is not merged again.
    merge = next(call for call in trees.calls(plan) if call.tool == "merge")
    sandbox_edits.rollback(plan, merge.number)
    lifecycle.reject(child)
    plan = trees.resume(plan)
    assert plan.phase_state == ERRORED
    assert f"(one) was discarded [{child.id}]" in str(plan.error)


def test_a_discarded_unmerged_sub_plan_is_not_merged(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("one", write("x.txt", ""))))
    work_once(trees, plan)
    child = trees.child(plan, "one")
    assert child.phase_state == COMPLETE
    trees.parts.lifecycle.reject(child)
    plan = trees.work(plan)
    assert plan.phase_state == ERRORED
    assert "(one) was discarded" in str(plan.error)
    assert trees.merges(plan) == []


def test_a_sub_plan_discarded_just_before_its_merge_is_not_merged(trees: TreeBench) -> None:
    class Rejects:
        """Fault points that discard the sub-plan, as a person would."""

        def reach(self, name: str) -> None:
            child = trees.child(plan, "one") if name == "sub_plan.merge.before" else None
            if child is not None and child.phase_state == COMPLETE:
                trees.parts.lifecycle.reject(child)

    plan = trees.tree(part("one", write("x.txt", "")), part("two", write("y.txt", "")))
    trees.container.faults = Rejects()
    plan = trees.work(plan)
    assert plan.phase_state == ERRORED
    assert trees.child(plan, "one").state is PlanState.REJECTED
    assert trees.merges(plan) == ["merge-2"]


def test_decisions_wait_for_a_running_merge(trees: TreeBench) -> None:
    plan = trees.worked(part("one", write("x.txt", "")))
    child = trees.child(plan, "one")
    merge = next(call for call in trees.calls(plan) if call.tool == "merge")
    trees.parts.sandbox_edits.rollback(plan, merge.number)
    held = ExitStack()
    with trees.parts.sandbox_edits.unmerged(child), held, pytest.raises(SandboxBusy):
        held.enter_context(trees.sandbox(plan).writing(timeout_seconds=0.0))  # as a merge does


def test_leaves_out_only_named_sub_plans(trees: TreeBench) -> None:
    plan = trees.worked(part("bad", FAILS), part("good", write("good.txt", "")), fail_fast=True)
    assert plan.phase_state == ERRORED
    bad = trees.cancel(trees.child(plan, "bad"))
    plan = trees.resume(plan)
    assert plan.phase_state == ERRORED  # it had not named the sub-plan before
    assert f"(bad) was cancelled [{bad.id}]" in str(plan.error)
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert "left out: bad (cancelled)" in trees.said


def test_names_dependents_of_sub_plans_left_out(trees: TreeBench) -> None:
    plan = trees.worked(
        part("one", FAILS), part("two", write("two.txt", "")), part("three", write("3.txt", ""), needs=[1])
    )
    trees.cancel(trees.child(plan, "one"))
    plan = trees.resume(trees.resume(plan))
    assert plan.phase_state == COMPLETE, plan.error
    assert "left out: one (cancelled), three (needs one)" in trees.said
    assert trees.parts.sub_plans.left_out_of(plan) == {1: "cancelled", 3: "needs one"}


def test_names_a_cancelled_plan_below_before_leaving_it_out(trees: TreeBench) -> None:
    plan = trees.worked(part("inner", parts=[part("deep", FAILS), part("wide", write("wide.txt", ""))]))
    inner = trees.child(plan, "inner")
    deep = trees.cancel(trees.child(inner, "deep"))
    plan = trees.resume(plan)
    assert plan.phase_state == ERRORED
    assert f"(deep) was cancelled [{deep.id}]" in str(plan.error)
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.file(plan, "wide.txt") == ""
    assert "left out: deep (cancelled)" in trees.said


def test_a_users_reason_is_never_taken_for_a_stop(trees: TreeBench) -> None:
    assert ended_by(STOPPED)[0] is PlanState.ERRORED
    for reason in (STOPPED, "another sub-plan failed"):
        plan = trees.worked(part("asks", ASKS, profile="manual"))
        child = trees.child(plan, "asks")
        assert trees.cancel(plan, reason).state is PlanState.CANCELLED
        assert trees.now(child).state is PlanState.CANCELLED
    assert not is_resumable_stop(user_reason(STOPPED))
    assert user_reason("wrong branch") == "wrong branch"


def test_a_cancel_wins_over_a_running_stop(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("one", write("x.txt", ""))))
    child = trees.child(plan, "one")
    job = trees.owned_job(plan)
    assert job.payload["plan_id"] == child.id
    jobs, now = trees.container.jobs, trees.container.clock.now()
    jobs.request_cancel(job.id, STOPPED, now=now)
    assert jobs.request_cancel(job.id, "not wanted", now=now).cancel_reason == "not wanted"
    assert jobs.request_cancel(job.id, STOPPED, now=now).cancel_reason == "not wanted"
    assert jobs.request_cancel(job.id, "later", now=now).cancel_reason == "not wanted"


class TellsThen:
    """A job store that runs an action right after it returned why a job is to end."""

    def __init__(self, store: Any, then: Callable[[], object]) -> None:
        self._store = store
        self._then: list[Callable[[], object]] = [then]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, job_id: str) -> Job:
        found: Job = self._store.get(job_id)
        if found.cancel_reason is not None and self._then:
            self._then.pop()()
        return found


def test_a_cancel_after_the_stop_was_read_wins(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("one", write("x.txt", ""))))
    child = trees.child(plan, "one")
    token = CancellationToken()
    job = trees.owned_job(plan, token)
    assert job.payload["plan_id"] == child.id
    jobs, now = trees.container.jobs, trees.container.clock.now()
    jobs.request_cancel(job.id, STOPPED, now=now)
    token.cancel(STOPPED)
    then = TellsThen(jobs, lambda: jobs.request_cancel(job.id, "not wanted", now=now))
    with pytest.raises(Cancelled):
        replace(trees.handler(), jobs=then)(job)
    child = trees.now(child)
    assert (child.state, child.error) == (PlanState.CANCELLED, "cancelled: not wanted")


def test_reports_a_failure_while_another_sub_plan_waits(trees: TreeBench) -> None:
    inner = part("inner", parts=[part("asks", ASKS, profile="manual"), part("worse", FAILS)])
    plan = trees.worked(inner, part("bad", FAILS))
    assert plan.state is PlanState.WAITING
    assert isinstance(plan.waiting_for, Mapping)
    told = str(plan.waiting_for["what"])
    assert "2 failed: worse (step 'command' ended with exit code 4), bad (step" in told
