"""The `JobStore` contract, over memory, SQLite and PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from cleveragents.core.errors import (
    DuplicateKey,
    IllegalJobMove,
    InvalidPayload,
    JobAlreadyEnded,
    StaleFence,
    StoreBusy,
    UnknownJob,
)
from cleveragents.core.event import EventType
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.json_value import freeze
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, NewJob
from cleveragents.jobs.ports import Heartbeat, JobStore
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import open_database
from cleveragents.storage.tables import outbox
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.postgres import PostgresServer
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.ready_database import ready_database

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)
ANN = WorkerIdentity("ann", "here", 4711, 99)
BOB = WorkerIdentity("bob", "there", 4712, 2**40)

EventTypes = Callable[[], Sequence[EventType]]


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)],
)
def stand(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer
) -> Iterator[tuple[JobStore, EventTypes]]:
    """Return a store, and the types of its events, in order."""
    if request.param == "memory":
        memory = InMemoryJobStore(CountingIdentifiers("id"))
        yield memory, lambda: [event.event_type for event in memory.events()]
        return
    url = ready_database(tmp_path / "jobs.db") if request.param == "sqlite" else postgres.ready_url()
    with open_database(url) as database:

        def kept() -> Sequence[EventType]:
            with database.read() as connection:
                rows = connection.execute(select(outbox.c.event_type).order_by(outbox.c.number))
                return [EventType(name) for name in rows.scalars()]

        yield SqlJobStore(database, CountingIdentifiers("id")), kept
    if request.param == "postgresql":
        postgres.drop(url)


@pytest.fixture
def store(stand: tuple[JobStore, EventTypes]) -> JobStore:
    return stand[0]


@pytest.fixture
def events(stand: tuple[JobStore, EventTypes]) -> EventTypes:
    return stand[1]


def running(store: JobStore, **of: object) -> Job:
    """Return a job that Ann has claimed."""
    store.submit(NewJob("build", **of), now=NOW)
    job = store.claim(ANN, ["build"], now=NOW)
    assert job is not None
    return job


def test_a_submitted_job_is_queued_unchanged(store: JobStore) -> None:
    payload = {"text": "ünï \0 \ud800", "numbers": [1, 2.5, 2**70, None, True], "deep": {"er": {}}}
    job = store.submit(NewJob("build", payload, priority=-3, max_attempts=7, key="k"), now=NOW)
    assert job == Job(
        id=job.id, kind="build", payload=NewJob("build", payload).payload, state=JobState.QUEUED,
        priority=-3, attempt=0, max_attempts=7, fence=0, beat=0,
        created_at=NOW, updated_at=NOW, not_before=NOW, key="k",
    )  # fmt: skip
    assert store.get(job.id) == job


def test_a_claim_makes_the_caller_owner_under_a_new_fence(store: JobStore) -> None:
    queued = store.submit(NewJob("build"), now=NOW)
    job = store.claim(BOB, ["test", "build"], now=LATER)
    assert job == replace(queued, state=JobState.RUNNING, attempt=1, fence=1, owner=BOB, updated_at=LATER)
    assert store.get(queued.id) == job
    assert store.claim(ANN, ["build"], now=LATER) is None


def test_claims_go_by_priority_then_age_within_the_given_kinds(store: JobStore) -> None:
    for kind, priority in [("a", 0), ("a", 5), ("b", 9), ("a", 5), ("c", 7)]:
        store.submit(NewJob(kind, {"n": priority}, priority=priority), now=NOW)
    ids = [job.id for job in store.list()]
    order = []
    while (job := store.claim(ANN, {"a", "c"}, now=NOW)) is not None:
        order.append(ids.index(job.id))
    assert order == [4, 1, 3, 0]
    assert store.claim(ANN, [], now=NOW) is None


def test_a_retried_job_waits_for_its_time_whatever_its_priority(store: JobStore) -> None:
    urgent = running(store, priority=9)
    store.finish(urgent.id, 1, AttemptOutcome(JobState.QUEUED, error="no", retry_at=LATER), now=NOW)
    other = store.submit(NewJob("build"), now=NOW)
    first = store.claim(ANN, ["build"], now=LATER - timedelta(microseconds=1))
    assert first is not None
    assert first.id == other.id
    assert store.claim(ANN, ["build"], now=LATER - timedelta(microseconds=1)) is None
    again = store.claim(BOB, ["build"], now=LATER)
    assert again is not None
    assert (again.id, again.fence, again.attempt, again.error) == (urgent.id, 2, 2, "no")


def test_a_repeated_key_returns_the_first_job_and_submits_nothing(
    store: JobStore, events: EventTypes
) -> None:
    new = NewJob("build", {"a": [1]}, key="once")
    first = store.submit(new, now=NOW)
    assert store.submit(NewJob("build", {"a": [1]}, key="once"), now=LATER) == first
    assert store.list() == [first]
    for other in (
        NewJob("test", {"a": [1]}, key="once"),
        NewJob("build", {"a": [2]}, key="once"),
        NewJob("build", {"a": [1]}, priority=1, key="once"),
        NewJob("build", {"a": [1]}, max_attempts=9, key="once"),
    ):
        with pytest.raises(DuplicateKey):
            store.submit(other, now=LATER)
    assert list(events()) == [EventType.JOB_SUBMITTED]


def test_a_heartbeat_counts_and_reports_a_cancel(store: JobStore) -> None:
    job = running(store)
    assert store.heartbeats({job.id: 1}, now=LATER)[job.id] == Heartbeat(1, None)
    store.request_cancel(job.id, "enough", now=LATER)
    assert store.heartbeats({job.id: 1}, now=LATER)[job.id] == Heartbeat(2, "enough")
    assert (store.get(job.id).beat, store.get(job.id).updated_at) == (2, LATER)


def test_a_lost_job_does_not_affect_the_heartbeats_of_others(store: JobStore) -> None:
    lost, kept = running(store), running(store)
    heard = store.heartbeats({lost.id: 2, "nobody": 1, kept.id: 1}, now=LATER)
    assert heard == {kept.id: Heartbeat(1, None)}
    assert (store.get(lost.id).beat, store.get(kept.id).beat) == (0, 1)


def test_cancels_are_reported_to_the_owner(store: JobStore) -> None:
    wanted, other, lost = (running(store) for _ in range(3))
    store.request_cancel(wanted.id, "enough", now=NOW)
    store.request_cancel(lost.id, "enough, too", now=NOW)
    held = {wanted.id: wanted.fence, other.id: other.fence, lost.id: lost.fence + 1}
    assert store.cancels(held) == {wanted.id: "enough"}
    store.finish(wanted.id, wanted.fence, AttemptOutcome(JobState.CANCELLED), now=NOW)
    assert store.cancels(held) == {}


@pytest.mark.parametrize(
    "outcome",
    [
        AttemptOutcome(JobState.SUCCEEDED, result={"answer": [42, "ü", None]}),
        AttemptOutcome(JobState.SUCCEEDED),
        AttemptOutcome(JobState.FAILED, error="broke \0 \udcff"),
        AttemptOutcome(JobState.CANCELLED, error="stopped"),
    ],
)
def test_finish_ends_the_job_with_its_outcome(store: JobStore, outcome: AttemptOutcome) -> None:
    job = running(store)
    done = store.finish(job.id, 1, outcome, now=LATER)
    assert store.get(job.id) == done
    assert (done.state, done.owner, done.updated_at) == (outcome.state, None, LATER)
    assert done.result == freeze(outcome.result)
    error = outcome.error and outcome.error.replace("\0", "\\0").replace("\udcff", "\\udcff")
    assert done.error == error
    assert store.claim(ANN, ["build"], now=LATER) is None


def test_a_job_out_of_attempts_fails_instead_of_being_queued(store: JobStore) -> None:
    job = running(store, max_attempts=1)
    done = store.finish(job.id, 1, AttemptOutcome(JobState.QUEUED, error="no", retry_at=LATER), now=NOW)
    assert (done.state, done.error) == (JobState.FAILED, "no")
    assert store.get(job.id) == done


def test_a_cancelled_job_is_not_queued_again(store: JobStore) -> None:
    job = running(store)
    store.request_cancel(job.id, "enough", now=NOW)
    done = store.finish(job.id, 1, AttemptOutcome(JobState.QUEUED, error="no"), now=LATER)
    assert (done.state, done.cancel_reason) == (JobState.CANCELLED, "enough")


def test_work_completed_before_the_cancel_was_seen_has_succeeded(store: JobStore) -> None:
    job = running(store)
    store.request_cancel(job.id, "enough", now=NOW)
    assert store.finish(job.id, 1, AttemptOutcome(JobState.SUCCEEDED), now=LATER).state is JobState.SUCCEEDED


def test_cancel_ends_a_queued_job_marks_a_running_one_and_refuses_an_ended_one(
    store: JobStore, events: EventTypes
) -> None:
    queued = store.submit(NewJob("build"), now=NOW)
    cancelled = store.request_cancel(queued.id, "enough", now=LATER)
    assert (cancelled.state, cancelled.cancel_reason) == (JobState.CANCELLED, "enough")
    with pytest.raises(JobAlreadyEnded):
        store.request_cancel(queued.id, "again", now=LATER)
    assert store.get(queued.id) == cancelled

    job = running(store)
    marked = store.request_cancel(job.id, "first", now=LATER)
    assert marked == replace(job, cancel_reason="first", updated_at=LATER)
    assert store.request_cancel(job.id, "second", now=LATER) == marked
    assert list(events())[-2:] == [EventType.JOB_CLAIMED, EventType.JOB_CANCEL_REQUESTED]


def test_a_reclaimed_job_is_queued_at_once_or_ended(store: JobStore) -> None:
    job = running(store, max_attempts=2)
    store.heartbeats({job.id: 1}, now=NOW)
    queued = store.reclaim(job.id, 1, 1, error="silent", now=LATER)
    assert (queued.state, queued.owner, queued.error, queued.not_before) == (
        JobState.QUEUED, None, "silent", LATER,
    )  # fmt: skip
    again = store.claim(BOB, ["build"], now=LATER)
    assert again is not None
    assert (again.fence, again.beat, again.attempt) == (2, 0, 2)
    assert store.reclaim(job.id, 2, 0, error="silent", now=LATER).state is JobState.FAILED

    asked = running(store)
    store.request_cancel(asked.id, "enough", now=NOW)
    assert store.reclaim(asked.id, 1, 0, error="silent", now=LATER).state is JobState.CANCELLED


def _heartbeat(store: JobStore, job: Job, fence: int) -> object:
    heard = store.heartbeats({job.id: fence}, now=LATER)
    if not heard:
        raise StaleFence(job.id, fence)
    return heard


def _finish(store: JobStore, job: Job, fence: int) -> object:
    return store.finish(job.id, fence, AttemptOutcome(JobState.SUCCEEDED), now=LATER)


def _reclaim(store: JobStore, job: Job, fence: int) -> object:
    return store.reclaim(job.id, fence, store.get(job.id).beat, error="silent", now=LATER)


@pytest.mark.parametrize("write", [_heartbeat, _finish, _reclaim])
def test_a_write_under_a_fence_that_is_not_the_owners_is_refused_and_changes_nothing(
    store: JobStore, events: EventTypes, write: Callable[[JobStore, Job, int], object]
) -> None:
    job = running(store)

    def refused(fence: int) -> None:
        before, told = store.get(job.id), list(events())
        with pytest.raises(StaleFence):
            write(store, job, fence)
        assert store.get(job.id) == before
        assert list(events()) == told

    refused(2)
    store.reclaim(job.id, 1, 0, error="silent", now=NOW)
    refused(1)  # queued: no owner
    store.claim(BOB, ["build"], now=NOW)
    refused(1)  # Bob's
    store.finish(job.id, 2, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
    refused(2)  # ended


def test_does_not_reclaim_from_an_owner_with_a_new_heartbeat(store: JobStore) -> None:
    job = running(store)
    store.heartbeats({job.id: 1}, now=NOW)
    with pytest.raises(StaleFence):
        store.reclaim(job.id, 1, 0, error="silent", now=LATER)
    assert store.get(job.id).state is JobState.RUNNING


def test_each_move_is_one_event(store: JobStore, events: EventTypes) -> None:
    job = running(store)
    store.heartbeats({job.id: 1}, now=NOW)
    store.finish(job.id, 1, AttemptOutcome(JobState.QUEUED, error="no"), now=NOW)
    store.claim(ANN, ["build"], now=NOW)
    store.reclaim(job.id, 2, 0, error="silent", now=NOW)
    store.claim(BOB, ["build"], now=NOW)
    store.request_cancel(job.id, "enough", now=NOW)
    store.finish(job.id, 3, AttemptOutcome(JobState.CANCELLED), now=NOW)
    failing = running(store)
    store.finish(failing.id, 1, AttemptOutcome(JobState.FAILED, error="no"), now=NOW)
    done = running(store)
    store.finish(done.id, 1, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
    assert [event.value.removeprefix("job.") for event in events()] == [
        "submitted", "claimed", "retried", "claimed", "reclaimed", "claimed", "cancel_requested", "cancelled",
        "submitted", "claimed", "failed",
        "submitted", "claimed", "succeeded",
    ]  # fmt: skip


def test_jobs_are_listed_by_kind(store: JobStore) -> None:
    store.submit(NewJob("build"), now=NOW)
    test = store.submit(NewJob("test"), now=NOW)
    assert store.list(kind="test") == [test]
    assert store.list(kind="test", states=[JobState.RUNNING]) == []
    assert store.list(kind="lint") == []


def test_jobs_are_listed_by_id_by_state_and_by_cursor(store: JobStore) -> None:
    made = [store.submit(NewJob("build"), now=NOW) for _ in range(5)]
    claimed = store.claim(ANN, ["build"], now=NOW)
    assert [job.id for job in store.list()] == sorted(job.id for job in made)
    assert store.list(states=[JobState.RUNNING]) == [claimed]
    assert len(store.list(states=[JobState.RUNNING, JobState.QUEUED])) == 5
    seen: list[Job] = []
    while page := store.list(limit=2, after=seen[-1].id if seen else None):
        assert len(page) <= 2
        seen.extend(page)
    assert seen == list(store.list())


def test_refuses_an_invalid_request_and_stores_nothing(store: JobStore, events: EventTypes) -> None:
    for call in (
        lambda: store.get("nobody"),
        lambda: store.finish("nobody", 1, AttemptOutcome(JobState.FAILED), now=NOW),
        lambda: store.request_cancel("nobody", "why", now=NOW),
        lambda: store.reclaim("nobody", 1, 0, error="e", now=NOW),
    ):
        with pytest.raises(UnknownJob):
            call()
    for new in (
        lambda: NewJob("build", {"a": {1, 2}}),
        lambda: NewJob("build", {"a": float("nan")}),
        lambda: NewJob("a\0b"),
        lambda: NewJob("build", key="half \ud800"),
        lambda: NewJob("build", priority=2**31),
    ):
        with pytest.raises(InvalidPayload):
            store.submit(new(), now=NOW)
    assert list(store.list()) == []
    assert list(events()) == []

    job = running(store)
    with pytest.raises(InvalidPayload):
        store.finish(
            job.id, 1, AttemptOutcome(JobState.SUCCEEDED, result={"a": object()}), now=NOW
        )  # type-checked out
    with pytest.raises(IllegalJobMove):
        store.finish(job.id, 1, AttemptOutcome(JobState.RUNNING), now=NOW)
    assert store.get(job.id) == job


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_many_claimers_get_each_fence_once_and_no_job_twice(store: JobStore, interval: float) -> None:
    jobs, threads, rounds = 24, 8, 2
    for number in range(jobs):
        store.submit(NewJob("build", {"n": number}, max_attempts=rounds), now=NOW)
    got: list[tuple[str, int]] = []

    def work(number: int) -> None:
        me = WorkerIdentity(f"w{number}", "here", number + 1, 1)
        while (job := store.claim(me, ["build"], now=NOW)) is not None:
            got.append((job.id, job.fence))
            # A claimer skips a row that another is looking at.
            while not store.heartbeats({job.id: job.fence}, now=NOW)[job.id].heard:
                pass
            state = JobState.QUEUED if job.attempt < rounds else JobState.SUCCEEDED
            store.finish(job.id, job.fence, AttemptOutcome(state), now=NOW)

    with switch_interval(interval):
        hammer(work, threads=threads)
    assert set(Counter(got).values()) == {1}
    assert sorted(got) == sorted((job.id, fence) for job in store.list() for fence in (1, 2))
    assert {(job.state, job.beat) for job in store.list()} == {(JobState.SUCCEEDED, 1)}


def test_many_submitters_of_one_key_get_one_job(store: JobStore, events: EventTypes) -> None:
    got: list[str] = []
    hammer(lambda number: got.append(store.submit(NewJob("build", key="once"), now=NOW).id))
    assert len(got) == 8
    assert len(set(got)) == 1
    assert list(events()) == [EventType.JOB_SUBMITTED]


def test_one_of_many_ends_of_an_attempt_succeeds(store: JobStore, events: EventTypes) -> None:
    job = running(store)
    won: list[str] = []

    def finish(number: int) -> None:
        if number % 2:
            store.finish(job.id, 1, AttemptOutcome(JobState.SUCCEEDED, result=number), now=NOW)
        else:
            store.reclaim(job.id, 1, 0, error=str(number), now=NOW)
        won.append(str(number))

    def attempt(number: int) -> None:
        with suppress(StaleFence, StoreBusy):  # a reclaim does not wait for an end in progress
            finish(number)

    hammer(attempt)
    assert len(won) == 1
    end = store.get(job.id)
    assert won[0] in (str(end.result), end.error)
    assert len(events()) == 3
