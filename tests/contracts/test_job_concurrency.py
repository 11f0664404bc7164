"""Shared queues and lanes, over memory, SQLite and PostgreSQL: who may claim what, and how much at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cleveragents.core.errors import DuplicateKey, InvalidPayload, QueueFull
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, Lane, NewJob
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.contracts.test_job_bounds import HeldBack, holds_a_kind, wait_until, waits_for_a_kind
from tests.postgres import PostgresServer
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.ready_database import ready_database

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
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


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.ready_url()
    yield url
    postgres.drop(url)


def submit(store: JobStore, name: str, *lanes: Lane, kind: str = "plan:1", **more: object) -> str:
    new = NewJob(kind, {"name": name}, lanes=lanes, **{"queue": "plans", **more})
    return store.submit(new, now=NOW).id


def claimed(store: JobStore, *kinds: str, queues: tuple[str, ...] = ("plans",)) -> str | None:
    """The name of the job that Ann gets."""
    job = store.claim(ANN, kinds or ["plan"], now=NOW, queues=queues)
    return None if job is None else str(job.payload["name"])


# ── queues ──────────────────────────────────────────────────────────────────────────────────────


def test_a_job_keeps_its_queue_and_its_shared_limits(store: JobStore) -> None:
    lanes = (Lane("provider:ä", 3), Lane("project:a", 1))
    made = store.submit(NewJob("plan:1", queue="plans", lanes=lanes), now=NOW)
    assert (made.queue, made.lanes) == ("plans", (Lane("project:a", 1), Lane("provider:ä", 3)))
    assert store.get(made.id) == made
    assert [*store.list()] == [made]
    job = store.claim(ANN, ["plan"], now=NOW, queues=["plans"])
    assert job is not None
    assert job.lanes == made.lanes
    assert store.finish(job.id, 1, DONE, now=NOW).lanes == made.lanes


def test_a_worker_of_a_kind_does_not_claim_it_from_a_shared_queue(store: JobStore) -> None:
    submit(store, "shared", kind="plan:1")
    assert claimed(store, "plan:1", queues=()) is None
    assert claimed(store, "plan:1", queues=("others", "plan")) is None
    assert claimed(store, "plan:1") == "shared"


def test_a_worker_of_a_shared_queue_does_not_claim_private_jobs(store: JobStore) -> None:
    submit(store, "private", kind="plan:1", queue="", priority=9)
    assert claimed(store, "plan") is None
    submit(store, "named", kind="plan", queue="")
    assert claimed(store, "plan") == "named"


def test_a_shared_queue_gives_what_the_part_before_the_colon_names(store: JobStore) -> None:
    for name, kind in (("a", "plan:1"), ("b", "planner:1"), ("c", "apply:1"), ("d", "plan"), ("e", ":plan")):
        submit(store, name, kind=kind)
    assert [claimed(store, "plan") for _ in range(3)] == ["a", "d", None]
    assert [claimed(store, "apply", "undo") for _ in range(2)] == ["c", None]
    assert claimed(store, "planner:1") == "b"


def test_private_and_shared_jobs_are_taken_in_one_order(store: JobStore) -> None:
    submit(store, "shared", priority=1)
    submit(store, "private", kind="plan", queue="", priority=2)
    submit(store, "shared first", priority=3)
    assert [claimed(store) for _ in range(4)] == ["shared first", "private", "shared", None]


def test_jobs_of_several_queues_are_taken_in_one_order(store: JobStore) -> None:
    submit(store, "here", queue="plans@here", priority=1)
    submit(store, "there", queue="plans@there", priority=9)
    submit(store, "shared", priority=2)
    submit(store, "private", kind="plan", queue="", priority=1)
    submit(store, "here first", Lane("a", 1), queue="plans@here", priority=3)
    submit(store, "no place", Lane("a", 1), priority=3)
    mine = ("plans", "plans@here")
    names = [claimed(store, queues=mine) for _ in range(5)]
    assert names == ["here first", "shared", "here", "private", None]
    assert claimed(store, queues=("plans@there",)) == "there"


def test_another_queue_is_another_submission_but_other_shared_limits_are_not(store: JobStore) -> None:
    """The bounds of lanes are settings, which may have changed since the first time."""
    first = store.submit(NewJob("plan:1", key="once", queue="plans", lanes=(Lane("a", 1),)), now=NOW)
    again = store.submit(NewJob("plan:1", key="once", queue="plans", lanes=(Lane("a", 2),)), now=NOW)
    assert again == first
    with pytest.raises(DuplicateKey):
        store.submit(NewJob("plan:1", key="once"), now=NOW)


@pytest.mark.parametrize("new", [NewJob("a", queue="\0"), NewJob("a", lanes=(Lane("\ud800", 1),))])
def test_names_that_no_database_keeps_are_refused(store: JobStore, new: NewJob) -> None:
    with pytest.raises(InvalidPayload):
        store.submit(new, now=NOW)


def test_a_shared_limit_is_named_once_and_at_least_one() -> None:
    with pytest.raises(ValueError, match="twice"):
        NewJob("a", lanes=(Lane("x", 1), Lane("x", 2)))
    with pytest.raises(ValueError, match="at least 1"):
        Lane("x", 0)


# ── a bounded queue ─────────────────────────────────────────────────────────────────────────────


def test_a_full_queue_takes_no_more_until_some_of_it_is_done(store: JobStore) -> None:
    new = NewJob("plan:1", queue="plans")
    for _ in range(2):
        store.submit(new, now=NOW, queue_bound=2)
    store.submit(NewJob("plan:1", queue="others"), now=NOW, queue_bound=1)
    with pytest.raises(QueueFull):
        store.submit(new, now=NOW, queue_bound=2)
    assert len(store.list()) == 3
    assert store.claim(ANN, ["plan"], now=NOW, queues=["plans"]) is not None
    store.submit(new, now=NOW, queue_bound=2)


def test_a_repeated_submission_to_a_full_queue_returns_the_job(store: JobStore) -> None:
    new = NewJob("plan:1", queue="plans", key="once")
    first = store.submit(new, now=NOW, queue_bound=1)
    assert store.submit(new, now=NOW, queue_bound=1) == first
    # What goes on is let in without a bound.
    store.submit(NewJob("plan:1", queue="plans"), now=NOW)


def test_however_many_submit_at_once_the_queue_holds_no_more(store: JobStore) -> None:
    bound, threads = 7, 6
    refused: list[int] = []

    def work(number: int) -> None:
        for _ in range(3):
            try:
                store.submit(NewJob("plan:1", queue="plans"), now=NOW, queue_bound=bound)
            except QueueFull:
                refused.append(number)

    hammer(work, threads=threads)
    assert len(store.list()) == bound
    assert len(refused) == threads * 3 - bound


# ── lanes ───────────────────────────────────────────────────────────────────────────────────────


def test_claims_stay_within_every_shared_limit(store: JobStore) -> None:
    wide, narrow = Lane("provider", 3), Lane("project:a", 1)
    first = submit(store, "a1", wide, narrow)
    submit(store, "a2", wide, narrow)
    for name in ("b1", "b2", "b3"):
        submit(store, name, wide, Lane("project:b", 5))
    assert [claimed(store) for _ in range(4)] == ["a1", "b1", "b2", None]
    store.finish(first, 1, DONE, now=NOW)
    assert [claimed(store) for _ in range(2)] == ["a2", None]


def test_a_reached_shared_limit_delays_no_other_job(store: JobStore) -> None:
    for number in range(4):
        submit(store, f"full {number}", Lane("project:a", 1), priority=9)
    for number in range(2):
        submit(store, f"full kind {number}", Lane("project:b", 1), kind="plan:2", at_most=1, priority=5)
    submit(store, "in another lane", Lane("project:c", 1))
    submit(store, "in none")
    submit(store, "private", kind="plan", queue="")
    expected = ["full 0", "full kind 0", "in another lane", "in none", "private", None]
    assert [claimed(store) for _ in range(6)] == expected


def test_the_claimed_job_determines_the_shared_limit(store: JobStore) -> None:
    for name, at_most in (("a", 1), ("narrow", 1), ("wide", 3), ("narrow too", 2), ("wider", 3)):
        submit(store, name, Lane("x", at_most))
    assert [claimed(store) for _ in range(4)] == ["a", "wide", "wider", None]


def test_private_jobs_count_for_their_shared_limits(store: JobStore) -> None:
    submit(store, "private", Lane("x", 1), kind="plan", queue="", priority=1)
    submit(store, "shared", Lane("x", 1))
    assert [claimed(store), claimed(store), claimed(store, queues=())] == ["private", None, None]


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "retried", "reclaimed"])
def test_every_end_of_an_attempt_frees_its_place(store: JobStore, end: str) -> None:
    first = submit(store, "first", Lane("x", 1))
    submit(store, "second", Lane("x", 1), priority=-1)
    assert [claimed(store) for _ in range(2)] == ["first", None]
    if end == "reclaimed":
        store.reclaim(first, 1, 0, error="silent", now=NOW)
    elif end == "retried":
        store.finish(first, 1, AttemptOutcome(JobState.QUEUED, error="no"), now=NOW)
    else:
        store.finish(first, 1, AttemptOutcome(JobState(end)), now=NOW)
    expected = "first" if end in ("reclaimed", "retried") else "second"
    assert [claimed(store) for _ in range(2)] == [expected, None]


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_concurrent_claims_never_exceed_a_shared_limit(store: JobStore, interval: float) -> None:
    bounds = {"project:a": 2, "project:b": 1, "provider": 2}
    ids = set()
    for number in range(16):
        project = "project:a" if number % 2 else "project:b"
        lanes = Lane(project, bounds[project]), Lane("provider", bounds["provider"])
        ids.add(submit(store, str(number), *lanes, kind=f"plan:{number % 3}"))
    ids |= {submit(store, f"free {number}") for number in range(4)}
    exceeded: list[object] = []

    def work(number: int) -> None:
        me = WorkerIdentity(f"w{number}", "here", number + 1, 1)
        while True:
            job = store.claim(me, ["plan"], now=NOW, queues=["plans"])
            running = store.list(states=[JobState.RUNNING])
            taken = [lane.name for one in running for lane in one.lanes]
            exceeded.extend(name for name, bound in bounds.items() if taken.count(name) > bound)
            if job is not None:
                store.finish(job.id, job.fence, DONE, now=NOW)
            elif not running and not store.list(states=[JobState.QUEUED]):
                return

    with switch_interval(interval):
        hammer(work, threads=5)
    assert exceeded == []
    assert {job.id for job in store.list(states=[JobState.SUCCEEDED])} == ids


# ── PostgreSQL, where claims run beside each other ──────────────────────────────────────────────


@pytest.mark.postgres
def test_a_claim_waits_for_an_uncommitted_one_of_the_same_shared_limit(postgres_url: str) -> None:
    """It cannot be seen yet that the last place is taken; whoever is overtaken looks again."""
    with open_database(postgres_url) as watched:
        got: list[str | None] = []
        held = HeldBack(lambda: bool(got) or waits_for_a_kind(watched))
        with open_database(postgres_url, faults=held) as slow, open_database(postgres_url) as quick:
            store = SqlJobStore(quick, CountingIdentifiers("q"))
            submit(store, "a", Lane("x", 1), Lane("y", 9), kind="plan:1")
            submit(store, "b", Lane("w", 9), Lane("x", 1), kind="plan:2")
            submit(store, "c", Lane("y", 9), kind="plan:3")
            held.armed = True
            first: list[str | None] = []
            slow_store = SqlJobStore(slow, CountingIdentifiers("s"))
            one = threading.Thread(target=lambda: first.append(claimed(slow_store)))
            one.start()
            wait_until(lambda: holds_a_kind(watched))
            got.append(claimed(store))
            one.join(PATIENCE_SECONDS)
            assert first == ["a"]
            assert got == ["c"]


@pytest.mark.postgres
def test_a_submission_waits_for_one_in_the_same_queue_that_is_not_committed(postgres_url: str) -> None:
    with open_database(postgres_url) as watched:
        ended = threading.Event()
        held = HeldBack(lambda: ended.is_set() or waits_for_a_kind(watched))
        with open_database(postgres_url, faults=held) as slow, open_database(postgres_url) as quick:
            new = NewJob("plan:1", queue="plans")
            held.armed = True
            slow_store = SqlJobStore(slow, CountingIdentifiers("s"))
            one = threading.Thread(target=lambda: slow_store.submit(new, now=NOW, queue_bound=1))
            one.start()
            wait_until(lambda: holds_a_kind(watched))
            store = SqlJobStore(quick, CountingIdentifiers("q"))
            try:
                with pytest.raises(QueueFull):
                    store.submit(new, now=NOW, queue_bound=1)
            finally:
                ended.set()
                one.join(PATIENCE_SECONDS)
            assert len(store.list()) == 1
