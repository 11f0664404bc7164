"""`NewJob.at_most`, over memory, SQLite and PostgreSQL: no more jobs of a kind run at once than that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from cleveragents.core.errors import DuplicateKey
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database, open_database
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.postgres import PostgresServer
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.ready_database import ready_database

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)
ANN = WorkerIdentity("ann", "here", 4711, 99)
DONE = AttemptOutcome(JobState.SUCCEEDED)
PATIENCE_SECONDS = 30.0


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Iterator[JobStore]:
    if request.param == "memory":
        yield InMemoryJobStore(CountingIdentifiers("id"))
        return
    url = ready_database(tmp_path / "jobs.db") if request.param == "sqlite" else postgres.ready_url()
    with open_database(url) as database:
        yield SqlJobStore(database, CountingIdentifiers("id"))
    if request.param == "postgresql":
        postgres.drop(url)


def claimed(store: JobStore, *kinds: str, now: datetime = NOW) -> str | None:
    """The name of the job that Ann gets."""
    job = store.claim(ANN, kinds, now=now)
    return None if job is None else str(job.payload["name"])


def submit(store: JobStore, name: str, kind: str = "tree", at_most: int | None = 1, priority: int = 0) -> str:
    new = NewJob(kind, {"name": name}, priority=priority, at_most=at_most)
    return store.submit(new, now=NOW).id


def test_no_more_of_a_kind_are_claimed_than_its_jobs_allow(store: JobStore) -> None:
    ids = [submit(store, name, at_most=2) for name in "abcd"]
    assert store.get(ids[0]).at_most == 2
    assert [claimed(store, "tree") for _ in range(3)] == ["a", "b", None]
    store.finish(ids[1], 1, DONE, now=NOW)
    assert [claimed(store, "tree") for _ in range(2)] == ["c", None]


def test_a_full_kind_holds_up_no_other(store: JobStore) -> None:
    submit(store, "first", priority=9)
    for number in range(5):
        submit(store, f"waits {number}", priority=9)
    for name, priority in (("low", 0), ("high", 3), ("high too", 3)):
        submit(store, name, kind="other", at_most=None, priority=priority)
    submit(store, "bounded", kind="third", at_most=1, priority=1)
    submit(store, "bounded too", kind="third", at_most=1, priority=1)
    got = [claimed(store, "tree", "other", "third") for _ in range(6)]
    assert got == ["first", "high", "high too", "bounded", "low", None]


def test_the_bound_is_that_of_the_job_which_is_to_be_claimed(store: JobStore) -> None:
    for name, at_most in (("a", 1), ("narrow", 1), ("wide", 3), ("wider", 4), ("free", None)):
        submit(store, name, at_most=at_most)
    assert [claimed(store, "tree") for _ in range(5)] == ["a", "wide", "wider", "free", None]


def test_jobs_without_a_bound_take_places_like_any_other(store: JobStore) -> None:
    free = [submit(store, name, at_most=None) for name in ("a", "b")]
    submit(store, "bounded", at_most=2)
    assert [claimed(store, "tree") for _ in range(3)] == ["a", "b", None]
    store.finish(free[0], 1, DONE, now=NOW)
    assert claimed(store, "tree") == "bounded"


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "retried", "reclaimed"])
def test_a_place_is_free_when_the_attempt_is_over_however_it_ended(store: JobStore, end: str) -> None:
    first = submit(store, "first")
    submit(store, "second")
    assert [claimed(store, "tree") for _ in range(2)] == ["first", None]
    if end == "reclaimed":
        store.reclaim(first, 1, 0, error="silent", now=NOW)
    elif end == "retried":
        store.finish(first, 1, AttemptOutcome(JobState.QUEUED, error="no", retry_at=LATER), now=NOW)
    else:
        store.finish(first, 1, AttemptOutcome(JobState(end)), now=NOW)
    expected = "first" if end == "reclaimed" else "second"
    assert [claimed(store, "tree") for _ in range(2)] == [expected, None]


def test_a_retried_job_waits_for_a_place_again(store: JobStore) -> None:
    first = submit(store, "first")
    second = submit(store, "second")
    claimed(store, "tree")
    store.finish(first, 1, AttemptOutcome(JobState.QUEUED, error="no", retry_at=LATER), now=NOW)
    assert claimed(store, "tree") == "second"
    assert claimed(store, "tree", now=LATER) is None
    store.finish(second, 1, DONE, now=LATER)
    assert claimed(store, "tree", now=LATER) == "first"


def test_another_bound_is_another_submission(store: JobStore) -> None:
    store.submit(NewJob("tree", key="once", at_most=2), now=NOW)
    store.submit(NewJob("tree", key="once", at_most=2), now=NOW)
    for other in (None, 3):
        with pytest.raises(DuplicateKey):
            store.submit(NewJob("tree", key="once", at_most=other), now=NOW)


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_however_many_claim_at_once_no_more_run_than_allowed(store: JobStore, interval: float) -> None:
    bound, threads = 2, 6
    ids = {submit(store, str(number), at_most=bound) for number in range(20)}
    ids |= {submit(store, f"free {number}", kind="other", at_most=None) for number in range(6)}
    seen: list[int] = []

    def work(number: int) -> None:
        me = WorkerIdentity(f"w{number}", "here", number + 1, 1)
        while True:
            job = store.claim(me, ["tree", "other"], now=NOW)
            running = store.list(states=[JobState.RUNNING])
            seen.append(sum(one.kind == "tree" for one in running))
            if job is not None:
                store.finish(job.id, job.fence, DONE, now=NOW)
            elif not running and not store.list(states=[JobState.QUEUED]):
                return

    with switch_interval(interval):
        hammer(work, threads=threads)
    assert max(seen) <= bound
    assert {job.id for job in store.list(states=[JobState.SUCCEEDED])} == ids


# ── PostgreSQL, where claims run beside each other ──────────────────────────────────────────────


class HeldBack:
    """Holds one transaction back before its commit, once it is armed, until `go_on` says so."""

    def __init__(self, go_on: Callable[[], bool]) -> None:
        self._go_on = go_on
        self.armed = False

    def reach(self, name: str) -> None:
        if name == "store.write.before_commit" and self.armed:
            self.armed = False
            wait_until(self._go_on)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.ready_url()
    yield url
    postgres.drop(url)


@pytest.mark.postgres
@pytest.mark.parametrize("kinds", [("tree",), ("tree", "other")])
def test_a_claim_waits_for_one_of_the_same_kind_that_is_not_committed(
    postgres_url: str, kinds: tuple[str, ...]
) -> None:
    """It cannot be seen yet that the last place is taken; whoever is overtaken looks again."""
    with open_database(postgres_url) as watched:
        got: list[str | None] = []

        def waited_for() -> bool:
            return bool(got) or waits_for_a_kind(watched)

        held = HeldBack(waited_for)
        with open_database(postgres_url, faults=held) as slow, open_database(postgres_url) as quick:
            store = SqlJobStore(quick, CountingIdentifiers("q"))
            submit(store, "a")
            submit(store, "b")
            submit(store, "c", kind="other", at_most=None)
            held.armed = True
            first: list[str | None] = []
            one = threading.Thread(
                target=lambda: first.append(claimed(SqlJobStore(slow, CountingIdentifiers("s")), *kinds))
            )
            one.start()
            wait_until(lambda: holds_a_kind(watched))
            got.append(claimed(store, *kinds))
            one.join(PATIENCE_SECONDS)
            assert first == ["a"]
            assert got == [None if kinds == ("tree",) else "c"]


@pytest.mark.postgres
def test_claims_of_other_kinds_and_without_a_limit_do_not_wait(postgres_url: str) -> None:
    done = threading.Event()
    held = HeldBack(done.is_set)
    with (
        open_database(postgres_url) as watched,
        open_database(postgres_url, faults=held) as slow,
        open_database(postgres_url) as quick,
    ):
        store = SqlJobStore(quick, CountingIdentifiers("q"))
        submit(store, "a", priority=1)
        submit(store, "other bounded", kind="other")
        submit(store, "free", kind="free", at_most=None)
        held.armed = True
        slow_store = SqlJobStore(slow, CountingIdentifiers("s"))
        one = threading.Thread(target=claimed, args=(slow_store, "tree"))
        one.start()
        try:
            wait_until(lambda: holds_a_kind(watched))
            assert claimed(store, "tree", "other", "free") == "other bounded"
            assert claimed(store, "tree", "other", "free") == "free"
        finally:
            done.set()
            one.join(PATIENCE_SECONDS)


def holds_a_kind(database: Database) -> bool:
    return _locks(database, granted=True) > 0


def waits_for_a_kind(database: Database) -> bool:
    return _locks(database, granted=False) > 0


def _locks(database: Database, *, granted: bool) -> int:
    query = text(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted = :granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with database.read() as connection:
        return int(connection.execute(query, {"granted": granted}).scalar_one())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
