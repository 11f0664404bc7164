"""What a person decides about parts: those that are merged, those that are left out, those told to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.cancellation import is_mere_stop, said_by_somebody
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
ASKS = replace(command("echo > asked.txt"), granted=False)


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[TreeBench]:
    with tree_bench(tmp_path) as bench:
        yield bench


def work_once(trees: TreeBench, plan: Plan) -> Plan:
    """One job of the tree."""
    job = trees.owned_job(plan)
    trees.handler()(job)
    now = trees.container.clock.now()
    trees.container.jobs.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=now)
    return trees.now(plan)


def test_what_is_merged_is_decided_about_with_the_whole(trees: TreeBench) -> None:
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
    # The plan takes the merge back: then its part can be decided about again, and is not merged after that.
    merge = next(call for call in trees.calls(plan) if call.tool == "merge")
    sandbox_edits.rollback(plan, merge.number)
    lifecycle.reject(child)
    plan = trees.resume(plan)
    assert plan.phase_state == ERRORED
    assert f"(one) was rejected [{child.id}]" in str(plan.error)


def test_a_part_that_is_not_merged_yet_can_be_rejected_and_is_not_merged_then(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("one", write("x.txt", ""))))
    work_once(trees, plan)
    child = trees.child(plan, "one")
    assert child.phase_state == COMPLETE
    trees.parts.lifecycle.reject(child)
    plan = trees.work(plan)
    assert plan.phase_state == ERRORED
    assert "(one) was rejected" in str(plan.error)
    assert trees.merges(plan) == []


def test_a_part_that_is_rejected_when_it_is_about_to_be_merged_is_not(trees: TreeBench) -> None:
    class Rejects:
        """Faults that are a person."""

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


def test_a_part_is_not_decided_about_while_it_is_merged(trees: TreeBench) -> None:
    plan = trees.worked(part("one", write("x.txt", "")))
    child = trees.child(plan, "one")
    merge = next(call for call in trees.calls(plan) if call.tool == "merge")
    trees.parts.sandbox_edits.rollback(plan, merge.number)
    held = ExitStack()
    with trees.parts.sandbox_edits.unmerged(child), held, pytest.raises(SandboxBusy):
        held.enter_context(trees.sandbox(plan).writing(timeout_seconds=0.0))  # as whoever merges does


def test_only_what_the_plan_had_named_is_left_out(trees: TreeBench) -> None:
    plan = trees.worked(part("bad", FAILS), part("good", write("good.txt", "")), fail_fast=True)
    assert plan.phase_state == ERRORED
    bad = trees.cancel(trees.child(plan, "bad"))
    plan = trees.resume(plan)
    assert plan.phase_state == ERRORED  # it had not said that it would go on without it
    assert f"(bad) was cancelled [{bad.id}]" in str(plan.error)
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert "left out: bad (cancelled)" in trees.said


def test_what_needs_what_is_left_out_is_named_too(trees: TreeBench) -> None:
    plan = trees.worked(
        part("one", FAILS), part("two", write("two.txt", "")), part("three", write("3.txt", ""), needs=[1])
    )
    trees.cancel(trees.child(plan, "one"))
    plan = trees.resume(trees.resume(plan))
    assert plan.phase_state == COMPLETE, plan.error
    assert "left out: one (cancelled), three (needs one)" in trees.said
    assert trees.parts.sub_plans.left_out_of(plan) == {1: "cancelled", 3: "needs one"}


def test_what_is_cancelled_far_below_is_named_before_it_is_left_out(trees: TreeBench) -> None:
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


def test_nobodys_reason_is_taken_for_a_stop(trees: TreeBench) -> None:
    assert ended_by(STOPPED)[0] is PlanState.ERRORED
    for reason in (STOPPED, "another part of the same plan failed"):
        plan = trees.worked(part("asks", ASKS, profile="manual"))
        child = trees.child(plan, "asks")
        assert trees.cancel(plan, reason).state is PlanState.CANCELLED
        assert trees.now(child).state is PlanState.CANCELLED
    assert not is_mere_stop(said_by_somebody(STOPPED))
    assert said_by_somebody("wrong branch") == "wrong branch"


def test_a_cancel_wins_over_a_stop_that_is_under_way(trees: TreeBench) -> None:
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
    """A store of jobs; right after it told why a job is to end, something else happens."""

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


def test_a_cancel_that_comes_when_the_stop_was_read_already_wins_too(trees: TreeBench) -> None:
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


def test_a_failure_is_told_while_another_part_asks(trees: TreeBench) -> None:
    inner = part("inner", parts=[part("asks", ASKS, profile="manual"), part("worse", FAILS)])
    plan = trees.worked(inner, part("bad", FAILS))
    assert plan.state is PlanState.WAITING
    assert isinstance(plan.waiting_for, Mapping)
    told = str(plan.waiting_for["what"])
    assert "2 failed: worse (step 'command' ended with exit code 4), bad (step" in told
