"""The worker, step by step: an owner keeps its job by heartbeats, and writes nothing without its lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import pytest

from cleveragents.core.errors import (
    DatabaseFailed,
    DatabaseUnreachable,
    OutcomeUnknown,
    StoreBusy,
)
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import Heartbeat
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.jobs.worker.attempt import StopCause
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.worker_bench import OPTIONS, Bench, Moody, claim


def test_an_owner_lets_go_before_any_peer_can_take_its_job(bench: Bench) -> None:
    """The owner counts from before its last beat was sent, a peer from after it was seen."""

    def run(job: AsyncJob) -> object:
        bench.clock.advance(5)
        owner._keeper.beat()
        peer._recovery.sweep()
        bench.clock.advance(11.9)
        owner._keeper.watch(owner._escalate)
        assert not job.token.is_cancelled
        bench.clock.advance(0.1)
        owner._keeper.watch(owner._escalate)
        assert job.token.is_cancelled
        owner._keeper.beat()
        assert bench.job(job.id).beat == 1, "what was let go is not kept from the peers"
        peer._recovery.sweep()
        assert bench.job(job.id).fence == 1
        assert bench.job(job.id).state is JobState.RUNNING
        bench.clock.advance(3)
        peer._recovery.sweep()
        assert bench.job(job.id).state is JobState.QUEUED
        return "done by one who may not say so"

    owner = bench.worker(run)
    peer = bench.worker(name="b")
    job_id = bench.submit()
    claim(owner)
    bench.run_all()
    job = bench.job(job_id)
    assert (job.state, job.result, job.error) == (JobState.QUEUED, None, "the worker a was silent for 15 s")
    assert (owner.statistics().lease_lost, owner.statistics().succeeded) == (1, 0)
    assert peer.statistics().reclaimed == 1


def test_does_not_write_a_result_after_the_lease_even_without_a_new_owner(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        bench.clock.advance(12)
        worker._keeper.watch(worker._escalate)
        return "late"

    worker = bench.worker(run)
    job_id = bench.play(worker)
    assert (bench.job(job_id).state, bench.job(job_id).result) == (JobState.RUNNING, None)
    assert worker.statistics().lease_lost == 1


def test_an_owner_with_heartbeats_keeps_its_job(bench: Bench) -> None:
    worker = bench.worker()
    peer = bench.worker(name="b")
    job_id = bench.submit()
    claim(worker)
    for _ in range(20):
        bench.clock.advance(5)
        worker._keeper.beat()
        worker._keeper.watch(worker._escalate)
        peer._recovery.sweep()
    assert bench.job(job_id).beat == 20
    bench.run_all()
    assert bench.job(job_id).state is JobState.SUCCEEDED


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_jump_of_the_wall_clock_changes_no_lease(bench: Bench, jump: float) -> None:
    worker = bench.worker()
    peer = bench.worker(name="b")
    job_id = bench.submit()
    claim(worker)
    peer._recovery.sweep()
    bench.clock.jump(jump)
    bench.clock.advance(5)
    worker._keeper.beat()
    bench.clock.jump(jump)
    worker._keeper.watch(worker._escalate)
    peer._recovery.sweep()
    [attempt] = worker._table.running()
    assert attempt.stopped is None
    assert bench.job(job_id).state is JobState.RUNNING
    # A silent owner is detected even if the wall clock jumps.
    bench.clock.advance(14.9)
    bench.clock.jump(-jump)
    peer._recovery.sweep()
    assert bench.job(job_id).state is JobState.RUNNING
    bench.clock.advance(0.1)
    peer._recovery.sweep()
    assert bench.job(job_id).state is JobState.QUEUED


@pytest.mark.parametrize("finds_out", ["at its heartbeat", "when it wants to finish"])
def test_a_fenced_worker_stops_and_writes_nothing(bench: Bench, finds_out: str) -> None:
    def run(job: AsyncJob) -> object:
        bench.store.reclaim(job.id, 1, 0, error="taken", now=bench.clock.now())
        bench.store.claim(bench.machine.identity("b"), ["work"], now=bench.clock.now())
        if finds_out == "at its heartbeat":
            bench.clock.advance(5)
            worker._keeper.beat()
            assert job.token.is_cancelled
            worker._keeper.beat()
        return "stale"

    worker = bench.worker(run)
    job_id = bench.play(worker)
    job = bench.job(job_id)
    assert (job.state, job.fence, job.beat, job.result) == (JobState.RUNNING, 2, 0, None)
    assert worker.statistics().lease_lost == 1


def test_an_end_written_by_a_peer_does_not_count_as_ours(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        bench.store.reclaim(job.id, 1, 0, error="taken", now=bench.clock.now())
        job.token.raise_if_cancelled()
        return None

    worker = bench.worker(run)
    job_id = bench.play(worker)
    assert bench.job(job_id).state is JobState.CANCELLED
    assert (worker.statistics().cancelled, worker.statistics().lease_lost) == (0, 1)


def test_a_cancel_of_a_later_attempt_does_not_stop_an_earlier_one(bench: Bench) -> None:
    worker = bench.worker()
    job_id = bench.submit()
    claim(worker)
    bench.store.reclaim(job_id, 1, 0, error="taken", now=bench.clock.now())
    bench.store.claim(bench.machine.identity("b"), ["work"], now=bench.clock.now())
    bench.store.request_cancel(job_id, "of the other", now=bench.clock.now())
    bench.clock.advance(1)
    worker._keeper.beat()
    [attempt] = worker._table.running()
    assert attempt.stopped is None


def test_of_two_attempts_at_one_job_only_the_later_is_renewed(bench: Bench) -> None:
    """A suspended machine finds its job taken, queued and claimed again before its first attempt notices."""
    worker = bench.worker()
    job_id = bench.submit()
    claim(worker)
    bench.store.reclaim(job_id, 1, 0, error="taken", now=bench.clock.now())
    claim(worker)
    bench.clock.advance(5)
    worker._keeper.beat()
    first, second = sorted(worker._table.running(), key=lambda attempt: attempt.job.fence)
    assert first.stopped is not None
    assert first.stopped.cause is StopCause.LEASE_LOST
    assert second.stopped is None
    assert (bench.job(job_id).fence, bench.job(job_id).beat) == (2, 1)


def test_a_cancel_reaches_only_its_own_attempt(bench: Bench) -> None:
    worker = bench.worker()
    job_id = bench.submit()
    claim(worker)
    bench.store.reclaim(job_id, 1, 0, error="taken", now=bench.clock.now())
    claim(worker)
    bench.store.request_cancel(job_id, "enough", now=bench.clock.now())
    worker._keeper.beat()
    first, second = sorted(worker._table.running(), key=lambda attempt: attempt.job.fence)
    assert (first.stopped is None, second.stopped is None) == (True, False)


@pytest.mark.parametrize(
    ("trouble", "kept"),
    [
        ([StoreBusy(1), StoreBusy(1)], False),
        ([OutcomeUnknown("the database", "gone")], True),
        ([DatabaseUnreachable("the database", "it hung up")], False),
        ([DatabaseFailed("the database", "disk I/O error"), StoreBusy(1)], False),
    ],
)
def test_a_result_outlives_a_store_in_trouble(trouble: list[Exception], kept: bool) -> None:
    store = Moody()
    bench = Bench(store=store)

    def run(job: AsyncJob) -> object:
        store.trouble = list(trouble)
        store.after = kept
        return "kept"

    worker = bench.worker(run)
    job_id = bench.play(worker)
    assert bench.job(job_id).result == "kept"
    assert (worker.statistics().succeeded, worker.statistics().lease_lost) == (1, 0)


def test_loses_the_lease_if_the_store_stays_busy() -> None:
    store = Moody()
    bench = Bench(store=store)

    def run(job: AsyncJob) -> object:
        store.trouble = [StoreBusy(1), StoreBusy(1)]
        bench.clock.advance(5)
        worker._keeper.beat()
        assert not job.token.is_cancelled, "one missed beat is no end"
        bench.clock.advance(7)
        return "too late"

    worker = bench.worker(run)
    job_id = bench.play(worker)
    assert bench.job(job_id).state is JobState.RUNNING
    assert worker.statistics().lease_lost == 1


def test_an_attempt_whose_end_is_decided_is_not_kept(bench: Bench) -> None:
    """Otherwise a job whose report is never accepted would keep its owner forever."""
    worker = bench.worker()
    job_id = bench.submit()
    claim(worker)
    [attempt] = worker._table.running()
    attempt.settle()
    bench.clock.advance(5)
    worker._keeper.beat()
    assert bench.job(job_id).beat == 0
    bench.clock.advance(10)
    assert worker._keeper.watch(worker._escalate) == OPTIONS.heartbeat_seconds, "nothing to watch for"


@pytest.mark.parametrize("error", [DatabaseFailed("x", "y"), RuntimeError("a bug")])
def test_a_failed_round_of_heartbeats_stops_no_attempt_and_the_next_succeeds(error: Exception) -> None:
    store = Moody()
    bench = Bench(store=store)
    worker = bench.worker()
    ids = [bench.submit() for _ in range(4)]
    claim(worker)
    bench.clock.advance(5)
    store.trouble = [error]
    worker._keeper.beat()
    assert [bench.job(job_id).beat for job_id in ids] == [0, 0, 0, 0]
    assert all(attempt.stopped is None for attempt in worker._table.running())
    worker._keeper.beat()
    assert [bench.job(job_id).beat for job_id in ids] == [1, 1, 1, 1]


class Counting(InMemoryJobStore):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__(CountingIdentifiers("job"))
        self.asked: Counter[str] = Counter()

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        self.asked["heartbeats"] += 1
        return super().heartbeats(held, now=now)

    def cancels(self, held: Mapping[str, int]) -> Mapping[str, str]:
        self.asked["cancels"] += 1
        return super().cancels(held)


def test_a_round_of_heartbeats_is_one_query_for_any_number_of_attempts() -> None:
    """With hundreds of attempts on a busy machine, a query for each would take longer than a lease."""
    store = Counting()
    bench = Bench(store=store)
    worker = bench.worker(concurrency=50)
    ids = [bench.submit() for _ in range(50)]
    claim(worker)
    worker._keeper.beat()
    assert store.asked == {"cancels": 1}
    bench.clock.advance(5)
    store.request_cancel(ids[7], "enough", now=bench.clock.now())
    worker._keeper.beat()
    assert store.asked == {"cancels": 1, "heartbeats": 1}
    assert [attempt.job.id for attempt in worker._table.running() if attempt.stopped] == [ids[7]]


class Held(InMemoryJobStore):
    """Another transaction holds one job."""

    def __init__(self) -> None:
        super().__init__(CountingIdentifiers("job"))
        self.held = ""

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        others = {job_id: fence for job_id, fence in held.items() if job_id != self.held}
        unheard = Heartbeat(0, self.get(self.held).cancel_reason, heard=False)
        return {**super().heartbeats(others, now=now), self.held: unheard}


def test_an_unacknowledged_beat_neither_loses_nor_extends_the_lease() -> None:
    store = Held()
    bench = Bench(store=store)
    worker = bench.worker(concurrency=2)
    store.held, other = bench.submit(), bench.submit()
    claim(worker)
    held, free = sorted(worker._table.running(), key=lambda attempt: attempt.job.id)
    until = held.lease_until
    bench.clock.advance(5)
    worker._keeper.beat()
    assert (held.stopped, held.lease_until) == (None, until)
    assert free.lease_until == until + 5
    store.request_cancel(store.held, "enough", now=bench.clock.now())
    worker._keeper.beat()
    assert held.stopped is not None, "what was asked of it is seen all the same"
    assert held.stopped.reason == "enough"
    assert bench.job(other).beat == 1
