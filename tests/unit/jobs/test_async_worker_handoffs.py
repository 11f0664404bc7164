"""The worker, step by step: a thread that ends a job continues with the next one."""

from __future__ import annotations

from contextvars import ContextVar

import pytest

from cleveragents.core.errors import OutcomeUnknown, StoreBusy
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import JobHandoff
from cleveragents.jobs.worker.async_worker import AsyncJob
from tests.worker_bench import Bench, Moody, claim


def test_a_thread_runs_jobs_until_none_is_left(bench: Bench) -> None:
    ran: list[str] = []
    worker = bench.worker(lambda job: ran.append(job.id), concurrency=1)
    ids = [bench.submit() for _ in range(3)]
    claim(worker)
    assert len(bench.spawned) == 1
    bench.run_all()
    assert ran == ids
    assert {bench.job(job_id).state for job_id in ids} == {JobState.SUCCEEDED}
    counted = worker.statistics()
    assert (counted.claimed, counted.succeeded, counted.running) == (3, 3, 0)


def test_context_variables_of_one_job_are_not_visible_to_the_next(bench: Bench) -> None:
    """The current changeset and the acting user are context variables: those of another job would be used."""
    left: ContextVar[str] = ContextVar("left", default="nothing")
    found: list[str] = []

    def run(job: AsyncJob) -> object:
        found.append(left.get())
        left.set(job.id)
        return None

    worker = bench.worker(run, concurrency=1)
    bench.submit()
    bench.play(worker)
    assert found == ["nothing", "nothing"]


def test_the_next_attempt_gets_the_slot_and_its_own_token(bench: Bench) -> None:
    """No other attempt gets the slot in between, and an earlier cancel does not affect the new attempt."""
    seen: list[tuple[int, bool, bool]] = []

    def run(job: AsyncJob) -> object:
        bench.submit()
        claim(worker)
        seen.append((worker.statistics().running, bool(bench.spawned), job.token.is_cancelled))
        if len(seen) == 1:
            worker.cancel(job.id, "enough")
        else:
            worker.stop_claiming()
        return None

    worker = bench.worker(run, concurrency=1)
    bench.play(worker)
    assert seen == [(1, False, False)] * 2
    assert [job.state.value for job in bench.store.list()] == ["cancelled", "succeeded", "queued"]


def test_a_draining_worker_claims_no_next_job(bench: Bench) -> None:
    worker = bench.worker(lambda job: worker.stop_claiming(), concurrency=1)
    first, second = bench.submit(), bench.submit()
    claim(worker)
    bench.run_all()
    assert (bench.job(first).state, bench.job(second).state) == (JobState.SUCCEEDED, JobState.QUEUED)
    assert worker.drain(0)


def test_a_worker_with_too_many_stragglers_claims_no_next_job(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        straggler = next(one for one in worker._table.running() if one.job.id != job.id)
        worker._table.strand(straggler)
        return None

    worker = bench.worker(run, concurrency=2, straggler_limit=1)
    ids = [bench.submit() for _ in range(3)]
    claim(worker)
    bench.spawned.pop(0)()
    assert [bench.job(job_id).state.value for job_id in ids] == ["succeeded", "running", "queued"]


def test_a_job_claimed_while_the_worker_closes_is_given_back(bench: Bench) -> None:
    class GivesUp(Moody):
        def finish_and_claim(self, *args: object, **more: object) -> JobHandoff:
            turn = super().finish_and_claim(*args, **more)
            worker._table.abandon()
            return turn

    def run(job: AsyncJob) -> object:
        worker._table.stop_accepting()
        job.token.raise_if_cancelled()
        return None

    def accept(job: AsyncJob) -> object:
        return run(job) if job.id == second else None

    bench.store = GivesUp()
    worker = bench.worker(accept, concurrency=1)
    first, second = bench.submit(), bench.submit()
    claim(worker)
    bench.run_all()
    assert bench.job(first).state is JobState.SUCCEEDED
    given_back = bench.job(second)
    assert (given_back.state, given_back.error) == (JobState.QUEUED, "given back: the worker shuts down")
    assert worker.statistics().running == 0


def test_run_one_runs_only_the_given_job(bench: Bench) -> None:
    worker = bench.worker()
    first, second = bench.submit(), bench.submit()
    assert worker.run_one(lambda me: bench.store.claim(me, ["work"], now=bench.clock.now()))
    assert (bench.job(first).state, bench.job(second).state) == (JobState.SUCCEEDED, JobState.QUEUED)


@pytest.mark.parametrize(
    ("trouble", "after", "states"),
    [
        (StoreBusy(1.0), False, ["succeeded", "queued"]),
        (OutcomeUnknown("the database", "no answer"), True, ["succeeded", "running"]),
    ],
)
def test_repeats_a_report_without_an_answer_but_claims_nothing(
    bench: Bench, trouble: Exception, after: bool, states: list[str]
) -> None:
    """A job that may have been claimed with it is not run here: it is silent, and is reclaimed."""
    moody = Moody()
    bench.store = moody
    ran: list[str] = []
    worker = bench.worker(lambda job: ran.append(job.id), concurrency=1)
    first, second = bench.submit(), bench.submit()
    claim(worker)
    moody.trouble = [trouble]
    moody.after = after
    bench.run_all()
    assert ran == [first]
    assert [bench.job(job_id).state.value for job_id in (first, second)] == states
    assert worker.statistics().running == 0
    assert not worker._table.holds(second)
