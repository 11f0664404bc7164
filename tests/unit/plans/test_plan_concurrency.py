"""Queues of plan jobs: jobs of a server use a shared queue and concurrency limits, all others none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cleveragents.config.settings import Settings
from cleveragents.core.errors import PlanError, QueueFull
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, Lane
from cleveragents.plans.jobs.names import ATTEMPTS, SHARED_ATTEMPTS, ConcurrencyLimits, kind_of_plan, queue_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from tests.tree_bench import TreeBench, part, tree_bench

ELSEWHERE = WorkerIdentity("far", "another machine", 1, 1)


def frozen(**request: object) -> FrozenObject:
    kept = freeze(request)
    assert isinstance(kept, FrozenObject)
    return kept


# ── concurrency limits ──────────────────────────────────────────────────────────────────────────

LANES = ConcurrencyLimits({"shop": 2, "free": None}.get, 7, "scripted/default")


@pytest.mark.parametrize(
    ("request_", "model", "lanes"),
    [
        ({}, None, {}),
        ({"project": "shop", "model": "openai/x"}, None, {}),
        ({"queue": 3}, None, {}),
        ({"queue": "plans"}, None, {"provider:scripted": 7}),
        ({"queue": "plans", "project": "shop"}, None, {"project:shop": 2, "provider:scripted": 7}),
        ({"queue": "plans", "project": "free", "model": "openai/x"}, None, {"provider:openai": 7}),
        ({"queue": "plans", "project": "gone", "model": "a/b"}, "c/d", {"provider:c": 7}),
        ({"queue": "plans", "project": 3, "model": ""}, None, {"provider:scripted": 7}),
    ],
)
def test_the_concurrency_limits_of_a_request(
    request_: dict[str, object], model: str | None, lanes: dict[str, int]
) -> None:
    assert {lane.name: lane.at_most for lane in LANES.of(frozen(**request_), model)} == lanes


def test_without_a_model_there_is_no_provider_limit() -> None:
    assert ConcurrencyLimits().of(frozen(queue="plans")) == ()
    assert LANES.of_project(frozen(queue="plans", project="shop")) == (Lane("project:shop", 2),)
    assert queue_of(frozen()) == ""


# ── plans of a shared queue ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[TreeBench]:
    with tree_bench(tmp_path) as made:
        made.container.projects.add("shop", max_parallel=2, now=made.container.clock.now())
        yield made


def shared(bench: TreeBench, **request: object) -> Plan:
    bench.know(part("a goal"))
    kept = frozen(queue="plans", project="shop", **request)
    return bench.parts.lifecycle.create(PlanDraft("a goal", "tests/steps", str(bench.repository), kept))


def job_of(bench: TreeBench, plan: Plan) -> Job:
    job = bench.parts.lifecycle.queueing.job_of(bench.now(plan))
    assert job is not None
    return job


def claimed_elsewhere(bench: TreeBench) -> Job:
    now = bench.container.clock.now()
    job = bench.container.jobs.claim(ELSEWHERE, ["plan"], now=now, queues=["plans"])
    assert job is not None
    return job


def test_only_plans_of_a_server_are_queued_for_all_workers(
    bench: TreeBench,
) -> None:
    job = job_of(bench, shared(bench, model="openai/x"))
    assert (job.queue, job.max_attempts) == ("plans", SHARED_ATTEMPTS)
    assert job.lanes == (Lane("project:shop", 2), Lane("provider:openai", 64))
    private = job_of(bench, bench.plan())
    assert (private.queue, private.lanes, private.max_attempts) == ("", (), ATTEMPTS)


def test_a_local_run_does_not_claim_plans_of_a_server(bench: TreeBench) -> None:
    plan = shared(bench)
    assert bench.work(plan).state is PlanState.QUEUED
    assert job_of(bench, plan).state is JobState.QUEUED


def test_sub_plans_use_the_queue_of_their_root(bench: TreeBench) -> None:
    request = {"queue": "plans", "project": "shop", "model": "openai/x"}
    whole = bench.tree(part("one", parts=[part("inner")]), request=request)
    run = bench.handler()
    while any(job.state is JobState.QUEUED for job in bench.container.jobs.list()):
        job = claimed_elsewhere(bench)
        run(_view(job))
        bench.container.jobs.finish(
            job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=bench.container.clock.now()
        )
    assert bench.now(whole).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    kept = {(job.queue, job.lanes) for job in bench.container.jobs.list()}
    assert kept == {("plans", (Lane("project:shop", 2), Lane("provider:openai", 64)))}
    assert {str(job.payload["plan_id"]) for job in bench.container.jobs.list()} > {whole.id}


def _view(job: Job) -> object:
    from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken

    return AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, CancellationToken(), {})


def test_a_full_queue_refuses_new_plans_only(bench: TreeBench) -> None:
    kept = msgspec.to_builtins(bench.settings)
    kept["jobs"] = {"queue_bound": 1}
    bench.container.settings = msgspec.convert(kept, Settings)
    plan = shared(bench)
    with pytest.raises(QueueFull):
        shared(bench)
    assert [one.id for one in bench.parts.plans.list()] == [plan.id]
    bench.plan()  # created by a command
    # Answered, resumed or woken: it is already admitted.
    again = bench.parts.lifecycle.resume(bench.now(plan), model="openai/y")
    assert job_of(bench, again).lanes[-1] == Lane("provider:openai", 64)


# ── queued plans, and plans with an owner on another machine ────────────────────────────────────


def test_a_plan_that_waits_in_a_shared_queue_is_cancelled_at_once(bench: TreeBench) -> None:
    plan = shared(bench)
    assert bench.cancel(plan).state is PlanState.CANCELLED
    assert job_of(bench, plan).state is JobState.CANCELLED


def test_resume_leaves_a_queued_plan_in_a_shared_queue(bench: TreeBench) -> None:
    plan = shared(bench)
    assert bench.parts.lifecycle.resume(plan) == plan
    assert bench.parts.lifecycle.all_reconciled([plan]) == [plan]
    assert len(bench.container.jobs.list()) == 1


@pytest.mark.parametrize("decide", ["resume", "reconciled"])
def test_only_the_lease_shows_a_remote_owner_alive(bench: TreeBench, decide: str) -> None:
    plan = shared(bench)
    job = claimed_elsewhere(bench)
    assert bench.parts.lifecycle.has_worker(plan)
    if decide == "resume":
        with pytest.raises(PlanError, match="already running"):
            bench.parts.lifecycle.resume(plan)
    else:
        assert bench.parts.lifecycle.reconciled(plan) == plan
    assert bench.container.jobs.get(job.id) == job


def test_a_cancel_reaches_a_remote_owner_or_its_lease_expires(
    bench: TreeBench,
) -> None:
    plan = shared(bench)
    job = claimed_elsewhere(bench)
    assert bench.cancel(plan).state is PlanState.QUEUED
    assert bench.container.jobs.get(job.id).cancel_reason == "not wanted"
    now = bench.container.clock.now()
    bench.container.jobs.reclaim(job.id, job.fence, 0, error="silent", now=now)
    [after] = bench.parts.lifecycle.all_reconciled([bench.now(plan)])
    assert after.state is PlanState.CANCELLED


def test_a_look_does_not_end_a_shared_job(bench: TreeBench) -> None:
    """The worker may have died between the end of the plan and the apply of its result."""
    plan = shared(bench)
    job = claimed_elsewhere(bench)
    bench.handler()(_view(job))
    plan = bench.now(plan)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    now = bench.container.clock.now()
    bench.container.jobs.reclaim(job.id, job.fence, 0, error="silent", now=now)
    assert bench.parts.lifecycle.reconciled(plan) == plan
    assert bench.container.jobs.get(job.id).state is JobState.QUEUED
    assert job.kind == kind_of_plan(plan.id)
