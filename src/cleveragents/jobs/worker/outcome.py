"""How an attempt ended, decided in one pure place.

What really happened outranks what was wished for, with one exception: once the owner has seen a cancel, the
job is cancelled, even if its handler comes back with a result (which is kept, and said). A cancel that the
owner had not seen when the handler came back is too late: the job has succeeded.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from cleveragents.core.errors import (
    Cancelled,
    CleverAgentsError,
    HandlerFailed,
    InvalidPayload,
    InvalidRequest,
)
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.errors.families import code_of
from cleveragents.core.errors.remedy import remedies_to_json
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.jobs.model.job import HandedOn, Job, JobState, Outcome
from cleveragents.jobs.process.ports import Raised, Returned
from cleveragents.jobs.worker.options import WorkerOptions

__all__ = ["Stop", "StopCause", "backoff_seconds", "outcome_of", "raised"]

_LIBRARY_CANCELS = {("asyncio.exceptions", "CancelledError"), ("concurrent.futures._base", "CancelledError")}


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


def raised(error: BaseException, *, told_to_stop: bool = False) -> Raised:
    """What a handler's exception says, without secrets; `told_to_stop` if the attempt's token was cancelled.

    A library's own cancel is the job's only if somebody wanted the job to stop. Otherwise something that the
    handler waited for was cancelled, and that is a failure like any other.
    """
    problem = _describe(error)
    library_cancel = _is_library_cancel(error)
    if library_cancel and not told_to_stop:
        problem = f"{problem} (something it waited for was cancelled)"
    return Raised(
        problem=redact_text(problem),
        permanent=isinstance(error, InvalidRequest),
        cancelled=isinstance(error, Cancelled) or (library_cancel and told_to_stop),
        refusal=_refusal(error) if isinstance(error, InvalidRequest) else None,
    )


def _refusal(refused: InvalidRequest) -> JsonValue:
    """Return code, fields and remedies of its cause if that is ours, else of the refusal itself."""
    cause = refused.__cause__
    error = cause if isinstance(cause, CleverAgentsError) else refused
    remedies = remedies_to_json(refused.remedies or error.remedies)
    told = {"remedies": remedies} if remedies else {}
    return freeze(redact({"code": code_of(error), "facts": facts_of(error), **told}))


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, InvalidRequest):
        return str(error)  # a refusal in our own words, for whoever asked
    text = "(its message cannot be read)"
    with contextlib.suppress(Exception):  # it is foreign code, too
        text = str(error)
    return f"{name}: {text}" if text else name


def _is_library_cancel(error: BaseException) -> bool:
    # By name: to import asyncio for this would double the time a job's process takes to start.
    return any((kind.__module__, kind.__name__) in _LIBRARY_CANCELS for kind in type(error).__mro__)


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
        if isinstance(verdict.value, HandedOn):
            return Outcome(JobState.QUEUED, handed_on=True)
        return _succeeded(job, verdict)
    if verdict.permanent:
        return Outcome(JobState.FAILED, result=verdict.refusal, error=verdict.problem)
    error = str(HandlerFailed(job.kind, verdict.problem))
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
    if isinstance(verdict, Returned) and isinstance(verdict.value, HandedOn):
        error = f"cancelled ({reason})"
    elif isinstance(verdict, Returned):
        done = _succeeded(job, verdict)
        result = done.result
        error = f"cancelled ({reason}), though its handler came back: {done.error or 'its result is kept'}"
    elif verdict.cancelled:
        error = f"cancelled ({reason})"
    else:
        error = f"cancelled ({reason}); {verdict.problem}"
    return Outcome(JobState.CANCELLED, result=result, error=error)
