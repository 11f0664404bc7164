"""How an attempt ended, decided in one pure place.

What really happened outranks what was wished for, with one exception: once the owner has seen a cancel, the
job is cancelled, even if its handler comes back with a result (which is kept, and said). A cancel that the
owner had not seen when the handler came back is too late: the job has succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from cleveragents.application.ports.processes import Raised, Returned
from cleveragents.application.services.worker_options import WorkerOptions
from cleveragents.domain.job import Job, JobState, Outcome
from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.errors import Cancelled, HandlerFailed, InvalidPayload, InvalidRequest

__all__ = ["Stop", "StopCause", "backoff_seconds", "outcome_of", "raised"]


class StopCause(IntEnum):
    """Why an attempt was told to stop; the greater outranks the smaller."""

    DRAIN = 1
    CANCEL = 2
    LEASE_LOST = 3


@dataclass(frozen=True, slots=True)
class Stop:
    """That an attempt was told to stop, why, and when (by `Clock.monotonic`)."""

    cause: StopCause
    reason: str
    at: float


def raised(error: BaseException) -> Raised:
    """What a handler's exception says."""
    return Raised(
        problem=f"{type(error).__name__}: {error}",
        permanent=isinstance(error, InvalidRequest),
        cancelled=isinstance(error, Cancelled),
    )


def outcome_of(
    job: Job, verdict: Returned | Raised, stop: Stop | None, now: datetime, backoff_seconds: float
) -> Outcome | None:
    """What to write; None when the job is somebody else's by now and nothing may be written."""
    cause = stop.cause if stop is not None else None
    if cause is StopCause.LEASE_LOST:  # guard: whatever was done under a lost lease is not ours to report
        return None
    if stop is not None and cause is StopCause.CANCEL:
        return _cancelled(job, verdict, stop.reason)
    if isinstance(verdict, Returned):
        return _succeeded(job, verdict)
    error = str(HandlerFailed(job.kind, verdict.problem))
    if verdict.permanent:
        return Outcome(JobState.FAILED, error=error)
    if stop is not None and cause is StopCause.DRAIN:
        return Outcome(JobState.QUEUED, error=f"given back: {stop.reason}", retry_at=now)
    if job.attempt >= job.max_attempts:
        return Outcome(JobState.FAILED, error=f"{error} (attempt {job.attempt} of {job.max_attempts})")
    return Outcome(JobState.QUEUED, error=error, retry_at=now + timedelta(seconds=backoff_seconds))


def backoff_seconds(attempt: int, options: WorkerOptions, jitter: float) -> float:
    """Doubles with every attempt; `jitter` in [0, 1) takes off up to half, so that herds part."""
    longest = min(options.retry_limit_seconds, options.retry_seconds * 2.0 ** min(attempt - 1, 30))
    return longest * (1 - jitter / 2)


def _succeeded(job: Job, verdict: Returned) -> Outcome:
    try:
        result = freeze(verdict.value, where=f"result of a {job.kind} job")
    except InvalidPayload as error:
        return Outcome(JobState.FAILED, error=str(error))
    return Outcome(JobState.SUCCEEDED, result=result)


def _cancelled(job: Job, verdict: Returned | Raised, reason: str) -> Outcome:
    result: JsonValue = None
    if isinstance(verdict, Returned):
        done = _succeeded(job, verdict)
        result = done.result
        error = f"cancelled ({reason}), though its handler came back: {done.error or 'its result is kept'}"
    elif verdict.cancelled:
        error = f"cancelled ({reason})"
    else:
        error = f"cancelled ({reason}); {verdict.problem}"
    return Outcome(JobState.CANCELLED, result=result, error=error)
