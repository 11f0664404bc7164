"""The worker, step by step: a shut-down lets jobs end, or gives them back."""

from __future__ import annotations

import threading

import pytest

from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.worker.async_worker import AsyncJob
from tests.worker_bench import Bench, claim


def test_a_drained_worker_lets_its_jobs_end_and_takes_no_more(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        started.set()
        return go_on.wait(60)

    started, go_on = threading.Event(), threading.Event()
    drained: list[bool] = []
    worker = bench.worker(run)
    first = bench.submit()
    claim(worker)
    running = threading.Thread(target=bench.run_all)
    running.start()
    assert started.wait(60)
    draining = threading.Thread(target=lambda: drained.append(worker.drain(60)))
    draining.start()
    go_on.set()
    running.join()
    draining.join()
    assert drained == [True]
    assert bench.job(first).state is JobState.SUCCEEDED
    second = bench.submit()
    claim(worker)
    assert bench.job(second).state is JobState.QUEUED


@pytest.mark.parametrize(
    ("max_attempts", "cancel", "state"),
    [(3, False, JobState.QUEUED), (1, False, JobState.FAILED), (3, True, JobState.CANCELLED)],
)
def test_a_job_stopped_by_a_drain_is_given_back(
    bench: Bench, max_attempts: int, cancel: bool, state: JobState
) -> None:
    def run(job: AsyncJob) -> object:
        worker._table.stop_accepting()
        for attempt in worker._table.abandon():
            worker._give_back(attempt)
        if cancel:
            bench.store.request_cancel(job.id, "and cancelled", now=bench.clock.now())
        job.token.raise_if_cancelled()
        return None

    worker = bench.worker(run)
    job_id = bench.play(worker, max_attempts=max_attempts)
    job = bench.job(job_id)
    assert (job.state, job.error) == (state, "given back: the worker shuts down")


def test_a_cancel_outranks_a_drain_and_a_lost_lease_outranks_both(bench: Bench) -> None:
    worker = bench.worker()
    bench.submit()
    claim(worker)
    [attempt] = worker._table.running()
    worker._give_back(attempt)
    worker.cancel(attempt.job.id, "really")
    worker._give_back(attempt)
    assert attempt.stopped is not None
    assert attempt.stopped.reason == "really"
    bench.clock.advance(20)
    worker._keeper.watch(worker._escalate)
    worker.cancel(attempt.job.id, "again")
    assert attempt.stopped.cause.name == "LEASE_LOST"


def test_a_job_is_not_given_back_while_its_thread_still_runs(bench: Bench) -> None:
    """Given back, it would run twice in parallel: here, where nothing stops it, and where it is claimed."""

    def run(job: AsyncJob) -> object:
        [attempt] = worker._table.abandon()
        worker._give_back(attempt)
        bench.clock.advance(4)
        worker._keeper.watch(worker._escalate)
        bench.spawned.pop()()
        during.append(bench.job(job.id).state)
        return None

    during: list[JobState] = []
    worker = bench.worker(run)
    bench.play(worker)
    assert during == [JobState.RUNNING]
