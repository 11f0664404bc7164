"""Trees of plans: sub-plans run by their dependencies and are merged into one result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from sqlalchemy import Engine, event

from cleveragents.cli.run.foreground import run_until_rest
from cleveragents.core.errors import PlanError, SandboxMissing, StalePlan, UnknownPlan, UnknownTool
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.policy import Capability
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.jobs.names import key_of_job, kind_of_plan
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Task
from cleveragents.plans.output_recorder import PlanWatch
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.sub_plans.spawn import SpawnTools
from cleveragents.tools.registry import ToolRegistry
from tests.plan_bench import command, edit, write
from tests.tree_bench import TreeBench, part, tree_bench

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
ERRORED = (Phase.EXECUTE, PlanState.ERRORED)
WAITING = (Phase.EXECUTE, PlanState.WAITING)
FAILS = command("exit 3")


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


def waited_for(plan: Plan) -> Any:
    assert isinstance(plan.waiting_for, Mapping)
    return plan.waiting_for


def test_merges_sub_plans_into_the_parent(trees: TreeBench) -> None:
    plan = trees.worked(part("x", write("x.txt", "x\n")), part("y", edit("a.txt", "one", "ONE")))
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.file(plan, "x.txt") == "x\n"
    assert trees.file(plan, "a.txt").startswith("ONE\n")
    assert trees.merges(plan) == ["merge-1", "merge-2"]
    assert [line for line in trees.said if "sub-plan" in line] == [
        "sub-plan 1 of 2 starts: x",
        "sub-plan 2 of 2 starts: y",
    ]
    assert "merged: x (1 file)" in trees.said
    trees.ensure_consistent(plan)
    trees.apply(plan)
    assert trees.text("x.txt") == "x\n"


def test_a_sub_plan_starts_from_its_merged_dependencies(trees: TreeBench) -> None:
    plan = trees.worked(
        part("first", write("x.txt", "1\n")),
        part("other", write("y.txt", "1\n")),
        part("then", edit("x.txt", "1", "2"), command("test -e y.txt"), needs=[1, 2]),
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.file(plan, "x.txt") == "2\n"


def test_sub_plans_may_have_sub_plans(trees: TreeBench) -> None:
    inner = part("inner", parts=[part("deep", write("deep.txt", "1\n")), part("wide", write("wide.txt", ""))])
    plan = trees.worked(inner, part("beside", write("beside.txt", "")))
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.file(plan, "deep.txt") == "1\n"
    deep = trees.child(trees.child(plan, "inner"), "deep")
    assert (deep.depth, deep.root) == (2, plan.id)


def test_names_a_failed_sub_plan_and_skips_its_dependents(trees: TreeBench, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    plan = trees.worked(
        part("breaks", write("half.txt", ""), command(f"test -e {mended}")),
        part("sound", write("sound.txt", "")),
        part("later", write("later.txt", ""), needs=[1]),
    )
    assert plan.phase_state == ERRORED
    broken = trees.child(plan, "breaks")
    assert f"sub-plan 1 of 3 (breaks) failed: step 'command' ended with exit code 1 [{broken.id}]" in str(
        plan.error
    )
    assert "not run as a result: sub-plan 3 of 3 (later)" in str(plan.error)
    assert "agents" not in str(plan.error)
    assert trees.merges(plan) == ["merge-2"]
    with pytest.raises(StopIteration):
        trees.child(plan, "later")

    mended.touch()
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.merges(plan) == ["merge-2", "merge-1", "merge-3"]
    trees.ensure_consistent(plan)


def test_fail_fast_stops_the_others_until_the_failure_is_fixed(trees: TreeBench, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    asks = part("asks", changed(command("echo > made.txt"), granted=False), profile="manual")
    plan = trees.worked(
        part("inner", parts=[asks]),
        part("breaks", command(f"test -e {mended}")),
        part("later", write("later.txt", ""), needs=[1]),
        fail_fast=True,
    )
    assert plan.phase_state == ERRORED
    inner = trees.child(plan, "inner")
    below = trees.child(inner, "asks")
    told = "stopped, because another sub-plan failed"
    assert [(one.state, one.error) for one in (inner, below)] == [(PlanState.ERRORED, told)] * 2
    assert "sub-plan 1 of 3 stopped: another sub-plan failed" in trees.said
    assert "(breaks) failed" in str(plan.error)
    mended.touch()
    plan = trees.resume(plan)
    trees.parts.lifecycle.answer(trees.now(below), True)
    plan = trees.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.merges(plan) == ["merge-2", "merge-1", "merge-3"]


def test_fail_fast_stops_a_running_sub_plan_that_can_resume(trees: TreeBench, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    plan = trees.tree(
        part("works", write("x.txt", ""), command(f"echo y > y.txt; test -e {mended} || sleep 600")),
        part("breaks", command(f"test -e {mended}")),
        fail_fast=True,
    )
    worker = trees.container.worker(
        {kind_of_plan(plan.id): JobHandler(trees.handler())}, name="test", concurrency=2
    )
    worker.start()
    worker.run_until_idle(120)
    worker.close()
    plan, works = trees.now(plan), trees.child(plan, "works")
    assert (plan.phase_state, works.phase_state) == (ERRORED, ERRORED)
    mended.touch()
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.file(plan, "y.txt") == "y\n"
    trees.ensure_consistent(plan)


def test_a_sub_plan_that_completes_before_the_stop_stays_complete(trees: TreeBench) -> None:
    plan = trees.tree(
        part("works", write("x.txt", ""), write("y.txt", "")), part("breaks", FAILS), fail_fast=True
    )
    work_once(trees, plan)

    def meanwhile(what: str) -> None:
        if what.startswith("step 2 of 2"):
            trees.work(plan)  # the other sub-plan fails, and the parent stops this one

    trees.adapt = lambda run: replace(run, watch=lambda one: PlanWatch(meanwhile))
    plan = trees.work(plan)
    assert plan.phase_state == ERRORED
    assert trees.child(plan, "works").phase_state == COMPLETE
    assert trees.merges(plan) == ["merge-1"]


def test_a_cancelled_sub_plan_is_named_then_left_out(trees: TreeBench) -> None:
    """strands-agents/harness-sdk#4419: a cancelled child was reported as completed."""
    plan = work_once(
        trees, trees.tree(part("x", write("x.txt", "")), part("y", write("y.txt", ""), needs=[1]))
    )
    assert plan.phase_state == WAITING
    child = trees.cancel(trees.child(plan, "x"))
    assert child.state is PlanState.CANCELLED
    plan = trees.work(plan)
    assert plan.phase_state == ERRORED
    assert f"sub-plan 1 of 2 (x) was cancelled [{child.id}]" in str(plan.error)
    assert "(x) was cancelled" in str(plan.error)
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.merges(plan) == []
    assert [call.arguments["plan"] for call in trees.calls(plan) if call.tool == "leave_out"] == [child.id]


def test_cancelling_the_root_cancels_unfinished_sub_plans(trees: TreeBench) -> None:
    plan = trees.tree(
        part("inner", parts=[part("deep", write("deep.txt", ""))]),
        part("y", write("y.txt", "")),
    )
    work_once(trees, plan)
    work_once(trees, plan)  # the inner one spawns too
    inner = trees.child(plan, "inner")
    below = [inner, trees.child(plan, "y"), trees.child(inner, "deep")]
    assert trees.cancel(plan).state is PlanState.CANCELLED
    assert {trees.now(one).state for one in below} == {PlanState.CANCELLED}
    assert trees.work(plan).state is PlanState.CANCELLED
    assert trees.calls(below[2]) == []


def test_a_cancel_ends_a_tree_with_a_running_sub_plan(trees: TreeBench) -> None:
    cancelled: list[Plan] = []

    def meanwhile(what: str) -> None:
        if what.startswith("step 1 of 2"):
            cancelled.append(trees.cancel(plan, "enough"))

    trees.adapt = lambda run: replace(run, watch=lambda one: PlanWatch(meanwhile))
    plan = trees.tree(part("x", write("x.txt", ""), write("y.txt", "")), part("z", write("z.txt", "")))
    assert trees.work(plan).state is PlanState.CANCELLED
    assert [child.error for child in trees.parts.plans.children(plan.id)] == ["cancelled: enough"] * 2


def test_a_sub_plan_of_a_cancelled_parent_does_not_start(trees: TreeBench) -> None:
    """The cancelling process may have been killed before it reached the sub-plans."""
    plan = work_once(trees, trees.tree(part("x", write("x.txt", ""))))
    trees.parts.plans.move(plan, (plan.phase, PlanState.CANCELLED), now=trees.container.clock.now())
    trees.work(plan)
    child = trees.child(plan, "x")
    assert child.state is PlanState.CANCELLED
    assert trees.calls(child) == []


def test_the_parent_reports_pending_requests_of_sub_plans(trees: TreeBench) -> None:
    asks = part("asks", changed(command("echo > made.txt"), granted=False), profile="manual")
    plan = trees.worked(part("inner", parts=[asks]), part("y", write("y.txt", "")))
    assert plan.phase_state == WAITING
    child = trees.child(trees.child(plan, "inner"), "asks")
    waited = waited_for(plan)
    assert waited["for"] == "sub-plans"
    assert "sub-plan 1 of 1 (asks) is waiting: call 1 needs approval for command: run" in waited["what"]
    assert waited["remedy"] == "Approve; Deny"
    assert [ask["plan"] for ask in waited["asks"]] == [child.id]
    trees.parts.lifecycle.answer(child, True)
    plan = trees.work(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.file(plan, "made.txt") == "\n"


def test_a_strategy_that_is_too_large_starts_nothing(tmp_path: Path) -> None:
    with tree_bench(tmp_path, settings={"max_fan_out": 2, "max_depth": 1}) as trees:
        plan = trees.worked(*[part(name, write(name, "")) for name in "abc"])
        assert plan.phase_state == ERRORED
        assert "3 sub-plans exceed the limit of 2 (plan.max_fan_out)" in str(plan.error)
        assert trees.parts.plans.children(plan.id) == []
        plan = trees.worked(part("inner", parts=[part("deep", write("deep.txt", ""))]))
        inner = trees.child(plan, "inner")
        assert "a sub-plan would exceed the depth limit of 1 (plan.max_depth)" in str(inner.error)
        assert trees.parts.plans.children(inner.id) == []


def test_requests_approval_for_planned_sub_plans_once(trees: TreeBench) -> None:
    parts = [part("x", write("x.txt", "")), part("y", write("y.txt", ""))]
    trees.know(part("whole", parts=parts), profile="review")
    plan = trees.work(trees.parts.lifecycle.queue(trees.made("whole")))
    assert plan.phase_state == WAITING
    assert [(call.tool, call.state.value) for call in trees.calls(plan)] == [("spawn", "asked")]
    assert trees.parts.plans.children(plan.id) == []
    plan = trees.answer(plan, True)
    assert plan.phase_state == COMPLETE, plan.error
    assert [call.tool for call in trees.calls(plan)] == ["spawn", "merge", "merge"]


def test_a_policy_can_deny_sub_plans(trees: TreeBench) -> None:
    trees.know(part("whole", parts=[part("x", write("x.txt", ""))]), profile="review", action_profile="ci")
    plan = trees.work(trees.parts.lifecycle.queue(trees.made("whole")))
    assert plan.phase_state == ERRORED
    assert "spawn" in str(plan.error)
    assert trees.parts.plans.children(plan.id) == []


def test_a_conflict_waits_for_a_person(trees: TreeBench) -> None:
    plan = trees.worked(
        part("x", edit("a.txt", "one", "ONE")),
        part("y", edit("a.txt", "one", "Eins")),
        part("after", write("after.txt", ""), needs=[2]),
    )
    assert plan.phase_state == WAITING
    assert waited_for(plan)["for"] == "conflict"
    assert waited_for(plan)["what"] == "sub-plans conflict in a.txt"
    assert "ONE" in trees.file(plan, "a.txt")
    assert "Eins" in trees.file(plan, "a.txt")
    with pytest.raises(PlanError, match="are not resolved"):
        trees.apply(plan)
    assert trees.resume(plan).phase_state == WAITING
    with pytest.raises(StopIteration):
        trees.child(plan, "after")


def test_refuses_to_apply_undo_or_delete_a_sub_plan_alone(trees: TreeBench) -> None:
    plan = trees.worked(part("x", write("x.txt", "")))
    child = trees.child(plan, "x")
    with pytest.raises(PlanError, match=f"this is a sub-plan of {plan.id}, which is applied as a whole"):
        trees.apply(child)
    with pytest.raises(PlanError, match="which is undone as a whole"):
        trees.parts.apply.undo(child)
    with pytest.raises(PlanError, match=f"part of plan {plan.id}"):
        trees.parts.cleanup.delete(child)


def test_deleting_the_root_deletes_its_sub_plans(trees: TreeBench) -> None:
    plan = trees.worked(part("x", write("x.txt", "")), part("breaks", FAILS))
    child = trees.child(plan, "x")
    trees.parts.cleanup.delete(plan)
    with pytest.raises(UnknownPlan):
        trees.now(child)
    with pytest.raises(SandboxMissing):
        trees.sandbox(child)


def test_refuses_to_delete_a_root_with_a_running_sub_plan(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("x", write("x.txt", ""))))
    child = trees.child(plan, "x")
    with pytest.raises(PlanError, match=f"sub-plan {child.id} is running"):
        trees.parts.cleanup.delete(plan)
    assert trees.now(child).state is PlanState.QUEUED


def test_cleanup_removes_sandboxes_of_merged_sub_plans_only(trees: TreeBench) -> None:
    plan = trees.tree(part("x", write("x.txt", "")), part("still", command("true")), part("breaks", FAILS))
    trees.work(plan)
    merged, still, broken = (trees.child(plan, name) for name in ("x", "still", "breaks"))
    merge = next(call for call in trees.calls(plan) if call.step == "merge-2")
    trees.parts.sandbox_edits.rollback(trees.now(plan), merge.number)
    freed = {one.plan_id for one in trees.parts.cleanup.collect(timedelta(0))}
    assert freed == {merged.id}
    assert trees.parts.cleanup.loss_of(trees.now(plan)) == "its changes were never applied"
    assert {trees.sandbox(one).plan_id for one in (still, broken)} == {still.id, broken.id}


def test_merges_again_after_a_rollback_without_the_childs_sandbox(trees: TreeBench, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    plan = trees.worked(
        part("x", write("x.txt", "x\n"), edit("a.txt", "one", "ONE")),
        part("breaks", command(f"test -e {mended}"), needs=[1]),
    )
    first, freed = trees.child(plan, "x"), trees.parts.cleanup.collect(timedelta(0))
    assert [one.plan_id for one in freed] == [first.id]
    # Twice: a merge without the child's sandbox can be repeated too.
    for _ in range(2):
        *_, merge = (call for call in trees.calls(plan) if call.step == "merge-1")
        trees.parts.sandbox_edits.rollback(trees.now(plan), merge.number)
        assert not (trees.sandbox(plan).root / "x.txt").exists()
        plan = trees.resume(plan)
        assert plan.phase_state == ERRORED
        assert trees.file(plan, "x.txt") == "x\n"
    mended.touch()
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert trees.file(plan, "a.txt").startswith("ONE\n")
    with pytest.raises(SandboxMissing):
        trees.sandbox(first)
    trees.ensure_consistent(plan)


@pytest.mark.parametrize("is_committed", [True, False])
def test_merges_into_a_rebuilt_sandbox(trees: TreeBench, tmp_path: Path, is_committed: bool) -> None:
    """Only the sub-plan's sandbox knows its starting files if the user had not committed them."""
    mended = tmp_path / "mended"
    if not is_committed:
        (trees.repository / "a.txt").write_text("not committed\none\ntwo\n")
    plan = trees.worked(part("x", edit("a.txt", "one", "ONE"), command(f"test -e {mended}")))
    assert plan.phase_state == ERRORED
    trees.parts.sandboxes.remove(plan.id)
    (trees.repository / "later.txt").write_text("the user went on\n")
    mended.touch()
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert "ONE\n" in trees.file(plan, "a.txt")
    assert trees.file(plan, "later.txt") == "the user went on\n"
    assert sorted(trees.parts.history.differences(plan.id)) == ["a.txt"]
    trees.ensure_consistent(plan)


def test_cleanup_keeps_the_start_of_resumable_sub_plans(trees: TreeBench) -> None:
    plan = trees.worked(part("breaks", FAILS))
    assert not trees.parts.history.changes(plan.id)
    assert trees.parts.cleanup.collect(timedelta(0)) == []
    trees.cancel(trees.child(plan, "breaks"))
    assert {one.plan_id for one in trees.parts.cleanup.collect(timedelta(0))} == {
        plan.id,
        trees.child(plan, "breaks").id,
    }


def test_deletes_conversations_of_sub_plans_with_their_root(trees: TreeBench) -> None:
    plan = trees.worked(part("x", write("x.txt", "")))
    child, cleanup = trees.child(plan, "x"), trees.parts.cleanup
    later = trees.container.clock.now() + timedelta(days=1)
    assert not cleanup.is_past(child.id, later)
    trees.apply(plan)
    assert cleanup.is_past(child.id, later)


def test_the_loss_of_a_root_includes_its_sub_plans(trees: TreeBench) -> None:
    plan = trees.worked(part("breaks", write("half.txt", ""), FAILS))
    child = trees.child(plan, "breaks")
    loss = f"sub-plan {child.id}: its changes were never applied"
    assert trees.parts.cleanup.loss_of(plan) == loss


def test_a_parent_learns_of_a_sub_plan_whose_worker_died(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("x", write("x.txt", ""))))
    job = trees.owned_job(plan)
    now = trees.container.clock.now()
    failed = AttemptOutcome(JobState.FAILED, error="its worker died, and again")
    trees.container.jobs.finish(job.id, job.fence, failed, now=now)
    plan = trees.parts.lifecycle.reconciled(trees.now(plan))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.QUEUED)
    plan = trees.work(plan)
    assert plan.phase_state == ERRORED
    assert "(x) failed: its worker died, and again" in str(plan.error)
    plan = trees.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error


def test_a_tree_runs_on_after_repeated_crashes(trees: TreeBench) -> None:
    """Their last attempts ended without a report, so no parent knows."""
    deep = part("inner", parts=[part("deep", write("deep.txt", ""))])
    plan, beside = trees.tree(deep), trees.tree(part("beside", write("beside.txt", "")))
    for one in (plan, plan, beside):
        work_once(trees, one)
    child, now = trees.child(beside, "beside"), trees.container.clock.now()
    for state in (PlanState.PROCESSING, PlanState.COMPLETE):  # it was killed between its two phases
        child = trees.parts.plans.move(child, (Phase.STRATEGIZE, state), now=now)
    for one in (plan, beside):
        job = trees.owned_job(one)
        failed = AttemptOutcome(JobState.FAILED, error="its worker died")
        trees.container.jobs.finish(job.id, job.fence, failed, now=now)
    handlers = {kind_of_plan(one.id): JobHandler(trees.handler()) for one in (plan, beside)}
    worker = trees.container.worker(handlers, name="test")
    worker.start()
    run_until_rest(trees.container, [plan, beside], worker)
    for one, name in ((trees.now(plan), "deep"), (trees.now(beside), "beside")):
        assert one.phase_state == ERRORED
        assert f"({name}) failed: its worker died" in str(one.error)


def test_reconciles_many_plans_and_skips_unchanged_ones(trees: TreeBench) -> None:
    def lost(plan: Plan) -> None:
        job = trees.owned_job(plan)
        failed = AttemptOutcome(JobState.FAILED, error="its worker died")
        trees.container.jobs.finish(job.id, job.fence, failed, now=trees.container.clock.now())

    done = trees.worked(part("x", write("x.txt", "")))
    at_work = work_once(trees, trees.tree(part("x", write("x.txt", ""))))
    above = trees.tree(part("inner", parts=[part("deep", write("deep.txt", ""))]))
    queued, alone, unheard = (trees.tree(part(name, write(name, ""))) for name in ("q", "a", "u"))
    for one in (above, above, unheard):
        work_once(trees, one)
    for one in (above, alone):
        lost(one)
    # It came to rest, and its process was killed before it could wake the parent.
    child, now = trees.child(unheard, "u"), trees.container.clock.now()
    trees.parts.plans.move(child, (child.phase, PlanState.ERRORED), now=now)
    everybody = [*trees.parts.plans.list(), *[trees.now(done)] * 50]
    known = [plan for plan in everybody if plan.root in (done.id, at_work.id, queued.id)]
    asked: list[str] = []

    def listen(*facts: Any) -> None:
        if threading.current_thread() is threading.main_thread() and "SELECT" in facts[2]:
            asked.append(facts[2])

    event.listen(Engine, "before_cursor_execute", listen)
    try:
        assert trees.parts.lifecycle.all_reconciled(known) == known
    finally:
        event.remove(Engine, "before_cursor_execute", listen)
    # One read for the unfinished jobs, until there are none, and one for the sub-plans of waiting plans.
    assert len(asked) == 3, asked
    after = {plan.id: plan for plan in trees.parts.lifecycle.all_reconciled(everybody)}
    assert after[alone.id].error == "its worker died"
    assert trees.child(trees.child(above, "inner"), "deep").error == "its worker died"
    assert trees.child(above, "inner").state is PlanState.QUEUED
    assert after[unheard.id].state is PlanState.QUEUED


def test_a_job_claimed_early_moves_its_plan(trees: TreeBench) -> None:
    """Or if its submitter was killed in between."""
    trees.know(part("x", write("x.txt", "")))
    plan = trees.made("x")
    new = NewJob(kind_of_plan(plan.id), {"plan_id": plan.id}, key=key_of_job(plan), at_most=4)
    trees.container.jobs.submit(new, now=trees.container.clock.now())
    assert trees.work(plan).phase_state == COMPLETE
    assert trees.parts.lifecycle.queueing.queue(plan).phase_state == COMPLETE


def test_an_outdated_job_does_nothing(trees: TreeBench) -> None:
    trees.know(part("x", write("x.txt", "")))
    plan = trees.made("x")
    new = NewJob(kind_of_plan(plan.id), {"plan_id": plan.id}, key=key_of_job(plan))
    trees.container.jobs.submit(new, now=trees.container.clock.now())
    trees.parts.lifecycle.cancel(plan, "not wanted")
    assert trees.work(plan).state is PlanState.CANCELLED
    assert [job.state for job in trees.container.jobs.list()] == [JobState.SUCCEEDED]


def test_a_sub_plan_has_no_more_permissions_than_its_parent(trees: TreeBench) -> None:
    limits = {"cost_dollars": None, "tokens": 5, "calls": None, "seconds": None}
    request = {"model": "scripted/x", "limits": limits, "max_parallel": 2, "sub_goals": ["x"]}
    plan = trees.worked(
        part("x", write("x.txt", "")),
        request=request,
        profile="trusted",
        action_profile="ci",
        invariants=("never touch a.txt",),
        directory="folder",
        include=("kept/*",),
    )
    child = trees.child(plan, "x")
    assert child.request["profile"] == "trusted+ci"
    assert child.request["invariants"] == ("never touch a.txt",)
    assert child.request["directory"] == "folder"
    assert child.request["include"] == ("kept/*",)
    assert child.request["model"] == "scripted/x"
    assert child.request["max_parallel"] == 2
    assert "sub_goals" not in child.request
    assert child.action == "builtin/goal"
    assert child.request["arguments"] == {"goal": "x"}
    assert trees.container.jobs.get(str(child.job_id)).at_most == 2


def test_a_sub_plan_cancelled_before_it_is_queued_does_not_start(tmp_path: Path) -> None:
    faults = Deed("sub_plan.spawn.after")
    with tree_bench(tmp_path, faults=faults) as trees:
        plan = trees.tree(part("x", write("x.txt", "")))
        faults.deed = lambda: trees.cancel(trees.child(plan, "x"))
        plan = trees.work(plan)
        assert plan.phase_state == ERRORED
        assert "(x) was cancelled" in str(plan.error)
        assert trees.calls(trees.child(plan, "x")) == []


class Deed:
    """Runs an action once when a fault point is reached."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.deed: Callable[[], object] = lambda: None

    def reach(self, name: str) -> None:
        if name == self._name:
            deed, self.deed = self.deed, lambda: None
            deed()


def test_only_listed_goals_choose_their_action(trees: TreeBench) -> None:
    own = FrozenObject({"action": "tests/own", "arguments": {"n": 1}, "model": None, "profile": "full-auto"})
    plan = trees.tree(part("x", write("x.txt", "")), profile="ci")
    asks = changed(trees.named[plan.goal], tasks=(Task("x", sub_plan=True, request=own),))
    trees.named[plan.goal] = trees.named["whole"] = asks
    thought = trees.parts.lifecycle.queue(trees.made("whole"))
    for one in (plan, thought):
        trees.work(one)
    listed = trees.child(plan, "x")
    assert (listed.action, listed.request["arguments"]) == ("tests/own", {"n": 1})
    assert "model" not in listed.request
    assert listed.request["profile"] == "ci"
    other = trees.child(thought, "x")
    assert (other.action, other.request["arguments"]) == (thought.action, {})
    assert thought.action == "tests/made"


def test_a_task_of_the_parent_needs_an_actor(trees: TreeBench) -> None:
    trees.know(part("whole", parts=[part("x", write("x.txt", ""))]))
    tasks = (*trees.named["whole"].tasks, Task("own"))
    trees.named["whole"] = changed(trees.named["whole"], tasks=tasks)
    plan = trees.work(trees.parts.lifecycle.queue(trees.made("whole")))
    assert plan.phase_state == ERRORED
    assert plan.error == "step 2 (own) needs an actor; the plan has none"


def test_a_discarded_sub_plan_is_not_merged(trees: TreeBench) -> None:
    plan = trees.worked(part("breaks", FAILS))
    child = trees.parts.lifecycle.reject(trees.child(plan, "breaks"))
    plan = trees.resume(plan)
    assert plan.phase_state == ERRORED
    assert f"sub-plan 1 of 1 (breaks) was discarded [{child.id}]" in str(plan.error)
    assert trees.resume(plan).phase_state == COMPLETE
    assert trees.merges(plan) == []


def test_discarding_the_root_ends_its_sub_plans(trees: TreeBench) -> None:
    asks = part("asks", changed(command("true"), granted=False), profile="manual")
    plan = trees.worked(asks, part("breaks", FAILS))
    child = trees.child(plan, "asks")
    now = trees.container.clock.now()
    plan = trees.parts.plans.move(plan, ERRORED, now=now)
    trees.parts.lifecycle.reject(plan)
    assert trees.now(child).state is PlanState.CANCELLED


def test_a_model_named_at_a_resume_reaches_sub_plans(trees: TreeBench) -> None:
    plan = trees.worked(part("breaks", FAILS), part("then", write("x.txt", ""), needs=[1]))
    broken = trees.child(plan, "breaks")
    trees.parts.lifecycle.resume(plan, model="scripted/other")
    job = trees.container.jobs.get(str(trees.now(broken).job_id))
    assert job.payload["model"] == "scripted/other"


def test_a_sub_plan_waiting_for_budget_resumes_with_its_root(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("x", write("x.txt", ""))))
    child = trees.child(plan, "x")
    now = trees.container.clock.now()
    for standing in ((Phase.STRATEGIZE, PlanState.PROCESSING), (Phase.STRATEGIZE, PlanState.WAITING)):
        facts = PlanFacts(waiting_for={"for": "budget", "what": "it is used up", "remedy": "more"})
        child = trees.parts.plans.move(child, standing, facts, now=now)
    trees.parts.lifecycle.wake(child)
    plan = trees.work(plan)
    assert "(x) is waiting: it is used up" in waited_for(plan)["what"]
    assert trees.resume(plan).phase_state == COMPLETE


def test_a_job_continues_from_the_standing_it_names(trees: TreeBench) -> None:
    plan = trees.worked(part("x", write("x.txt", "")))
    there = (Phase.STRATEGIZE, PlanState.QUEUED)
    queueing = trees.parts.lifecycle.queueing
    queued = queueing.queue(plan, wanted=there)
    assert queued.phase_state == there
    assert queueing.taken_up_by(str(queued.job_id), plan) == queued  # it read the plan before the move
    with pytest.raises(StalePlan):
        trees.parts.lifecycle.queue(changed(queued, version=2))


def test_one_of_two_wakes_queues_the_parent(trees: TreeBench) -> None:
    plan = work_once(trees, trees.tree(part("x", write("x.txt", ""))))
    child = trees.child(plan, "x")
    child = trees.parts.plans.move(child, (child.phase, PlanState.ERRORED), now=trees.container.clock.now())
    queueing = trees.parts.lifecycle.queueing
    first = queueing.woken(plan, [child])
    assert first.state is PlanState.QUEUED
    assert queueing.woken(plan, [child]) == first  # it read the parent before the other did
    of_whole = [job for job in trees.container.jobs.list() if job.payload["plan_id"] == plan.id]
    assert [job.state for job in of_whole] == [JobState.SUCCEEDED, JobState.QUEUED]


def test_a_plan_with_a_deleted_job_has_none(trees: TreeBench) -> None:
    plan = trees.tree(part("x", write("x.txt", "")))
    queueing = trees.parts.lifecycle.queueing
    assert queueing.job_of(plan) is not None
    assert queueing.job_of(changed(plan, job_id="nobody")) is None


def test_actors_are_not_offered_the_spawn_tool() -> None:
    tools = SpawnTools()
    assert tools.names() == ("spawn",)
    assert [spec.capability for spec in tools.specs()] == [Capability.SPAWN]
    assert tools.problems() == ()
    files: Any = None
    assert tools.capability_of(tools.get("spawn"), {}, files) is Capability.SPAWN
    with pytest.raises(UnknownTool):
        tools.get("write")
    assert "spawn" not in ToolRegistry().names()
