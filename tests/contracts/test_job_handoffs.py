"""An end and the claim that follows it, over memory, SQLite and PostgreSQL: one step, several in a write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from cleveragents.core.errors import CleverAgentsError, Conflict, StaleFence, StoreBusy, UnknownJob
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, Lane, Move, NewJob
from cleveragents.jobs.ports import Heartbeat, JobClaim, JobHandoff, JobStore
from cleveragents.jobs.store.claimable import HandoffRequest, JobHandoffs
from cleveragents.jobs.store.rows import ensure_owned, hold_in_order
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.tables import jobs, outbox
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.contracts.test_job_bounds import holds_a_kind, wait_until, waits_for_a_kind
from tests.postgres import PostgresServer
from tests.races.hammer import hammer
from tests.ready_database import ready_database

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN = WorkerIdentity("ann", "here", 4711, 99)
BUILDS = JobClaim(ANN, frozenset({"build"}))
DONE = AttemptOutcome(JobState.SUCCEEDED)
PATIENCE_SECONDS = 30.0
DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Iterator[str]:
    if request.param == "sqlite":
        yield ready_database(tmp_path / "jobs.db")
        return
    made = postgres.ready_url()
    yield made
    postgres.drop(made)


@pytest.fixture(params=["memory", *DATABASES])
def store(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Iterator[JobStore]:
    if request.param == "memory":
        yield InMemoryJobStore(CountingIdentifiers("id"))
        return
    url = ready_database(tmp_path / "jobs.db") if request.param == "sqlite" else postgres.ready_url()
    with open_database(url) as database:
        yield SqlJobStore(database, CountingIdentifiers("id"))
    if request.param == "postgresql":
        postgres.drop(url)


def submit(store: JobStore, name: str, *, kind: str = "build", **more: object) -> str:
    return store.submit(NewJob(kind, {"name": name}, **more), now=NOW).id


def claimed(store: JobStore, **more: object) -> Job:
    job = store.claim(ANN, ["build"], now=NOW, **more)
    assert job is not None
    return job


def following(turn: JobHandoff) -> str | None:
    return None if turn.following is None else str(turn.following.payload["name"])


def test_an_end_claims_the_most_urgent_job_under_a_new_fence(store: JobStore) -> None:
    for name, priority in (("first", 9), ("low", 0), ("high", 5), ("other", 7)):
        submit(store, name, kind="test" if name == "other" else "build", priority=priority)
    job = claimed(store)
    turn = store.finish_and_claim(job.id, 1, DONE, BUILDS, now=NOW)
    assert turn.ended == store.get(job.id)
    assert turn.ended.state is JobState.SUCCEEDED
    assert turn.following is not None
    assert turn.following == store.get(turn.following.id)
    assert (turn.following.owner, turn.following.fence, turn.following.attempt) == (ANN, 1, 1)
    assert following(turn) == "high"
    again = store.finish_and_claim(turn.following.id, 1, DONE, BUILDS, now=NOW)
    assert following(again) == "low"
    assert again.following is not None
    last = store.finish_and_claim(again.following.id, 1, DONE, BUILDS, now=NOW)
    assert last.following is None, "the one that is left is of another kind"


def test_a_worker_that_lost_its_job_claims_no_other(store: JobStore) -> None:
    submit(store, "first")
    job = claimed(store)
    submit(store, "second")
    with pytest.raises(StaleFence):
        store.finish_and_claim(job.id, 2, DONE, BUILDS, now=NOW)
    with pytest.raises(UnknownJob):
        store.finish_and_claim("nobody", 1, DONE, BUILDS, now=NOW)
    assert [job.state for job in store.list()] == [JobState.RUNNING, JobState.QUEUED]


def test_a_place_that_the_end_leaves_is_free_for_the_claim(store: JobStore) -> None:
    lane = (Lane("project", 1),)
    for name in ("first", "second"):
        submit(store, name, lanes=lane)
    for name in ("third", "fourth"):
        submit(store, name, at_most=1)
    turns = [store.finish_and_claim(claimed(store).id, 1, DONE, BUILDS, now=NOW)]
    for _ in range(3):
        ended = turns[-1].following
        assert ended is not None
        turns.append(store.finish_and_claim(ended.id, 1, DONE, BUILDS, now=NOW))
    assert [following(turn) for turn in turns] == ["second", "third", "fourth", None]


def test_skips_jobs_at_a_shared_limit(store: JobStore) -> None:
    submit(store, "holds", lanes=(Lane("project", 1),))
    submit(store, "ends")
    claimed(store)
    ends = claimed(store)
    submit(store, "waits", lanes=(Lane("project", 1),))
    submit(store, "goes")
    assert following(store.finish_and_claim(ends.id, 1, DONE, BUILDS, now=NOW)) == "goes"


def test_a_job_that_is_put_back_can_be_had_by_others(store: JobStore) -> None:
    submit(store, "only")
    job = claimed(store)
    turn = store.finish_and_claim(job.id, 1, AttemptOutcome(JobState.QUEUED, error="no"), BUILDS, now=NOW)
    assert turn.ended.state is JobState.QUEUED
    again = turn.following or store.claim(ANN, ["build"], now=NOW)
    assert again is not None
    assert (again.id, again.fence) == (job.id, 2)


def test_however_many_take_turns_at_once_each_job_runs_once(store: JobStore) -> None:
    for number in range(40):
        submit(store, str(number), lanes=(Lane("project", 2),) if number % 5 == 0 else ())
    ran: list[tuple[str, int]] = []

    def work(_: int) -> None:
        job = store.claim(ANN, ["build"], now=NOW)
        while job is not None:
            ran.append((job.id, job.fence))
            turn = store.finish_and_claim(job.id, job.fence, DONE, BUILDS, now=NOW)
            job = turn.following or store.claim(ANN, ["build"], now=NOW)

    hammer(work, threads=5)
    assert sorted(ran) == [(job.id, 1) for job in store.list()]
    assert {job.state for job in store.list()} == {JobState.SUCCEEDED}


# ── one transaction for several ─────────────────────────────────────────────────────────────────


class HeldBack:
    """Counts transactions, and holds one back before its commit, once it is armed, until `go_on` says so."""

    def __init__(self) -> None:
        self.go_on: Callable[[], bool] = lambda: True
        self.armed = False
        self.commits = 0

    def reach(self, name: str) -> None:
        if name == "store.write.before_commit" and self.armed:
            self.armed = False
            wait_until(self.go_on)
        self.commits += name == "store.write.after_commit"


class Together:
    """Turns of several threads: the first is held back until the others wait for it."""

    def __init__(self, store: SqlJobStore, held: HeldBack, handoffs: Sequence[tuple[str, int]]) -> None:
        self.answers: dict[str, JobHandoff | Exception] = {}
        self._store = store
        threads = [threading.Thread(target=self._turn, args=handoff) for handoff in handoffs]
        held.go_on = lambda: len(store._turns._group._queue) == len(threads) - 1
        held.armed = True
        threads[0].start()
        wait_until(lambda: not held.armed)
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)

    def _turn(self, job_id: str, fence: int) -> None:
        try:
            self.answers[job_id] = self._store.finish_and_claim(job_id, fence, DONE, BUILDS, now=NOW)
        except Exception as error:
            self.answers[job_id] = error

    def got(self) -> list[str]:
        """The names of the jobs that were given out."""
        turns = [answer for answer in self.answers.values() if isinstance(answer, JobHandoff)]
        return sorted(name for turn in turns if (name := following(turn)) is not None)


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_concurrent_handoffs_share_the_next_transaction(url: str) -> None:
    held = HeldBack()
    with open_database(url, faults=held) as database:
        store = SqlJobStore(database, CountingIdentifiers("id"))
        for number in range(9):
            submit(store, str(number))
        ids = [claimed(store).id for _ in range(4)]
        before = held.commits
        together = Together(store, held, [(ids[0], 1), (ids[1], 1), (ids[2], 7), (ids[3], 1)])
        assert held.commits == before + 2
        assert isinstance(together.answers[ids[2]], StaleFence), "and nobody else minds"
        assert together.got() == ["4", "5", "6"]
        running = {job.id for job in store.list(states=[JobState.RUNNING])}
        assert len(running) == 4, "no job is claimed for who has no place for it"
        with database.read() as connection:
            told = connection.execute(select(outbox.c.event_type)).scalars().all()
        assert (told.count("job.claimed"), told.count("job.succeeded")) == (7, 3)


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_of_two_who_end_the_same_attempt_in_one_transaction_one_does(url: str) -> None:
    with open_database(url) as database:
        turns = JobHandoffs(database, CountingIdentifiers("t"))
        store = SqlJobStore(database, CountingIdentifiers("id"))
        for name in "abc":
            submit(store, name)
        handoff = HandoffRequest(claimed(store).id, 1, DONE, BUILDS, NOW)
        first, second = turns._commit([handoff, handoff])
        assert isinstance(first, JobHandoff)
        assert isinstance(second, StaleFence)
        assert len(store.list(states=[JobState.QUEUED])) == 1


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_jobs_with_shared_limits_are_claimed_one_per_transaction_in_order(url: str) -> None:
    """Two who took the locks of several jobs, each in the order of its own, would wait for each other."""
    with open_database(url) as database:
        turns = JobHandoffs(database, CountingIdentifiers("t"))
        store = SqlJobStore(database, CountingIdentifiers("id"))
        for name in ("a", "b", "c"):
            submit(store, name)
        handoffs = [HandoffRequest(claimed(store).id, 1, DONE, BUILDS, NOW) for _ in range(3)]
        submit(store, "plain", priority=3)
        submit(store, "laned", priority=2, lanes=(Lane("x", 1),))
        submit(store, "bounded", priority=1, at_most=9)
        submit(store, "last")
        got = [following(turn) for turn in turns._commit(handoffs[:2]) if isinstance(turn, JobHandoff)]
        assert got == ["plain", None], "what comes after is not claimed before what is more urgent"
        got = [following(turn) for turn in turns._commit(handoffs[2:]) if isinstance(turn, JobHandoff)]
        assert got == ["laned"]


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_a_handoff_with_another_claim_ends_with_the_others_and_claims_alone(url: str) -> None:
    with open_database(url) as database:
        turns = JobHandoffs(database, CountingIdentifiers("t"))
        store = SqlJobStore(database, CountingIdentifiers("id"))
        for name in ("a", "b", "c", "d"):
            submit(store, name)
        tests = JobClaim(ANN, frozenset({"test"}))
        one, two = (HandoffRequest(claimed(store).id, 1, DONE, claim, NOW) for claim in (BUILDS, tests))
        answers = turns._commit([one, two])
        assert [following(turn) for turn in answers if isinstance(turn, JobHandoff)] == ["c", None]


@pytest.mark.postgres
def test_an_end_is_kept_though_the_place_for_the_claim_was_lost(postgres: PostgresServer) -> None:
    """Somebody else claims the last place and is not committed: the turn waits, and is overtaken."""
    url = postgres.ready_url()
    held = HeldBack()
    with (
        open_database(url) as watched,
        open_database(url, faults=held) as slow,
        open_database(url) as quick,
    ):
        store = SqlJobStore(quick, CountingIdentifiers("q"))
        submit(store, "ends")
        ends = claimed(store)
        for name in ("first", "second"):
            submit(store, name, lanes=(Lane("project", 1),))
        turns: list[JobHandoff] = []
        held.go_on = lambda: bool(turns) or waits_for_a_kind(watched)
        held.armed = True
        other = SqlJobStore(slow, CountingIdentifiers("s"))
        one = threading.Thread(target=lambda: other.claim(ANN, ["build"], now=NOW))
        one.start()
        wait_until(lambda: holds_a_kind(watched))
        turns.append(store.finish_and_claim(ends.id, 1, DONE, BUILDS, now=NOW))
        one.join(PATIENCE_SECONDS)
        assert turns == [JobHandoff(store.get(ends.id), None)]
        assert turns[0].ended.state is JobState.SUCCEEDED
        assert len(store.list(states=[JobState.RUNNING])) == 1
    postgres.drop(url)


# ── a row that somebody holds ────────────────────────────────────────────────────────────────────


@pytest.mark.postgres
def test_a_locked_job_does_not_delay_other_handoffs(postgres: PostgresServer) -> None:
    """An operator's session, or who was stopped in the middle: however long it takes, the others keep their
    leases, end, and are taken from the dead. `patience_seconds` would be over before that."""
    url = postgres.ready_url()
    with open_database(url) as database, open_database(url, patience_seconds=0.2) as hasty:
        store = SqlJobStore(hasty, CountingIdentifiers("id"))
        for name in "abcd":
            submit(store, name)
        held, *others = (claimed(store).id for _ in range(4))
        handoffs = [HandoffRequest(job_id, 1, DONE, BUILDS, NOW) for job_id in (held, others[0])]

        def hold(connection: Connection) -> None:
            connection.execute(select(jobs.c.id).where(jobs.c.id == held).with_for_update()).one()
            heard = store.heartbeats(dict.fromkeys([held, *others], 1), now=NOW)
            assert heard == {held: Heartbeat(0, None, heard=False)} | dict.fromkeys(
                others, Heartbeat(1, None)
            )
            assert store.heartbeats({held: 2}, now=NOW) == {}, "that one has lost it, whoever holds the row"
            waits, ended = store._turns._commit(handoffs)
            assert waits is None
            assert ended == JobHandoff(store.get(others[0]), None)
            with pytest.raises(StoreBusy):  # it waits for itself alone
                store.finish_and_claim(held, 1, DONE, BUILDS, now=NOW)
            with pytest.raises(StoreBusy) as at_once:
                store.reclaim(held, 1, 0, error="silent", now=NOW)
            assert at_once.value.waited_seconds == 0
            assert store.reclaim(others[1], 1, 1, error="silent", now=NOW).state is JobState.QUEUED

        database.write(hold)
        assert store.heartbeats({held: 1, others[1]: 1}, now=NOW) == {held: Heartbeat(1, None)}
        assert store.finish_and_claim(held, 1, DONE, BUILDS, now=NOW).ended.state is JobState.SUCCEEDED
        with pytest.raises(UnknownJob):
            store.reclaim("nobody", 1, 0, error="silent", now=NOW)
    postgres.drop(url)


@pytest.mark.postgres
def test_writes_of_a_plan_and_heartbeats_of_its_job_do_not_block_each_other(
    postgres: PostgresServer,
) -> None:
    url = postgres.ready_url()
    with open_database(url) as database, open_database(url) as another:
        store = SqlJobStore(another, CountingIdentifiers("id"))
        submit(store, "a")
        job_id = claimed(store).id

        def write(connection: Connection) -> None:
            ensure_owned(connection, Fence(job_id, 1))
            assert store.heartbeats({job_id: 1}, now=NOW) == {job_id: Heartbeat(1, None)}
            with pytest.raises(StoreBusy):  # but nobody takes it over meanwhile
                store.reclaim(job_id, 1, 1, error="silent", now=NOW)

        database.write(write)
    postgres.drop(url)


@pytest.mark.postgres
def test_an_end_is_stored_even_if_the_place_for_the_claim_stays_locked(
    postgres: PostgresServer,
) -> None:
    url = postgres.ready_url()
    with open_database(url) as database, open_database(url, patience_seconds=0.2) as hasty:
        store = SqlJobStore(hasty, CountingIdentifiers("id"))
        submit(store, "ends")
        ends = claimed(store).id
        waits = submit(store, "waits", lanes=(Lane("project", 1),))

        def hold(connection: Connection) -> None:
            hold_in_order(connection, ["lane project"])
            turn = store.finish_and_claim(ends, 1, DONE, BUILDS, now=NOW)
            assert (turn.ended.state, turn.following) == (JobState.SUCCEEDED, None)
            assert store.claim(ANN, ["build"], now=NOW) is None
            assert store.claim_this(waits, ANN, now=NOW) is None

        database.write(hold)
        assert claimed(store).id == waits
    postgres.drop(url)


# ── as it is usually written first ──────────────────────────────────────────────────────────────


class ForAllWhoAsk(JobHandoffs):
    """Claims as many as there are askers, and looks afterwards who may have them."""

    def _claims(
        self, connection: Connection, handoffs: Sequence[HandoffRequest], unkept: list[Move]
    ) -> Sequence[Move]:
        return super()._claims(connection, [*handoffs, handoffs[-1]], unkept)


class AllOrNothing(JobHandoffs):
    """One that fails fails for all."""

    def _commit(self, handoffs: Sequence[HandoffRequest]) -> Sequence[JobHandoff | CleverAgentsError]:
        answers = super()._commit(handoffs)
        failed = [answer for answer in answers if isinstance(answer, Conflict)]
        return failed[:1] * len(handoffs) if failed else answers


@pytest.mark.parametrize(("naive", "wrong"), [(ForAllWhoAsk, "unowned"), (AllOrNothing, "told nothing")])
def test_turns_that_are_not_decided_for_each_alone_are_caught(
    tmp_path: Path, naive: type[JobHandoffs], wrong: str
) -> None:
    held = HeldBack()
    with open_database(ready_database(tmp_path / "jobs.db"), faults=held) as database:
        store = SqlJobStore(database, CountingIdentifiers("id"))
        store._turns = naive(database, CountingIdentifiers("t"))
        for number in range(9):
            submit(store, str(number))
        ids = [claimed(store).id for _ in range(4)]
        together = Together(store, held, [(ids[0], 1), (ids[1], 1), (ids[2], 7), (ids[3], 1)])
        assert _complaints(database, store, together) == wrong


def _complaints(database: Database, store: SqlJobStore, together: Together) -> str:
    told = [isinstance(answer, JobHandoff) for answer in together.answers.values()]
    if told.count(True) != 3:
        return "told nothing"
    running = len(store.list(states=[JobState.RUNNING]))
    return "unowned" if running != len(together.got()) + 1 else ""
