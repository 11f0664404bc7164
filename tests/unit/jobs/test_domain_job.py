"""The state machine of a job, and the event of each move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import IllegalJobMove, InvalidPayload
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import (
    AttemptOutcome,
    JobState,
    NewJob,
    claimed,
    ensure_job_move,
    finished,
    reclaimed,
    requested_cancel,
    submitted,
)
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANN = WorkerIdentity("ann", "here", 1, 2)
SECRET = "hunter2"  # must not appear

LEGAL = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("running", "queued"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "cancelled"),
}
ENDINGS = {wanted for state, wanted in LEGAL if state == "running"}


@pytest.mark.parametrize(("state", "wanted"), list(product(JobState, JobState)))
def test_exactly_the_drawn_moves_are_legal(state: JobState, wanted: JobState) -> None:
    if (state.value, wanted.value) in LEGAL:
        ensure_job_move("job", state, wanted)
    else:
        with pytest.raises(IllegalJobMove, match=f"is {state.value} and cannot become {wanted.value}"):
            ensure_job_move("job", state, wanted)


def test_ended_states_have_no_transitions() -> None:
    assert {state for state in JobState if state.ended} == {s for s in JobState if s.value not in dict(LEGAL)}


def test_a_new_job_is_checked_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="max_attempts"):
        NewJob("build", max_attempts=0)
    with pytest.raises(ValueError, match="at_most"):
        NewJob("build", at_most=0)
    with pytest.raises(InvalidPayload, match="payload of a build job"):
        NewJob("build", {"a": object()})
    no_objects: list[Any] = [[1], "text", None, 1]
    for no_object in no_objects:  # stored, it would fail every list and claim of jobs
        with pytest.raises(InvalidPayload, match=r"payload of a build job: .* is not a JSON object"):
            NewJob("build", no_object)
        with pytest.raises(InvalidPayload, match=r"payload of job.claimed: .* is not a JSON object"):
            DomainEvent(EventType.JOB_CLAIMED, "job", "id", NOW, no_object)
    payload = {"list": [1]}
    new = NewJob("build", payload)
    payload["list"].append(2)
    assert new.payload == {"list": (1,)}


def test_no_event_contains_the_payload_or_the_result() -> None:
    queued = submitted(NewJob("build", {"token": SECRET}, max_attempts=2), "job", NOW)
    running = claimed(queued.job, ANN, NOW)
    moves = [
        queued,
        running,
        finished(running.job, AttemptOutcome(JobState.SUCCEEDED, result=SECRET), NOW),
        finished(running.job, AttemptOutcome(JobState.QUEUED, result=SECRET, error="no"), NOW),
        finished(running.job, AttemptOutcome(JobState.QUEUED, handed_on=True), NOW),
        reclaimed(running.job, "silent", NOW),
        requested_cancel(running.job, "enough", NOW),
        requested_cancel(queued.job, "enough", NOW),
    ]
    assert SECRET not in repr([move and move.facts for move in moves])
    assert [move and move.event_type for move in moves] == [
        EventType.JOB_SUBMITTED,
        EventType.JOB_CLAIMED,
        EventType.JOB_SUCCEEDED,
        EventType.JOB_RETRIED,
        EventType.JOB_HANDED_ON,
        EventType.JOB_RECLAIMED,
        EventType.JOB_CANCEL_REQUESTED,
        EventType.JOB_CANCELLED,
    ]


def test_handing_on_the_last_attempt_keeps_the_attempts_left() -> None:
    last = claimed(submitted(NewJob("build", max_attempts=1), "job", NOW).job, ANN, NOW).job
    again = claimed(finished(last, AttemptOutcome(JobState.QUEUED, handed_on=True), NOW).job, ANN, NOW).job
    assert (again.attempt, again.fence) == (1, 2)
    asked = requested_cancel(last, "enough", NOW)
    assert asked is not None
    ended = finished(asked.job, AttemptOutcome(JobState.QUEUED, handed_on=True), NOW).job
    assert ended.state is JobState.CANCELLED


def test_neither_a_job_nor_an_event_keeps_a_secret_from_an_error_or_a_reason() -> None:
    text = f"cannot reach postgresql://bob:{SECRET}@db with PGPASSWORD={SECRET}"
    queued = submitted(NewJob("build", max_attempts=2), "job", NOW).job
    running = claimed(queued, ANN, NOW).job
    asked = requested_cancel(running, text, NOW)
    assert asked is not None
    moves = [
        *(
            finished(running, AttemptOutcome(state, error=text), NOW)
            for state in JobState
            if state.value in ENDINGS
        ),
        finished(asked.job, AttemptOutcome(JobState.CANCELLED, error=text), NOW),
        reclaimed(running, text, NOW),
        reclaimed(asked.job, text, NOW),
        asked,
        requested_cancel(queued, text, NOW),
    ]
    assert SECRET not in repr(moves)
    assert all("bob:***@db with PGPASSWORD=***" in repr(move and move.facts) for move in moves)


def test_events_name_the_worker_the_attempt_and_the_reason() -> None:
    running = claimed(submitted(NewJob("build", max_attempts=1), "job", NOW).job, ANN, NOW)
    facts = {"kind": "build", "attempt": 1, "fence": 1}
    assert running.facts == {**facts, "worker": "ann"}
    failed = finished(running.job, AttemptOutcome(JobState.QUEUED, error="no"), NOW)
    assert (failed.event_type, failed.facts) == (EventType.JOB_FAILED, {**facts, "error": "no"})
    asked = requested_cancel(running.job, "enough", NOW)
    assert asked is not None
    assert asked.facts == {**facts, "reason": "enough"}
    ended = finished(asked.job, AttemptOutcome(JobState.CANCELLED), NOW)
    assert ended.facts == {**facts, "reason": "enough"}


def test_a_retry_without_a_moment_is_due_at_once() -> None:
    running = claimed(submitted(NewJob("build"), "job", NOW).job, ANN, NOW).job
    later = NOW + timedelta(seconds=5)
    assert finished(running, AttemptOutcome(JobState.QUEUED), later).job.not_before == later
    assert finished(running, AttemptOutcome(JobState.QUEUED, retry_at=later), NOW).job.not_before == later


def test_the_store_in_memory_publishes_each_move_after_it_was_made() -> None:
    heard: list[tuple[EventType, JobState]] = []
    store = InMemoryJobStore(
        CountingIdentifiers("id"),
        lambda event: heard.append((event.event_type, store.get(event.subject).state)),
    )
    store.submit(NewJob("build"), now=NOW)
    store.claim(ANN, ["build"], now=NOW)
    assert heard == [(EventType.JOB_SUBMITTED, JobState.QUEUED), (EventType.JOB_CLAIMED, JobState.RUNNING)]


def test_a_job_that_runs_cannot_be_claimed() -> None:
    running = claimed(submitted(NewJob("build"), "job", NOW).job, ANN, NOW).job
    with pytest.raises(IllegalJobMove):
        claimed(running, replace(ANN, id="bob"), NOW)
