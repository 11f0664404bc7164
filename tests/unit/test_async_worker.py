"""The worker, step by step: no thread of its own runs here, and time passes when a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from cleveragents.application.ports.faults import FaultPoints
from cleveragents.application.ports.processes import JobProcess, JobProgram
from cleveragents.application.services.async_worker import AsyncJob, AsyncWorker
from cleveragents.application.services.job_handlers import HandlerFunction, JobHandler
from cleveragents.application.services.worker_options import WorkerOptions
from cleveragents.domain.job import Job, JobState, NewJob, WorkerIdentity
from cleveragents.errors import (
    Cancelled,
    ConfigurationError,
    DatabaseFailed,
    DatabaseUnreachable,
    DeadlineExceeded,
    InvalidPayload,
    JobAlreadyEnded,
    OutcomeUnknown,
    StoreBusy,
    UnknownJob,
    UnknownJobKind,
)
from cleveragents.testing.clock import FakeClock
from cleveragents.testing.faults import RaiseAt, RecordFaultPoints
from cleveragents.testing.identifiers import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore

OPTIONS = WorkerOptions(
    lease_seconds=15, heartbeat_seconds=5, cancel_grace_seconds=4, leftover_grace_seconds=0, retry_seconds=8
)


@dataclass
class Machine:
    """Stands for a machine's process table: who lives, and what was ended."""

    dead: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)

    def identity(self, worker_id: str) -> WorkerIdentity:
        return WorkerIdentity(worker_id, "here", 1, 1)

    def is_alive(self, worker: WorkerIdentity) -> bool | None:
        return None if worker.host != "here" else worker.id not in self.dead

    def environment(self, marker: str) -> Mapping[str, str]:
        return {"JOB": marker}

    def alive(self, marker: str) -> Sequence[int]:
        return []

    def end(self, marker: str, *, grace_seconds: float) -> Sequence[int]:
        self.ended.append(marker)
        return [4711]

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        raise NotImplementedError


@dataclass
class Bench:
    """Workers on one store, moved by hand."""

    clock: FakeClock = field(default_factory=FakeClock)
    machine: Machine = field(default_factory=Machine)
    store: InMemoryJobStore = field(default_factory=lambda: InMemoryJobStore(CountingIdentifiers("job")))
    spawned: list[Callable[[], None]] = field(default_factory=list)

    def worker(
        self,
        run: HandlerFunction = lambda job: None,
        name: str = "a",
        faults: FaultPoints | None = None,
        **changes: object,
    ) -> AsyncWorker:
        options = replace(OPTIONS, name=name, **changes)
        handlers = {"work": JobHandler(run)}
        return AsyncWorker(
            self.store, handlers, self.clock, self.machine, options, faults=faults, spawn=self._spawn
        )

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        self.spawned.append(work)

    def submit(self, **facts: object) -> str:
        return self.store.submit(NewJob("work", **facts), now=self.clock.now()).id

    def run_all(self) -> None:
        """Runs what was spawned, as threads would."""
        while self.spawned:
            self.spawned.pop(0)()

    def job(self, job_id: str) -> Job:
        return self.store.get(job_id)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def claim(worker: AsyncWorker) -> None:
    worker._claim_ready()


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
    # No process was ever asked for, so none was looked for.
    assert bench.machine.ended == []


def test_what_a_job_started_ends_with_it(bench: Bench) -> None:
    job_id = bench.submit()
    worker = bench.worker(lambda job: job.environment["JOB"])
    claim(worker)
    bench.run_all()
    assert bench.job(job_id).result == f"{job_id}:1"
    assert bench.machine.ended == [f"{job_id}:1"]


def test_a_job_nobody_can_run_is_refused_and_one_of_another_kind_left_alone(bench: Bench) -> None:
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
def test_a_handler_that_could_not_run_is_refused_at_once(wrong: dict[str, object]) -> None:
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


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda job: object(), "object is not a JSON value"),
        (lambda job: float("nan"), "not a JSON number"),
        (lambda job: (_ for _ in ()).throw(InvalidPayload("x", "made up")), "made up"),
    ],
)
def test_what_would_fail_again_is_not_tried_again(bench: Bench, act: HandlerFunction, error: str) -> None:
    job_id = bench.submit()
    claim(worker := bench.worker(act))
    bench.run_all()
    job = bench.job(job_id)
    assert job.state is JobState.FAILED
    assert error in (job.error or "")
    assert worker.statistics().failed == 1


@pytest.mark.parametrize("error", [Cancelled("something else"), SystemExit(0), asyncio.CancelledError()])
def test_a_handler_that_stops_without_being_told_to_has_failed(bench: Bench, error: BaseException) -> None:
    def run(job: AsyncJob) -> object:
        raise error

    job_id = bench.submit()
    claim(bench.worker(run))
    bench.run_all()
    assert bench.job(job_id).state is JobState.QUEUED


# ── Cancel ────────────────────────────────────────────────────────────────────────────────────────


def test_a_cancelled_job_is_cancelled_and_a_second_cancel_says_so(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "no longer wanted")
        job.token.raise_if_cancelled()
        return "too far"

    worker = bench.worker(run)
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
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
def test_a_cancel_from_elsewhere_is_learnt_of(bench: Bench, learns: str) -> None:
    def run(job: AsyncJob) -> object:
        bench.store.request_cancel(job.id, "from elsewhere", now=bench.clock.now())
        bench.clock.advance(5 if learns == "at a heartbeat" else 1)
        worker._keeper.beat()
        job.token.raise_if_cancelled()
        return None

    worker = bench.worker(run)
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    job = bench.job(job_id)
    assert (job.state, job.beat) == (JobState.CANCELLED, 1 if learns == "at a heartbeat" else 0)


def test_a_result_after_the_owner_saw_the_cancel_is_kept_but_the_job_is_cancelled(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        return "done"

    worker = bench.worker(run)
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    job = bench.job(job_id)
    assert (job.state, job.result) == (JobState.CANCELLED, "done")
    assert job.error == "cancelled (stop), though its handler came back: its result is kept"


def test_a_result_before_the_owner_saw_the_cancel_stands(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        bench.store.request_cancel(job.id, "too late", now=bench.clock.now())
        return "done"

    job_id = bench.submit()
    claim(bench.worker(run))
    bench.run_all()
    job = bench.job(job_id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, "done")


def test_an_error_on_the_way_out_of_a_cancel_is_told(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        raise OSError("broken pipe")

    worker = bench.worker(run)
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    assert bench.job(job_id).error == "cancelled (stop); OSError: broken pipe"
    assert bench.job(job_id).state is JobState.CANCELLED


def test_a_thread_that_ignores_its_cancel_is_left_behind_and_said_to_be(bench: Bench) -> None:
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
    assert job.error == "cancelled (stop); its thread did not stop and was left behind, fenced off"
    assert (statistics.stragglers, statistics.running, statistics.cancelled) == (1, 0, 1)
    assert ended == [f"{job_id}:1"]
    # When the thread comes back after all, it changes nothing.
    assert bench.job(job_id) == job
    assert worker.statistics().stragglers == 0


def test_an_attempt_that_is_being_reported_is_not_given_up_on(bench: Bench) -> None:
    class GivesUp:
        """Comes just when the attempt's own report is on its way to the store."""

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
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
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


# ── Lease, fence, recovery ────────────────────────────────────────────────────────────────────────


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
    assert (job.state, job.result, job.error) == (JobState.QUEUED, None, "its worker a was silent for 15 s")
    assert (owner.statistics().lease_lost, owner.statistics().succeeded) == (1, 0)
    assert peer.statistics().reclaimed == 1


def test_a_result_after_the_lease_is_not_written_even_if_nobody_took_the_job(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        bench.clock.advance(12)
        worker._keeper.watch(worker._escalate)
        return "late"

    worker = bench.worker(run)
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    assert (bench.job(job_id).state, bench.job(job_id).result) == (JobState.RUNNING, None)
    assert worker.statistics().lease_lost == 1


def test_a_beating_owner_keeps_its_job_for_ever(bench: Bench) -> None:
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
    # And a silent owner is found silent, however the clocks on the wall jump.
    bench.clock.advance(14.9)
    bench.clock.jump(-jump)
    peer._recovery.sweep()
    assert bench.job(job_id).state is JobState.RUNNING
    bench.clock.advance(0.1)
    peer._recovery.sweep()
    assert bench.job(job_id).state is JobState.QUEUED


def test_an_owner_seen_dead_is_not_waited_for(bench: Bench) -> None:
    claim(bench.worker(name="mortal"))
    job_id = bench.submit()
    claim(bench.worker(name="mortal"))
    bench.machine.dead.add("mortal")
    peer = bench.worker(name="b")
    peer._sweep()
    assert bench.job(job_id).error == "its worker mortal (pid 1) died"
    claim(peer)
    bench.spawned[-1]()
    assert bench.job(job_id).state is JobState.SUCCEEDED
    # What the dead one's attempt left on this machine was ended with the reclaim, and before the next run.
    assert bench.machine.ended == [f"{job_id}:1", f"{job_id}:1"]


def test_a_sweep_sees_every_page(bench: Bench) -> None:
    dead = bench.worker(name="mortal", concurrency=250)
    ids = [bench.submit() for _ in range(250)]
    claim(dead)
    bench.machine.dead.add("mortal")
    assert bench.worker(name="b")._recovery.sweep() == 250
    assert {bench.job(job_id).state for job_id in ids} == {JobState.QUEUED}


def test_a_worker_does_not_take_a_job_from_its_own_thread(bench: Bench) -> None:
    worker = bench.worker()
    job_id = bench.submit()
    claim(worker)
    for _ in range(3):
        worker._recovery.sweep()
        bench.clock.advance(20)
    assert bench.job(job_id).state is JobState.RUNNING
    assert bench.job(job_id).fence == 1


@pytest.mark.parametrize("finds_out", ["at its heartbeat", "when it wants to finish"])
def test_a_fenced_off_worker_is_told_and_writes_nothing(bench: Bench, finds_out: str) -> None:
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
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    job = bench.job(job_id)
    assert (job.state, job.fence, job.beat, job.result) == (JobState.RUNNING, 2, 0, None)
    assert worker.statistics().lease_lost == 1


def test_an_end_that_a_peer_wrote_is_not_taken_for_ones_own(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        worker.cancel(job.id, "stop")
        bench.store.reclaim(job.id, 1, 0, error="taken", now=bench.clock.now())
        job.token.raise_if_cancelled()
        return None

    worker = bench.worker(run)
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    assert bench.job(job_id).state is JobState.CANCELLED
    assert (worker.statistics().cancelled, worker.statistics().lease_lost) == (0, 1)


def test_a_cancel_of_a_later_attempt_is_not_mistaken_for_ones_own(bench: Bench) -> None:
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


# ── A store that cannot just now ──────────────────────────────────────────────────────────────────


class Moody(InMemoryJobStore):
    """A store with bad moments: `trouble` is raised by the next calls, before or after they took effect."""

    def __init__(self) -> None:
        super().__init__(CountingIdentifiers("job"))
        self.trouble: list[Exception] = []
        self.after = False

    def finish(self, job_id: str, *args: object, **more: object) -> Job:
        return self._moodily(lambda: super(Moody, self).finish(job_id, *args, **more))

    def heartbeat(self, job_id: str, *args: object, **more: object) -> object:
        return self._moodily(lambda: super(Moody, self).heartbeat(job_id, *args, **more))

    def _moodily(self, act: Callable[[], object]) -> object:
        if not self.trouble:
            return act()
        if self.after:
            act()
        raise self.trouble.pop(0)


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
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    assert bench.job(job_id).result == "kept"
    assert (worker.statistics().succeeded, worker.statistics().lease_lost) == (1, 0)


def test_a_store_that_stays_busy_costs_the_lease(bench: Bench) -> None:
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
    job_id = bench.submit()
    claim(worker)
    bench.run_all()
    assert bench.job(job_id).state is JobState.RUNNING
    assert worker.statistics().lease_lost == 1


@pytest.mark.parametrize(
    ("trouble", "state"),
    [
        ([DatabaseFailed("the database", "disk I/O error")], JobState.CANCELLED),
        ([DatabaseUnreachable("the database", "it hung up")], JobState.CANCELLED),
        ([UnknownJob("deleted")], JobState.RUNNING),
        ([RuntimeError("a bug")], JobState.RUNNING),
    ],
)
def test_a_cancel_whose_report_meets_trouble_does_not_stay_a_running_attempt(
    trouble: list[Exception], state: JobState
) -> None:
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
    bench.submit()
    claim(worker)
    bench.run_all()
    assert during == [(state, 0, 1)]


def test_processes_that_cannot_be_ended_do_not_keep_a_cancelled_attempt_running(bench: Bench) -> None:
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
    bench.submit()
    claim(worker)
    bench.run_all()
    assert during == [(JobState.CANCELLED, 0)]
    assert "job.processes_left" in lines


def test_an_attempt_that_no_thread_could_be_started_for_is_given_up_on_later(bench: Bench) -> None:
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


def test_a_cancel_that_could_not_be_reported_for_a_lease_is_made_good_despite_the_straggler() -> None:
    """By this very worker, if there is no other: a cancelled job has no second attempt to join the first."""
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
    bench.submit()
    claim(worker)
    bench.run_all()
    assert during == [(JobState.CANCELLED, 1)]


def test_an_attempt_whose_end_is_decided_is_not_kept(bench: Bench) -> None:
    """Kept alive, a job whose report is never accepted would be nobody else's for ever."""
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


@pytest.mark.parametrize("error", [UnknownJob("deleted"), DatabaseFailed("x", "y"), RuntimeError("a bug")])
def test_one_attempts_trouble_does_not_cost_the_others_their_heartbeats(error: Exception) -> None:
    store = Moody()
    bench = Bench(store=store)
    worker = bench.worker()
    ids = [bench.submit() for _ in range(4)]
    claim(worker)
    bench.clock.advance(5)
    store.trouble = [error]
    worker._keeper.beat()
    assert sorted(bench.job(job_id).beat for job_id in ids) == [0, 1, 1, 1]
    assert all(attempt.stopped is None for attempt in worker._table.running())


@pytest.mark.parametrize("error", [DatabaseFailed("x", "y"), RuntimeError("a bug")])
def test_one_reclaim_that_fails_does_not_cost_the_others_what_was_seen_of_them(
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
    """Of a dead owner before the job says that it ended; of one that may live after it lost the job."""
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


def test_nothing_is_ended_of_an_owner_that_gave_a_sign_of_life_in_the_last_moment(bench: Bench) -> None:
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


def test_a_dead_owners_job_is_not_said_to_be_over_while_its_processes_live(bench: Bench) -> None:
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


@pytest.mark.parametrize(
    "point", ["job.claim.after", "job.run.before", "job.run.after", "job.finish.before", "job.finish.after"]
)
def test_wherever_an_attempt_breaks_its_slot_is_free_and_the_job_ends_right(bench: Bench, point: str) -> None:
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


# ── Drain ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_drained_worker_lets_its_jobs_end_and_takes_no_more(bench: Bench) -> None:
    def run(job: AsyncJob) -> object:
        started.set()
        return go_on.wait(10)

    started, go_on = threading.Event(), threading.Event()
    drained: list[bool] = []
    worker = bench.worker(run)
    first = bench.submit()
    claim(worker)
    running = threading.Thread(target=bench.run_all)
    running.start()
    assert started.wait(10)
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
def test_what_a_drain_stops_is_given_back(
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
    job_id = bench.submit(max_attempts=max_attempts)
    claim(worker)
    bench.run_all()
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
    """Given back, it would run twice at once: here, where nothing stops it, and where it is claimed."""

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
    bench.submit()
    claim(worker)
    bench.run_all()
    assert during == [JobState.RUNNING]


def test_waiting_for_idleness_has_an_end(bench: Bench) -> None:
    worker = bench.worker()
    bench.submit()
    with pytest.raises(DeadlineExceeded):
        worker.run_until_idle(0)
