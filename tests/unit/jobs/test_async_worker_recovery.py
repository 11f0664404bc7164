"""The worker, step by step: jobs of a dead or silent peer are recovered once and completely."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cleveragents.core.errors import (
    DatabaseFailed,
    DatabaseUnreachable,
    DeadlineExceeded,
    StoreBusy,
)
from cleveragents.jobs.model.job import Job, JobState
from tests.worker_bench import Bench, claim


def test_reclaims_the_job_of_a_dead_owner_immediately(bench: Bench) -> None:
    claim(bench.worker(name="mortal"))
    job_id = bench.submit()
    claim(bench.worker(name="mortal"))
    bench.machine.dead.add("mortal")
    peer = bench.worker(name="b")
    peer._sweep()
    assert bench.job(job_id).error == "the worker mortal (pid 1) died"
    claim(peer)
    bench.spawned[-1]()
    assert bench.job(job_id).state is JobState.SUCCEEDED
    # Processes of the dead attempt on this machine were killed with the reclaim, and before the next run.
    assert bench.machine.ended == [f"{job_id}:1", f"{job_id}:1"]


def test_a_sweep_sees_every_page(bench: Bench) -> None:
    dead = bench.worker(name="mortal", concurrency=250)
    ids = [bench.submit() for _ in range(250)]
    claim(dead)
    bench.machine.dead.add("mortal")
    assert bench.worker(name="b")._recovery.sweep() == 250
    assert {bench.job(job_id).state for job_id in ids} == {JobState.QUEUED}


def test_a_worker_does_not_reclaim_a_job_from_its_own_thread(bench: Bench) -> None:
    worker = bench.worker()
    job_id = bench.submit()
    claim(worker)
    for _ in range(3):
        worker._recovery.sweep()
        bench.clock.advance(20)
    assert bench.job(job_id).state is JobState.RUNNING
    assert bench.job(job_id).fence == 1


@pytest.mark.parametrize("error", [DatabaseFailed("x", "y"), StoreBusy(0.0), RuntimeError("a bug")])
def test_a_failed_reclaim_keeps_the_observations_of_other_jobs(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, error: Exception
) -> None:
    silent = bench.worker()
    ids = [bench.submit() for _ in range(3)]
    claim(silent)
    peer = bench.worker(name="b")
    peer._recovery.sweep()
    bench.clock.advance(15)
    reclaim = bench.store.reclaim

    def refuse_one(job_id: str, *args: object, **more: object) -> Job:
        if job_id == ids[0]:
            raise error
        return reclaim(job_id, *args, **more)

    monkeypatch.setattr(bench.store, "reclaim", refuse_one)
    assert peer._recovery.sweep() == 2
    monkeypatch.undo()
    assert peer._recovery.sweep() == 1, "it had been silent for a lease before"


def test_a_sweep_that_breaks_off_forgets_nothing(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    claim_for = bench.worker()
    bench.submit()
    claim(claim_for)
    peer = bench.worker(name="b")
    peer._recovery.sweep()
    bench.clock.advance(15)

    def gone(**_: object) -> Sequence[Job]:
        raise DatabaseUnreachable("the database", "it hung up")

    monkeypatch.setattr(bench.store, "list", gone)
    with pytest.raises(DatabaseUnreachable):
        peer._recovery.sweep()
    monkeypatch.undo()
    assert peer._recovery.sweep() == 1


@pytest.mark.parametrize("dead", [True, False])
def test_a_reclaimed_jobs_processes_are_ended_in_the_right_order(bench: Bench, dead: bool) -> None:
    """A dead owner's before the job ends; those of an owner that may be alive after it lost the job."""
    order: list[str] = []
    reclaim, end = bench.store.reclaim, bench.machine.end

    def say_reclaim(*args: object, **more: object) -> Job:
        order.append("reclaim")
        return reclaim(*args, **more)

    def say_end(marker: str, *, grace_seconds: float) -> Sequence[int]:
        order.append(marker)
        return end(marker, grace_seconds=grace_seconds)

    bench.store.reclaim = say_reclaim
    bench.machine.end = say_end
    claim(owner := bench.worker())
    job_id = bench.submit()
    claim(owner)
    bench.store.request_cancel(job_id, "stop", now=bench.clock.now())
    peer = bench.worker(name="b")
    if dead:
        bench.machine.dead.add("a")
    peer._recovery.sweep()
    bench.clock.advance(15)
    peer._recovery.sweep()
    assert bench.job(job_id).state is JobState.CANCELLED
    assert order == ([f"{job_id}:1", "reclaim"] if dead else ["reclaim", f"{job_id}:1"])


def test_ends_no_process_of_an_owner_that_beats_at_the_last_moment(bench: Bench) -> None:
    class Beats:
        def reach(self, name: str) -> None:
            if name == "job.reclaim.before":
                owner._keeper.beat()

    owner = bench.worker()
    job_id = bench.submit()
    claim(owner)
    peer = bench.worker(name="b", faults=Beats())
    peer._recovery.sweep()
    bench.clock.advance(15)
    assert peer._recovery.sweep() == 0
    assert bench.job(job_id).state is JobState.RUNNING
    assert bench.machine.ended == []


def test_a_dead_owners_job_ends_after_its_processes(bench: Bench) -> None:
    claim(owner := bench.worker(name="mortal"))
    job_id = bench.submit()
    claim(owner)
    bench.store.request_cancel(job_id, "stop", now=bench.clock.now())
    bench.machine.dead.add("mortal")
    end = bench.machine.end

    def cannot(marker: str, *, grace_seconds: float) -> Sequence[int]:
        raise DeadlineExceeded("ending processes", 10)

    bench.machine.end = cannot
    peer = bench.worker(name="b")
    assert peer._recovery.sweep() == 0
    assert bench.job(job_id).state is JobState.RUNNING
    bench.machine.end = end
    assert peer._recovery.sweep() == 1
    assert bench.job(job_id).state is JobState.CANCELLED
