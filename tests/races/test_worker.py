"""G7: races between the threads of one worker, and between workers of one store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from cleveragents.core.errors import StaleFence
from cleveragents.core.faults import NoFaults
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, NewJob
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.process.supervisor import ControlPipe, JobProcess, JobProgram, Returned
from cleveragents.jobs.worker.async_worker import AsyncJob, AsyncWorker, CancellationToken
from cleveragents.jobs.worker.attempt import Attempt, AttemptTable, StopCause, WorkerOptions, outcome_of
from cleveragents.jobs.worker.lease import JobRecovery, LeaseKeeper
from cleveragents.testing.clock import CountingIdentifiers, FakeClock
from cleveragents.testing.job_store import InMemoryJobStore
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.naive_worker import (
    LockOnlyAttempt,
    SlotGivenAwayTable,
    UncountedTable,
    UnfencedStore,
    WallClockRecovery,
)

OPTIONS = WorkerOptions(concurrency=1, lease_seconds=15, heartbeat_seconds=5)
EFFORT = 15
"""Schedules per explorer where each is long; the naive versions fail within the first dozen."""
BRIEF = 100
NOW = FakeClock().now()


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging: explorers step through it, and a log line would be most of a schedule."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


class Elsewhere:
    """A machine that cannot tell which processes are alive: only leases decide."""

    def identity(self, worker_id: str) -> WorkerIdentity:
        return WorkerIdentity(worker_id, "elsewhere", 1, 1)

    def is_alive(self, worker: WorkerIdentity) -> bool | None:
        return None

    def environment(self, marker: str) -> Mapping[str, str]:
        return {}

    def alive(self, marker: str) -> Sequence[int]:
        return []

    def end(self, marker: str, *, grace_seconds: float) -> Sequence[int]:
        return []

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        raise NotImplementedError


def attempt_at(job: Job, kind: type[Attempt] = Attempt) -> Attempt:
    view = AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, CancellationToken(), {})
    return kind(job, view, claimed_at=0.0, lease_seconds=12.0)


def running_job() -> Job:
    """Return the job that "a" has just claimed."""
    store = InMemoryJobStore(CountingIdentifiers("job"))
    store.submit(NewJob("work"), now=NOW)
    job = store.claim(Elsewhere().identity("a"), ["work"], now=NOW)
    assert job is not None
    return job


JOB = running_job()


# ── Cancel against the end of an attempt ──────────────────────────────────────────────────────────


@dataclass
class Ending:
    """One attempt that ends while it is cancelled, and is reported at most once."""

    attempt: Attempt
    cancelled: list[bool] = field(default_factory=list)
    reports: list[AttemptOutcome] = field(default_factory=list)

    def cancel(self) -> None:
        self.cancelled.append(self.attempt.stop(StopCause.CANCEL, "stop", 0.0))

    def end(self) -> None:
        settled = self.attempt.settle()
        if settled is not None:
            outcome = outcome_of(self.attempt.job, Returned("done"), settled[0], NOW, 0.0)
            assert outcome is not None
            self.reports.append(outcome)

    def outcome(self) -> tuple[object, ...]:
        return (tuple(self.cancelled), tuple(report.state.value for report in self.reports))


def ending(kind: type[Attempt]) -> Callable[[], Ending]:
    return lambda: Ending(attempt_at(JOB, kind))


def cancel_against_end(kind: type[Attempt]) -> Scenario[Ending]:
    """An accepted cancel is reported; a refused one is not."""
    both = {((True,), ("cancelled",)), ((False,), ("succeeded",))}
    return Scenario(
        f"cancel against end, {kind.__name__}",
        ending(kind),
        [Ending.cancel, Ending.end],
        Ending.outcome,
        allowed=lambda outcome: outcome in both,
        reachable=frozenset(both),
    )


def two_ends(kind: type[Attempt]) -> Scenario[Ending]:
    """The returning thread and the one that abandoned it: exactly one reports."""
    return Scenario(
        f"two ends, {kind.__name__}",
        ending(kind),
        [Ending.end, Ending.end],
        Ending.outcome,
        allowed=lambda outcome: outcome == ((), ("succeeded",)),
        reachable=frozenset({((), ("succeeded",))}),
    )


@pytest.mark.parametrize("scenario", [cancel_against_end, two_ends])
def test_an_attempt_ends_once_and_as_what_it_was(scenario: Callable[..., Scenario[Any]]) -> None:
    assert_holds(scenario(Attempt), effort=BRIEF)


@pytest.mark.parametrize("scenario", [cancel_against_end, two_ends])
def test_catches_a_decision_outside_the_lock(scenario: Callable[..., Scenario[Any]]) -> None:
    assert_caught(scenario(LockOnlyAttempt), effort=BRIEF)


@dataclass
class Told:
    """A process that records its messages."""

    told: list[str] = field(default_factory=list)

    def renew(self, lease_until: float) -> None:
        self.told.append(f"lease {lease_until:g}")

    def cancel(self, reason: str) -> None:
        self.told.append(reason)

    def wait(self, timeout: float) -> None:
        return None

    def close(self) -> None:
        return


def test_a_process_gets_every_stop_whenever_it_is_launched() -> None:

    def setup() -> tuple[Attempt, Told]:
        return attempt_at(JOB), Told()

    assert_holds(
        Scenario(
            "launch against cancel",
            setup,
            [
                lambda state: state[0].attach(state[1]),
                lambda state: state[0].stop(StopCause.CANCEL, "stop", 0.0),
            ],
            lambda state: tuple(state[1].told),
            allowed=lambda told: 1 <= told.count("stop") <= 2,
            reachable=frozenset({("lease 12", "stop")}),
        ),
        effort=BRIEF,
    )


def test_a_process_gets_the_newest_lease_whenever_it_is_launched() -> None:
    assert_holds(
        Scenario(
            "launch against heartbeat",
            lambda: (attempt_at(JOB), Told()),
            [lambda state: state[0].attach(state[1]), lambda state: state[0].renewed(5.0)],
            lambda state: tuple(state[1].told),
            allowed=lambda told: "lease 17" in told,
            reachable=frozenset({("lease 17",), ("lease 12", "lease 17")}),
        ),
        effort=BRIEF,
    )


@dataclass
class End:
    """A pipe's end that records; like a real one, it cannot be written to when closed."""

    lines: list[str] = field(default_factory=list)
    closed: bool = False

    def write(self, data: bytes, /) -> int:
        if self.closed:
            self.lines.append("written after the close")
        half = len(data) // 2
        self.lines.append(data[:half].decode())
        self.lines.append(data[half:].decode())
        return len(data)

    def close(self) -> None:
        self.closed = True


def control_lines(*acts: Callable[[ControlPipe], None]) -> Scenario[tuple[ControlPipe, End]]:
    """Complete lines, none after the close, leases that only grow."""

    def setup() -> tuple[ControlPipe, End]:
        end = End()
        return ControlPipe(end, 1.0), end

    def outcome(state: tuple[ControlPipe, End]) -> tuple[str, ...]:
        return tuple("".join(state[1].lines).split("\n"))

    whole = {"", '{"cancel": "stop"}', '{"lease_until": 2.0}', '{"lease_until": 3.0}'}

    def allowed(lines: tuple[str, ...]) -> bool:
        leases = [line for line in lines if "lease" in line]
        return set(lines) <= whole and leases == sorted(leases)

    workers = [lambda state, act=act: act(state[0]) for act in acts]
    return Scenario("control lines", setup, workers, outcome, allowed)


@pytest.mark.parametrize(
    "acts",
    [
        (lambda pipe: pipe.renew(2.0), lambda pipe: pipe.renew(3.0)),
        (lambda pipe: pipe.renew(2.0), lambda pipe: pipe.cancel("stop")),
        (lambda pipe: pipe.renew(2.0), ControlPipe.close),
        (lambda pipe: pipe.cancel("stop"), ControlPipe.close),
    ],
    ids=["two leases", "lease and cancel", "lease and close", "cancel and close"],
)
def test_a_runner_gets_complete_lines_in_order(acts: tuple[Callable[[ControlPipe], None], ...]) -> None:
    assert_holds(control_lines(*acts), effort=BRIEF)


def test_a_lease_never_goes_back() -> None:
    assert_holds(
        Scenario(
            "two heartbeats",
            lambda: attempt_at(JOB),
            [lambda attempt: attempt.renewed(5.0), lambda attempt: attempt.renewed(7.0)],
            lambda attempt: attempt.lease_until,
            allowed=lambda until: until == 19.0,
            reachable=frozenset({19.0}),
        ),
        effort=BRIEF,
    )


def test_an_attempt_is_abandoned_once() -> None:
    def setup() -> tuple[Attempt, list[bool]]:
        attempt = attempt_at(JOB)
        attempt.stop(StopCause.CANCEL, "stop", 0.0)
        return attempt, []

    def give_up(state: tuple[Attempt, list[bool]]) -> None:
        state[1].append(state[0].escalate(10.0, 1.0))

    assert_holds(
        Scenario(
            "two who give up",
            setup,
            [give_up, give_up],
            lambda state: sorted(state[1]) == [False, True],
            allowed=lambda once: once is True,
            reachable=frozenset({True}),
        ),
        effort=BRIEF,
    )


def test_every_count_counts() -> None:
    assert_holds(
        Scenario(
            "two counts",
            lambda: AttemptTable(OPTIONS),
            [lambda table: table.count("reclaimed"), lambda table: table.count("reclaimed")],
            lambda table: table.statistics().reclaimed,
            allowed=lambda counted: counted == 2,
            reachable=frozenset({2}),
        ),
        effort=BRIEF,
    )


def test_the_stronger_of_two_stops_stays() -> None:
    assert_holds(
        Scenario(
            "drain against lost lease",
            ending(Attempt),
            [
                lambda state: state.attempt.stop(StopCause.DRAIN, "drain", 0.0),
                lambda state: state.attempt.stop(StopCause.LEASE_LOST, "lost", 0.0),
            ],
            lambda state: state.attempt.settle()[0].reason,
            allowed=lambda reason: reason == "lost",
            reachable=frozenset({"lost"}),
        ),
        effort=BRIEF,
    )


# ── Slots, drain and claims ───────────────────────────────────────────────────────────────────────


@dataclass
class Slots:
    """A table with one slot, and its maximum use."""

    table: AttemptTable
    most: list[int] = field(default_factory=list)
    idle: list[bool] = field(default_factory=list)
    claimed_after_drain: list[bool] = field(default_factory=list)

    def work(self) -> None:
        if self.table.reserve():
            attempt = attempt_at(JOB)
            self.table.admit(attempt)
            self.most.append(self.table.statistics().running)
            self.table.leave(attempt)

    def drain(self) -> None:
        self.table.stop_accepting()
        if self.table.wait_idle(0):
            self.idle.append(True)
            self.claimed_after_drain.append(self.table.statistics().running > 0 or self.table.reserve())

    def outcome(self) -> tuple[object, ...]:
        return (max(self.most, default=0), tuple(self.idle), any(self.claimed_after_drain))


def claim_against_claim(kind: type[AttemptTable]) -> Scenario[Slots]:
    return Scenario(
        f"two claims for one slot, {kind.__name__}",
        lambda: Slots(kind(OPTIONS)),
        [Slots.work, Slots.work],
        Slots.outcome,
        allowed=lambda outcome: outcome[0] == 1,
        reachable=frozenset({(1, (), False)}),
    )


def claim_against_drain(kind: type[AttemptTable]) -> Scenario[Slots]:
    """Idle means that nothing runs and nothing is about to."""

    def work(state: Slots) -> None:
        if state.table.reserve():
            attempt = attempt_at(JOB)
            state.table.admit(attempt)
            # It still runs, so the answer "idle" was wrong.
            state.most.append(1 + len(state.idle))
            state.table.leave(attempt)

    return Scenario(
        f"a claim against a drain, {kind.__name__}",
        lambda: Slots(kind(OPTIONS)),
        [work, Slots.drain],
        Slots.outcome,
        allowed=lambda outcome: outcome[0] < 2 and not outcome[2],
        reachable=frozenset({(0, (True,), False), (1, (), False), (1, (True,), False)}),
    )


def going_on(kind: type[AttemptTable]) -> Slots:
    """An attempt that is about to end holds the only slot."""
    slots = Slots(kind(OPTIONS))
    slots.table.reserve()
    slots.table.admit(attempt_at(JOB))
    return slots


def go_on(state: Slots) -> None:
    [ended] = state.table.running()
    if not state.table.may_go_on():
        state.table.leave(ended)
        return
    attempt = attempt_at(JOB)
    state.table.follow(ended, attempt)
    state.most.append(max(state.table.statistics().running, 1 + len(state.idle)))
    state.table.leave(attempt)


def turn_against_claim(kind: type[AttemptTable]) -> Scenario[Slots]:
    """A slot that is passed on is never free in between."""
    return Scenario(
        f"a turn against a claim, {kind.__name__}",
        lambda: going_on(kind),
        [go_on, Slots.work],
        Slots.outcome,
        allowed=lambda outcome: outcome[0] == 1,
        reachable=frozenset({(1, (), False)}),
    )


def turn_against_drain(kind: type[AttemptTable]) -> Scenario[Slots]:
    return Scenario(
        f"a turn against a drain, {kind.__name__}",
        lambda: going_on(kind),
        [go_on, Slots.drain],
        Slots.outcome,
        allowed=lambda outcome: outcome[0] < 2 and not outcome[2],
        reachable=frozenset({(0, (), False), (1, (), False), (1, (True,), False)}),
    )


TURNS = [turn_against_claim, turn_against_drain]


@pytest.mark.parametrize("scenario", TURNS)
def test_catches_a_table_that_frees_a_slot_between_two_attempts(
    scenario: Callable[..., Scenario[Any]],
) -> None:
    assert_caught(scenario(SlotGivenAwayTable), effort=BRIEF)


@pytest.mark.parametrize("scenario", [claim_against_claim, claim_against_drain, *TURNS])
def test_a_worker_takes_no_more_than_it_may(scenario: Callable[..., Scenario[Any]]) -> None:
    assert_holds(scenario(AttemptTable), effort=EFFORT)


@pytest.mark.parametrize("scenario", [claim_against_claim, claim_against_drain])
def test_catches_a_table_that_counts_too_late(scenario: Callable[..., Scenario[Any]]) -> None:
    assert_caught(scenario(UncountedTable), effort=BRIEF)


def test_a_straggler_is_removed_in_either_order() -> None:
    def setup() -> tuple[AttemptTable, Attempt]:
        table = AttemptTable(OPTIONS)
        attempt = attempt_at(JOB)
        assert table.reserve()
        table.admit(attempt)
        return table, attempt

    assert_holds(
        Scenario(
            "left behind against coming back",
            setup,
            [lambda state: state[0].strand(state[1]), lambda state: state[0].leave(state[1])],
            lambda state: (
                state[0].statistics().running,
                state[0].statistics().stragglers,
                state[0].reserve(),
            ),
            allowed=lambda outcome: outcome == (0, 0, True),
            reachable=frozenset({(0, 0, True)}),
        ),
        effort=BRIEF,
    )


def test_an_abandoned_attempt_is_counted_in_one_place() -> None:
    """A reader sees it once, running or abandoned, and its job as held."""

    def setup() -> tuple[AttemptTable, Attempt, list[object]]:
        table = AttemptTable(OPTIONS)
        assert table.reserve()
        table.admit(attempt := attempt_at(JOB))
        return table, attempt, []

    def look(state: tuple[AttemptTable, Attempt, list[object]]) -> None:
        table, _, seen = state
        seen.append(table.holds(JOB.id))
        statistics = table.statistics()
        seen.append((statistics.running, statistics.stragglers))

    right = {(True, (1, 0)), (True, (0, 1))}
    assert_holds(
        Scenario(
            "a look against leaving behind",
            setup,
            [lambda state: state[0].strand(state[1]), look],
            lambda state: tuple(state[2]),
            allowed=lambda seen: seen in right,
            reachable=frozenset(right),
        ),
        effort=BRIEF,
    )


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_counts_are_exact_under_many_threads(interval: float) -> None:
    table = AttemptTable(WorkerOptions(concurrency=8))
    over: list[int] = []

    def work(_: int) -> None:
        for _ in range(200):
            if table.reserve():
                attempt = attempt_at(JOB)
                table.admit(attempt)
                over.append(table.statistics().running)
                table.count("succeeded")
                table.leave(attempt)

    with switch_interval(interval):
        hammer(work)
    assert max(over) <= 8
    assert table.statistics().claimed == table.statistics().succeeded == len(over) == 1600


# ── Owners and peers ──────────────────────────────────────────────────────────────────────────────


@dataclass
class Owners:
    """A job whose owner was silent for a lease, and a peer that noticed."""

    store: InMemoryJobStore
    clock: FakeClock
    attempt: Attempt
    keeper: LeaseKeeper
    peers: list[JobRecovery]
    said: list[str] = field(default_factory=list)

    def finish_late(self) -> None:
        """Write late, although the owner had settled before its lease was over."""
        outcome = AttemptOutcome(JobState.SUCCEEDED, result="owner")
        try:
            self.store.finish(self.attempt.job.id, 1, outcome, now=self.clock.now())
            self.said.append("written")
        except StaleFence:
            self.said.append("refused")

    def take_over(self) -> None:
        if self.peers[0].sweep():
            job = self.store.claim(Elsewhere().identity("b"), ["work"], now=self.clock.now())
            self.said.append(f"runs again {job.fence if job is not None else None}")

    def beat(self) -> None:
        self.keeper.beat()
        self.said.append("kept" if self.attempt.stopped is None else "lost")

    def outcome(self) -> tuple[object, ...]:
        job = self.store.get(self.attempt.job.id)
        return (tuple(sorted(self.said)), job.state.value, job.fence, job.result)


def owners(
    store_kind: type[InMemoryJobStore], recovery: type[JobRecovery] = JobRecovery, watchers: int = 1
) -> Callable[[], Owners]:
    def setup() -> Owners:
        clock = FakeClock()
        store = store_kind(CountingIdentifiers("event"))
        # Inserted directly: explorers step through the set-up, too.
        store._jobs[JOB.id] = JOB
        table = AttemptTable(OPTIONS)
        assert table.reserve()
        attempt = attempt_at(JOB)
        table.admit(attempt)
        keeper = LeaseKeeper(store, clock, table, OPTIONS, NoFaults())
        peers = [
            recovery(store, clock, Elsewhere(), AttemptTable(OPTIONS), options=OPTIONS, faults=NoFaults())
            for _ in range(watchers)
        ]
        for peer in peers:
            peer.sweep()
        clock.advance(15)
        return Owners(store, clock, attempt, keeper, peers)

    return setup


def finish_against_takeover(store_kind: type[InMemoryJobStore]) -> Scenario[Owners]:
    """The late write comes first, or it is refused; never two owners, never a lost job."""
    right = {
        (("written",), "succeeded", 1, "owner"),
        (("refused", "runs again 2"), "running", 2, None),
    }
    return Scenario(
        f"a late finish against a peer, {store_kind.__name__}",
        owners(store_kind),
        [Owners.finish_late, Owners.take_over],
        Owners.outcome,
        allowed=lambda outcome: outcome in right,
        reachable=frozenset(right),
    )


def test_a_stale_owner_is_refused_in_every_order() -> None:
    assert_holds(finish_against_takeover(InMemoryJobStore), effort=EFFORT)


def test_catches_a_store_without_fences() -> None:
    assert_caught(finish_against_takeover(UnfencedStore), effort=BRIEF)


def test_a_beat_in_the_last_moment_keeps_the_job_or_loses_it_but_not_both() -> None:
    right = {
        (("kept",), "running", 1, None),
        (("lost", "runs again 2"), "running", 2, None),
    }
    assert_holds(
        Scenario(
            "a heartbeat against a reclaim",
            owners(InMemoryJobStore),
            [Owners.beat, Owners.take_over],
            Owners.outcome,
            allowed=lambda outcome: outcome in right,
            reachable=frozenset(right),
        ),
        effort=EFFORT,
    )


def test_two_peers_that_see_the_same_silence_take_the_job_once() -> None:
    once = (("0", "1"), "queued", 1, None)
    assert_holds(
        Scenario(
            "two peers",
            owners(InMemoryJobStore, watchers=2),
            [
                lambda state: state.said.append(str(state.peers[0].sweep())),
                lambda state: state.said.append(str(state.peers[1].sweep())),
            ],
            Owners.outcome,
            allowed=lambda outcome: outcome == once,
            reachable=frozenset({once}),
        ),
        effort=EFFORT,
    )


@pytest.mark.parametrize(
    ("recovery", "right"), [(JobRecovery, True), (WallClockRecovery, False)], ids=["observed", "wall clock"]
)
def test_a_jump_of_the_wall_clock_takes_no_job_from_an_owner_that_lives(
    recovery: type[JobRecovery], right: bool
) -> None:
    state = owners(InMemoryJobStore, recovery)()
    state.beat()
    state.clock.jump(3600)
    assert (state.peers[0].sweep() == 0) is right


def test_a_cancel_from_another_thread_against_the_whole_run() -> None:
    """Through the worker itself: the store's answer and the job's end agree."""

    @dataclass
    class Run:
        worker: AsyncWorker
        store: InMemoryJobStore
        work: list[Callable[[], None]]

    def setup() -> Run:
        clock = FakeClock()
        store = InMemoryJobStore(CountingIdentifiers("job"))
        spawned: list[Callable[[], None]] = []
        worker = AsyncWorker(
            store,
            {"work": JobHandler(lambda job: "done")},
            clock,
            Elsewhere(),
            OPTIONS,
            spawn=lambda _, work: spawned.append(work),
        )
        store.submit(NewJob("work"), now=clock.now())
        worker._claim_ready()
        return Run(worker, store, spawned)

    def cancel(state: Run) -> None:
        from cleveragents.core.errors import JobAlreadyEnded

        try:
            state.worker.cancel("job-000001", "stop")
        except JobAlreadyEnded:
            return

    right = {("succeeded", "done", False), ("succeeded", "done", True), ("cancelled", "done", True)}
    assert_holds(
        Scenario(
            "cancel against run",
            setup,
            [cancel, lambda state: state.work[0]()],
            lambda state: (
                (job := state.store.get("job-000001")).state.value,
                job.result,
                job.cancel_reason is not None,
            ),
            allowed=lambda outcome: outcome in right,
            reachable=frozenset(right),
        ),
        effort=EFFORT,
    )


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_every_job_is_run_once_by_whichever_worker(interval: float) -> None:
    clock = FakeClock()
    store = InMemoryJobStore(CountingIdentifiers("job"))
    ran: list[str] = []
    workers = [
        AsyncWorker(
            store,
            {"work": JobHandler(lambda job: ran.append(job.id))},
            clock,
            Elsewhere(),
            WorkerOptions(name=f"w{n}"),
            spawn=lambda _, work: work(),
        )
        for n in range(4)
    ]
    ids = [store.submit(NewJob("work"), now=clock.now()).id for _ in range(200)]
    with switch_interval(interval):
        hammer(lambda n: workers[n]._claim_ready(), threads=4)
    assert sorted(ran) == ids
    assert sum(worker.statistics().succeeded for worker in workers) == 200


def test_a_wake_is_not_lost_between_two_steps() -> None:
    """A service that is woken during a step steps again."""
    from cleveragents.jobs.service_thread import ServiceThread

    stepping = threading.Event()
    go_on = threading.Event()
    steps = threading.Semaphore(0)

    def step() -> float:
        stepping.set()
        go_on.wait(20)
        steps.release()
        return 60.0

    service = ServiceThread("service", step, pause_seconds=60)
    service.start()
    assert stepping.wait(20)
    service.wake()
    go_on.set()
    assert steps.acquire(timeout=20)
    assert steps.acquire(timeout=20), "the wake was lost"
    service.stop()
    assert service.join(20)
