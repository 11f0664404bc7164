"""The outcome of an attempt with an exception: a cancel or a failure, and never a secret."""

from __future__ import annotations

import asyncio
import concurrent.futures
from datetime import UTC, datetime

import pytest

from cleveragents.core.errors import Cancelled
from cleveragents.jobs.model.job import HANDED_ON, AttemptOutcome, JobState, NewJob, submitted
from cleveragents.jobs.process.supervisor import Raised, Returned
from cleveragents.jobs.worker.attempt import Stop, StopCause, outcome_of, raised

CANCELS = [
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
    type("Ours", (asyncio.CancelledError,), {}),
]


@pytest.mark.parametrize("cancel", CANCELS)
def test_a_librarys_cancellation_counts_only_if_the_job_was_stopped(cancel: type[BaseException]) -> None:
    name = cancel.__name__
    assert raised(cancel(), told_to_stop=True) == Raised(name, cancelled=True)
    assert raised(cancel("why")) == Raised(
        f"{name}: why (something that the handler waited for was cancelled)"
    )


def test_our_own_cancelled_error_counts_as_cancelled() -> None:
    assert raised(Cancelled("enough")) == Raised("Cancelled: cancelled: enough", cancelled=True)


def test_a_problem_holds_no_secret() -> None:
    error = ConnectionError("cannot reach postgresql://bob:S3cretPw@db/prod with OPENAI_API_KEY=hunter2")
    assert raised(error).problem == (
        "ConnectionError: cannot reach postgresql://bob:***@db/prod with OPENAI_API_KEY=***"
    )


def test_a_handed_on_job_is_queued_unless_it_is_cancelled() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    job = submitted(NewJob("plan:1"), "job", now).job
    assert outcome_of(job, Returned(HANDED_ON), None, now, 1) == AttemptOutcome(
        JobState.QUEUED, handed_on=True
    )
    stop = Stop(StopCause.CANCEL, "enough", 0)
    assert outcome_of(job, Returned(HANDED_ON), stop, now, 1) == AttemptOutcome(
        JobState.CANCELLED, error="cancelled (enough)"
    )


def test_reports_an_exception_without_a_readable_message_by_its_name() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert raised(Mute()).problem == "Mute: (its message cannot be read)"
