"""The worker, step by step: a cancelled job ends with the right outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from structlog.testing import capture_logs

from cleveragents.core.errors import (
    DatabaseFailed,
    DatabaseUnreachable,
    JobAlreadyEnded,
    UnknownJob,
)
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.worker.async_worker import AsyncJob
from tests.worker_bench import Bench, Moody, claim


def test_a_second_cancel_of_a_job_raises_already_ended(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "no longer wanted")
        job.token.raise_if_cancelled()
        return "too far"

    worker = bench.worker(run)
    job_id = bench.play(worker)
    job = bench.job(job_id)
    assert (job.state, job.result, job.error) == (JobState.CANCELLED, None, "cancelled (no longer wanted)")
    with pytest.raises(JobAlreadyEnded):
        worker.cancel(job_id)
    assert bench.job(job_id) == job


def test_a_queued_job_is_cancelled_without_running(bench: Bench) -> None:
    worker = bench.worker()
    job_id = bench.submit()
    assert worker.cancel(job_id).state is JobState.CANCELLED
    claim(worker)
    assert bench.spawned == []


@pytest.mark.parametrize("learns", ["at a heartbeat", "between heartbeats"])
def test_a_cancel_by_another_process_reaches_the_attempt(bench: Bench, learns: str) -> None:
    def run(job: AsyncJob) -> object:
        bench.store.request_cancel(job.id, "from elsewhere", now=bench.clock.now())
        bench.clock.advance(5 if learns == "at a heartbeat" else 1)
        worker._keeper.beat()
        job.token.raise_if_cancelled()
        return None

    worker = bench.worker(run)
    job_id = bench.play(worker)
    job = bench.job(job_id)
    assert (job.state, job.beat) == (JobState.CANCELLED, 1 if learns == "at a heartbeat" else 0)


def test_a_result_after_the_owner_saw_the_cancel_is_kept_but_the_job_is_cancelled(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        return "done"

    worker = bench.worker(run)
    job_id = bench.play(worker)
    job = bench.job(job_id)
    assert (job.state, job.result) == (JobState.CANCELLED, "done")
    assert job.error == "cancelled (stop), although the handler returned: the result is kept"


def test_a_result_before_the_owner_saw_the_cancel_stands(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        bench.store.request_cancel(job.id, "too late", now=bench.clock.now())
        return "done"

    job_id = bench.play(bench.worker(run))
    job = bench.job(job_id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, "done")


def test_reports_an_error_raised_after_a_cancel(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        raise OSError("broken pipe")

    worker = bench.worker(run)
    job_id = bench.play(worker)
    assert bench.job(job_id).error == "cancelled (stop); OSError: broken pipe"
    assert bench.job(job_id).state is JobState.CANCELLED


def test_a_thread_that_ignores_its_cancel_is_abandoned_and_reported(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        assert job.environment
        worker.cancel(job.id, "stop")
        worker._keeper.watch(worker._escalate)
        assert bench.spawned == [], "it has half of the grace to stop by itself"
        bench.clock.advance(2)
        worker._keeper.watch(worker._escalate)
        worker._keeper.watch(worker._escalate)
        [end] = bench.spawned
        bench.spawned.clear()
        bench.clock.advance(2)
        end()
        during.append((bench.job(job.id), worker.statistics(), list(bench.machine.ended)))
        return "ignored"

    during: list[tuple[Job, object, list[str]]] = []
    worker = bench.worker(run)
    job_id = bench.submit()
    claim(worker)
    with capture_logs() as said:
        bench.run_all()
    assert "job.attempt_broke" not in [line["event"] for line in said]
    job, statistics, ended = during[0]
    assert job.state is JobState.CANCELLED
    assert job.error == "cancelled (stop); the handler's thread did not stop and was abandoned"
    assert (statistics.stragglers, statistics.running, statistics.cancelled) == (1, 0, 1)
    assert ended == [f"{job_id}:1"]
    # A thread that returns late changes nothing.
    assert bench.job(job_id) == job
    assert worker.statistics().stragglers == 0


def test_does_not_abandon_an_attempt_that_is_being_reported(bench: Bench) -> None:
    class GivesUp:
        """Escalates just when the attempt's own report is on its way to the store."""

        def reach(self, name: str) -> None:
            if name == "job.finish.before":
                [attempt] = worker._table.running()
                bench.clock.advance(4)
                worker._runner.escalate(attempt)

    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        job.token.raise_if_cancelled()
        return None

    worker = bench.worker(run, faults=GivesUp())
    job_id = bench.play(worker)
    assert bench.job(job_id).error == "cancelled (stop)"
    assert worker.statistics().cancelled == 1
    assert [event.event_type.value for event in bench.store.events()].count("job.cancelled") == 1


def test_too_many_stragglers_stop_the_claims(bench: Bench) -> None:
    worker = bench.worker(straggler_limit=1)
    bench.submit()
    claim(worker)
    [attempt] = worker._table.running()
    worker._table.strand(attempt)
    bench.submit()
    claim(worker)
    assert worker.statistics().claimed == 1
    worker._table.leave(attempt)
    claim(worker)
    assert worker.statistics().claimed == 2


@pytest.mark.parametrize(
    ("trouble", "state"),
    [
        ([DatabaseFailed("the database", "disk I/O error")], JobState.CANCELLED),
        ([DatabaseUnreachable("the database", "it hung up")], JobState.CANCELLED),
        ([UnknownJob("deleted")], JobState.RUNNING),
        ([RuntimeError("a bug")], JobState.RUNNING),
    ],
)
def test_a_cancelled_attempt_ends_even_if_its_report_fails(trouble: list[Exception], state: JobState) -> None:
    store = Moody()
    bench = Bench(store=store)

    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        bench.clock.advance(4)
        worker._keeper.watch(worker._escalate)
        store.trouble = list(trouble)
        bench.spawned.pop()()
        during.append((bench.job(job.id).state, worker.statistics().running, worker.statistics().stragglers))
        return "ignored"

    during: list[object] = []
    worker = bench.worker(run)
    bench.play(worker)
    assert during == [(state, 0, 1)]


def test_a_cancelled_attempt_ends_even_if_its_processes_cannot_be_killed(bench: Bench) -> None:
    def broken(marker: str, *, grace_seconds: float) -> Sequence[int]:
        raise PermissionError("not ours to end")

    def run(job: AsyncJob) -> object:
        assert job.environment
        worker.cancel(job.id, "stop")
        bench.clock.advance(4)
        worker._keeper.watch(worker._escalate)
        with capture_logs() as said:
            bench.spawned.pop()()
        during.append((bench.job(job.id).state, worker.statistics().running))
        lines.extend(line["event"] for line in said)
        return "ignored"

    during: list[object] = []
    lines: list[str] = []
    bench.machine.end = broken
    worker = bench.worker(run)
    bench.play(worker)
    assert during == [(JobState.CANCELLED, 0)]
    assert "job.processes_left" in lines


def test_abandons_later_an_attempt_if_no_thread_can_start(bench: Bench) -> None:
    def no_thread(name: str, work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    worker = bench.worker()
    job_id = bench.submit()
    claim(worker)
    bench.spawned.clear()
    worker.cancel(job_id, "stop")
    bench.clock.advance(4)
    spawn, worker._spawn = worker._spawn, no_thread
    worker._keeper.watch(worker._escalate)
    worker._spawn = spawn
    worker._keeper.watch(worker._escalate)
    bench.run_all()
    assert bench.job(job_id).state is JobState.CANCELLED


def test_recovery_cancels_a_job_whose_cancel_was_not_reported_despite_its_straggler() -> None:
    """This worker may do it itself: a cancelled job has no second attempt to run beside the first."""
    store = Moody()
    bench = Bench(store=store)

    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        bench.clock.advance(12)
        worker._keeper.watch(worker._escalate)
        bench.spawned.pop()()
        assert bench.job(job.id).state is JobState.RUNNING
        worker._recovery.sweep()
        bench.clock.advance(15)
        worker._recovery.sweep()
        during.append((bench.job(job.id).state, worker.statistics().stragglers))
        return "ignored"

    during: list[object] = []
    worker = bench.worker(run)
    bench.play(worker)
    assert during == [(JobState.CANCELLED, 1)]
