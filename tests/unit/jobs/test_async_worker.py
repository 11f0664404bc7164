"""The worker, step by step: the fate of a job.

No thread runs here, and time passes when a test says so.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cleveragents.core.errors import (
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    InvalidPayload,
    UnknownJobKind,
)
from cleveragents.jobs.model.job import HANDED_ON, JobState, NewJob
from cleveragents.jobs.ports import HandlerFunction, JobHandler
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.testing.clock import RaiseAt, RecordFaultPoints
from tests.worker_bench import Bench, claim


def test_a_job_is_claimed_run_and_ends_with_its_result(bench: Bench) -> None:
    seen: list[AsyncJob] = []

    def run(job: AsyncJob) -> object:
        seen.append(job)
        return {"answer": [1, 2]}

    worker = bench.worker(run)
    job_id = worker.submit(NewJob("work", {"question": "?"})).id
    claim(worker)
    assert worker.statistics().running == 1
    bench.run_all()
    job = bench.job(job_id)
    assert (job.state, job.result, job.error) == (JobState.SUCCEEDED, {"answer": (1, 2)}, None)
    assert (seen[0].id, seen[0].payload, seen[0].attempt, seen[0].fence) == (job_id, {"question": "?"}, 1, 1)
    assert not seen[0].token.is_cancelled
    statistics = worker.statistics()
    assert (statistics.claimed, statistics.succeeded, statistics.running) == (1, 1, 0)
    # No process was started, so none was searched for.
    assert bench.machine.ended == []


def test_the_processes_of_a_job_end_with_it(bench: Bench) -> None:
    job_id = bench.submit()
    worker = bench.worker(lambda job: job.environment["JOB"])
    claim(worker)
    bench.run_all()
    assert bench.job(job_id).result == f"{job_id}:1"
    assert bench.machine.ended == [f"{job_id}:1"]


def test_refuses_a_job_without_a_handler_and_ignores_other_kinds(bench: Bench) -> None:
    worker = bench.worker()
    with pytest.raises(UnknownJobKind) as refusal:
        worker.submit(NewJob("wrok"))
    assert "work" in str(refusal.value)
    other = bench.store.submit(NewJob("other"), now=bench.clock.now())
    claim(worker)
    assert bench.job(other.id).state is JobState.QUEUED
    worker.run_until_idle(0)


@pytest.mark.parametrize(
    "wrong", [{}, {"isolation": "process"}, {"isolation": "process", "target": "no_function"}]
)
def test_refuses_an_incomplete_handler(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        JobHandler(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"heartbeat_seconds": 7.0}, {"heartbeat_seconds": 0.0}]
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        WorkerOptions(**wrong)


def test_a_failure_is_tried_again_later_and_later_and_then_recorded(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        raise RuntimeError(f"attempt {job.attempt}")

    worker = bench.worker(run)
    job_id = bench.submit(max_attempts=3)
    for delay in (8, 16):
        claim(worker)
        bench.run_all()
        job = bench.job(job_id)
        assert job.state is JobState.QUEUED
        assert timedelta(seconds=delay / 2) < job.not_before - bench.clock.now() <= timedelta(seconds=delay)
        claim(worker)
        assert bench.spawned == [], "not before its time"
        bench.clock.advance(delay)
    claim(worker)
    bench.run_all()
    job = bench.job(job_id)
    assert job.state is JobState.FAILED
    assert job.error == "the work handler failed: RuntimeError: attempt 3 (attempt 3 of 3)"
    statistics = worker.statistics()
    assert (statistics.retried, statistics.failed) == (2, 1)


def test_handing_on_a_job_is_not_a_failure_and_counts_no_attempt(bench: Bench) -> None:
    attempts: list[tuple[int, int]] = []

    def run(job: AsyncJob) -> object:
        attempts.append((job.attempt, job.fence))
        return HANDED_ON if job.fence < 3 else "done"

    worker = bench.worker(run)
    job_id = bench.play(worker)
    assert attempts == [(1, 1), (1, 2), (1, 3)]
    assert bench.job(job_id).result == "done"
    statistics = worker.statistics()
    assert (statistics.claimed, statistics.handed_on, statistics.retried) == (3, 2, 0)


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda job: object(), "object is not a JSON value"),
        (lambda job: float("nan"), "not a JSON number"),
        (lambda job: (_ for _ in ()).throw(InvalidPayload("x", "made up")), "made up"),
    ],
)
def test_does_not_retry_a_permanent_failure(bench: Bench, act: HandlerFunction, error: str) -> None:
    job_id = bench.submit()
    claim(worker := bench.worker(act))
    bench.run_all()
    job = bench.job(job_id)
    assert job.state is JobState.FAILED
    assert error in (job.error or "")
    assert worker.statistics().failed == 1


@pytest.mark.parametrize("error", [Cancelled("something else"), SystemExit(0), asyncio.CancelledError()])
def test_a_handler_that_stops_without_a_request_has_failed(bench: Bench, error: BaseException) -> None:
    def run(job: AsyncJob) -> object:
        raise error

    job_id = bench.play(bench.worker(run))
    assert bench.job(job_id).state is JobState.QUEUED


@pytest.mark.parametrize(
    "point", ["job.claim.after", "job.run.before", "job.run.after", "job.finish.before", "job.finish.after"]
)
def test_a_failing_attempt_releases_its_slot_and_ends_its_job(bench: Bench, point: str) -> None:
    runs: list[int] = []
    worker = bench.worker(
        lambda job: runs.append(job.attempt), faults=RaiseAt(point, RuntimeError), concurrency=1
    )
    job_id = bench.submit()
    if point == "job.claim.after":
        with pytest.raises(RuntimeError):
            claim(worker)
    else:
        claim(worker)
    bench.run_all()
    assert worker.statistics().running == 0
    for _ in range(2):
        worker._recovery.sweep()
        bench.clock.advance(15)
    worker._recovery.sweep()
    claim(worker)
    bench.run_all()
    assert bench.job(job_id).state is JobState.SUCCEEDED
    assert runs == ([1, 2] if point in ("job.run.after", "job.finish.before") else runs[-1:])
    assert worker.statistics().running == 0


def test_every_durable_step_announces_itself(bench: Bench) -> None:
    points = RecordFaultPoints()

    def run(job: AsyncJob) -> object:
        bench.clock.advance(5)
        worker._keeper.beat()
        return None

    bench.submit()
    claim(bench.worker(name="mortal"))
    bench.spawned.clear()
    bench.machine.dead.add("mortal")
    worker = bench.worker(run, faults=points)
    worker._recovery.sweep()
    claim(worker)
    bench.run_all()
    assert points.reached == [
        "job.reclaim.before",
        "job.reclaim.after",
        "job.claim.after",
        "job.claim.after",
        "job.run.before",
        "job.heartbeat.before",
        "job.heartbeat.after",
        "job.run.after",
        "job.finish.before",
        "job.finish.after",
    ]


def test_waiting_for_idleness_has_an_end(bench: Bench) -> None:
    worker = bench.worker()
    bench.submit()
    with pytest.raises(DeadlineExceeded):
        worker.run_until_idle(0)
