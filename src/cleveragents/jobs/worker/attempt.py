"""Attempts at jobs: their shared state, the table of a worker, and the outcome rules.

The rules for the outcome are one pure function. Once the owner has seen a cancel, the job is cancelled, even
if its handler returns a result; the result is stored and reported. A cancel that the owner had not seen when
the handler returned is too late: the job has succeeded.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.core.errors import (
    Cancelled,
    CleverAgentsError,
    HandlerFailed,
    InvalidPayload,
    InvalidRequest,
    remedies_to_json,
)
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.errors.families import code_of
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.jobs.model.job import AttemptOutcome, HandedOn, Job, JobState, marker_of
from cleveragents.jobs.process.supervisor import JobProcess, Raised, Returned
from cleveragents.jobs.worker.log import StoreTrouble

if TYPE_CHECKING:
    from cleveragents.jobs.worker.async_worker import AsyncJob

__all__ = [
    "Attempt",
    "AttemptTable",
    "Stop",
    "StopCause",
    "WorkerOptions",
    "WorkerStatistics",
    "backoff_seconds",
    "outcome_of",
    "raised",
]


_LIBRARY_CANCELS = {("asyncio.exceptions", "CancelledError"), ("concurrent.futures._base", "CancelledError")}

_OWNERS_SHARE = 0.8


class StopCause(IntEnum):
    """The cause of a stop. A cause with a greater value overrides a cause with a smaller value."""

    DRAIN = 1
    CANCEL = 2
    LEASE_LOST = 3


class Stop(Struct, frozen=True):
    """A request to stop an attempt: its cause, its reason, and its time (by `Clock.monotonic`)."""

    cause: StopCause
    reason: str
    at: float


class Attempt:
    """The shared state of one attempt: the request to stop it, whether it is settled, and its lease.

    Thread safety:
        Owner: the worker that claimed the job; its threads share it.
        Lock: `_lock` guards stop, settlement and lease; held for assignments only.
        Guarantee: exactly one caller of `settle` may report the outcome, with the strongest stop requested
            before; a later `stop` changes nothing and returns False; the lease never becomes shorter.
    Cancel safety: no call waits.
    """

    def __init__(self, job: Job, view: AsyncJob, *, claimed_at: float, lease_seconds: float) -> None:
        self.job = job
        self.view = view
        self.marker = marker_of(job.id, job.fence)
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._lease_seconds = lease_seconds
        self._renewed_at = claimed_at
        self._stop: Stop | None = None
        self._settled = False
        self._escalated = False
        self._process: JobProcess | None = None

    @property
    def renewed_at(self) -> float:
        """The time at which the last acknowledged heartbeat was sent."""
        return self._renewed_at

    @property
    def lease_until(self) -> float:
        """The time at which the owner must give up the job, unless the lease is renewed."""
        return self._renewed_at + self._lease_seconds

    @property
    def stopped(self) -> Stop | None:
        return self._stop

    @property
    def settled(self) -> bool:
        """Whether a thread has claimed the right to report the outcome."""
        return self._settled

    def renewed(self, sent_at: float) -> None:
        """Record that the store acknowledged a heartbeat sent at this time."""
        with self._lock:
            self._renewed_at = max(self._renewed_at, sent_at)
            process = self._process
            until = self.lease_until
        if process is not None:
            process.renew(until)

    def stop(self, cause: StopCause, reason: str, now: float) -> bool:
        """Tell the handler to stop; return whether the stop is new."""
        with self._lock:
            if self._settled:  # guard: the outcome is decided
                return False
            if self._stop is not None and self._stop.cause >= cause:  # guard: the stronger stop stays
                return False
            self._stop = Stop(cause, reason, now)
            process = self._process
        self.view.token.cancel(reason)
        if process is not None:
            process.cancel(reason)
        return True

    def attach(self, process: JobProcess) -> None:
        """Forward the current lease and stop to the process, and all later renewals and stops."""
        # Attach first, then check; a stop or renewal is recorded first and then looks for a process. One of
        # the two finds the other, whichever is faster, so no lock is needed.
        self._process = process
        process.renew(self.lease_until)
        stop = self._stop
        if stop is not None:  # guard: it was stopped before there was a process to tell
            process.cancel(stop.reason)

    def detach(self) -> None:
        """Forget the process, which has ended."""
        self._process = None

    def settle(self) -> tuple[Stop | None] | None:
        """Settle the attempt: return `(stop,)` for the first caller, who may report the outcome, else None.

        `stop` is the request to stop the attempt; None if there is none.
        """
        with self._lock:
            if self._settled:  # guard: one end, one report
                return None
            self._settled = True
            return (self._stop,)

    def escalate(self, now: float, patience_seconds: float) -> bool:
        """Return True once: after the grace period of a stop, or immediately if the lease is lost.

        All other calls return False, also every call after the attempt is settled.
        """
        with self._lock:
            if self._stop is None or self._escalated or self._settled:  # guard: once, and only while it runs
                return False
            urgent = self._stop.cause is StopCause.LEASE_LOST
            if not urgent and now < self._stop.at + patience_seconds:
                return False
            self._escalated = True
            return True

    def not_escalated(self) -> None:
        """Allow `escalate` again, because the escalation could not start."""
        # No lock: only the caller of `escalate` that got True changes it.
        self._escalated = False


class AttemptTable:
    """Slots for attempts. A slot is reserved before a job is claimed, so a drain sees running claims.

    Thread safety:
        Owner: one worker; its threads share it.
        Lock: the condition `_changed` guards everything here; held for arithmetic, and released while
            waiting.
        Guarantee: attempts and running claims never exceed the concurrency; after `stop_accepting` no
            slot is assigned; `wait_idle` returns True only when there is no attempt and no running claim.
    Cancel safety: an interrupted wait leaves nothing behind.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self.trouble = StoreTrouble()
        self._options = options
        self._changed = threading.Condition()
        self._accepting = True
        self._abandoning = False
        self._claiming = 0
        self._attempts: set[Attempt] = set()
        self._stragglers: set[Attempt] = set()
        self._counts: Counter[str] = Counter()

    def reserve(self) -> bool:
        """Reserve a slot for a claim; return False if there is none or the worker is draining."""
        with self._changed:
            if not self._accepting:  # guard: a draining worker claims nothing
                return False
            if (
                self._claiming + len(self._attempts) >= self._options.concurrency
            ):  # guard: the concurrency limit
                return False
            if len(self._stragglers) >= self._options.straggler_limit:  # guard: threads that never end add up
                return False
            self._claiming += 1
            return True

    def may_go_on(self) -> bool:
        """Return whether an attempt that ends may pass its slot on to the next job."""
        # No lock: this is only a check, and a concurrent drain waits for its result.
        if not self._accepting:  # guard: a draining worker claims nothing
            return False
        return len(self._stragglers) < self._options.straggler_limit

    def release(self) -> None:
        """Release the slot of a claim that found no job."""
        with self._changed:
            self._claiming -= 1
            self._changed.notify_all()

    def admit(self, attempt: Attempt) -> bool:
        """Put a claimed job into its slot; return False if the worker is closing and must return the job."""
        with self._changed:
            self._claiming -= 1
            self._attempts.add(attempt)
            self._counts["claimed"] += 1
            return not self._abandoning

    def follow(self, ended: Attempt, attempt: Attempt) -> bool:
        """Like `admit`, into the slot of an ended attempt, which is never free in between."""
        with self._changed:
            self._attempts.discard(ended)
            self._attempts.add(attempt)
            self._counts["claimed"] += 1
            self._changed.notify_all()
            return not self._abandoning

    def leave(self, attempt: Attempt) -> None:
        """Remove an attempt whose thread has ended."""
        with self._changed:
            self._attempts.discard(attempt)
            self._stragglers.discard(attempt)
            self._changed.notify_all()

    def strand(self, attempt: Attempt) -> None:
        """Remove an attempt whose thread is still running; the thread is tracked as a straggler."""
        with self._changed:
            if attempt not in self._attempts:  # guard: the thread ended at the last moment
                return
            self._attempts.discard(attempt)
            self._stragglers.add(attempt)
            self._changed.notify_all()

    def stop_accepting(self) -> None:
        # No lock: a slot assigned at this moment counts as running for `wait_idle`.
        self._accepting = False

    def abandon(self) -> Sequence[Attempt]:
        """Return all attempts. From now on `admit` returns False, also for claims that are still running."""
        with self._changed:
            self._abandoning = True
            return tuple(self._attempts)

    def wait_idle(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._attempts and not self._claiming, timeout)

    def wait_change(self, timeout: float) -> None:
        """Return when an attempt ended, or after the timeout."""
        with self._changed:
            self._changed.wait(timeout)

    def running(self) -> Sequence[Attempt]:
        with self._changed:
            return tuple(self._attempts)

    def holds(self, job_id: str) -> bool:
        """Return whether a thread of this worker still runs the job, even if the worker no longer owns it."""
        with self._changed:
            return any(attempt.job.id == job_id for attempt in (*self._attempts, *self._stragglers))

    def count(self, what: str) -> None:
        with self._changed:
            self._counts[what] += 1

    def statistics(self) -> WorkerStatistics:
        with self._changed:
            return WorkerStatistics(
                **self._counts, running=len(self._attempts), stragglers=len(self._stragglers)
            )


def raised(error: BaseException, *, told_to_stop: bool = False) -> Raised:
    """Return the report of a handler's exception, without secrets; `told_to_stop` if its token was cancelled.

    A cancellation error of a library, such as `asyncio.CancelledError`, counts as a cancelled job only if the
    token was cancelled. Otherwise it is an ordinary failure.
    """
    problem = _describe(error)
    library_cancel = _is_library_cancel(error)
    if library_cancel and not told_to_stop:
        problem = f"{problem} (something that the handler waited for was cancelled)"
    return Raised(
        problem=redact_text(problem),
        permanent=isinstance(error, InvalidRequest),
        cancelled=isinstance(error, Cancelled) or (library_cancel and told_to_stop),
        refusal=_refusal(error) if isinstance(error, InvalidRequest) else None,
    )


def _refusal(refused: InvalidRequest) -> JsonValue:
    """Return code, fields and remedies of the cause if it is a `CleverAgentsError`, else of `refused`."""
    cause = refused.__cause__
    error = cause if isinstance(cause, CleverAgentsError) else refused
    remedies = remedies_to_json(refused.remedies or error.remedies)
    told = {"remedies": remedies} if remedies else {}
    return freeze(redact({"code": code_of(error), "facts": facts_of(error), **told}))


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, InvalidRequest):
        return str(error)  # our own message, meant for the user
    text = "(its message cannot be read)"
    with contextlib.suppress(Exception):  # it is foreign code, too
        text = str(error)
    return f"{name}: {text}" if text else name


def _is_library_cancel(error: BaseException) -> bool:
    # By name: importing asyncio for this would double the start-up time of a job's process.
    return any((kind.__module__, kind.__name__) in _LIBRARY_CANCELS for kind in type(error).__mro__)


def outcome_of(
    job: Job, verdict: Returned | Raised, stop: Stop | None, now: datetime, backoff_seconds: float
) -> AttemptOutcome | None:
    """Return the outcome to write; None if the job has another owner by now and nothing may be written."""
    cause = stop.cause if stop is not None else None
    if cause is StopCause.LEASE_LOST:  # guard: results of a lost lease are not ours to report
        return None
    if stop is not None and cause is StopCause.CANCEL:
        return _cancelled(job, verdict, stop.reason)
    if isinstance(verdict, Returned):
        if isinstance(verdict.value, HandedOn):
            return AttemptOutcome(JobState.QUEUED, handed_on=True, retry_at=verdict.value.until)
        return _succeeded(job, verdict)
    if verdict.permanent:
        return AttemptOutcome(JobState.FAILED, result=verdict.refusal, error=verdict.problem)
    error = str(HandlerFailed(job.kind, verdict.problem))
    if stop is not None and cause is StopCause.DRAIN:
        return AttemptOutcome(JobState.QUEUED, error=f"given back: {stop.reason}", retry_at=now)
    if job.attempt >= job.max_attempts:
        return AttemptOutcome(JobState.FAILED, error=f"{error} (attempt {job.attempt} of {job.max_attempts})")
    return AttemptOutcome(JobState.QUEUED, error=error, retry_at=now + timedelta(seconds=backoff_seconds))


def backoff_seconds(attempt: int, options: WorkerOptions, jitter: float) -> float:
    """Return a delay that doubles with every attempt; `jitter` in [0, 1) subtracts up to half."""
    longest = min(options.retry_limit_seconds, options.retry_seconds * 2.0 ** min(attempt - 1, 30))
    return longest * (1 - jitter / 2)


def _succeeded(job: Job, verdict: Returned) -> AttemptOutcome:
    try:
        result = freeze(verdict.value, where=f"result of a {job.kind} job")
    except InvalidPayload as error:
        return AttemptOutcome(JobState.FAILED, error=str(error))
    return AttemptOutcome(JobState.SUCCEEDED, result=result)


def _cancelled(job: Job, verdict: Returned | Raised, reason: str) -> AttemptOutcome:
    result: JsonValue = None
    if isinstance(verdict, Returned) and isinstance(verdict.value, HandedOn):
        error = f"cancelled ({reason})"
    elif isinstance(verdict, Returned):
        done = _succeeded(job, verdict)
        result = done.result
        error = f"cancelled ({reason}), although the handler returned: {done.error or 'the result is kept'}"
    elif verdict.cancelled:
        error = f"cancelled ({reason})"
    else:
        error = f"cancelled ({reason}); {verdict.problem}"
    return AttemptOutcome(JobState.CANCELLED, result=result, error=error)


class WorkerOptions(Struct, frozen=True):
    """Options of a worker. All times are in seconds.

    A peer takes a job whose owner was silent for `lease_seconds`; the owner itself gives up earlier, after
    `owner_lease_seconds` without an acknowledged heartbeat. So its processes have ended before the peer takes
    the job, even if the clocks run at slightly different speeds. `cancel_grace_seconds` is the total grace of
    a cancelled attempt: half of it to stop by itself, the other half after a SIGTERM. `queues` are the shared
    queues it claims from, besides private jobs of its kinds.
    """

    name: str = "worker"
    concurrency: int = 4
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 5.0
    cancel_poll_seconds: float = 1.0
    poll_seconds: float = 0.5
    cancel_grace_seconds: float = 5.0
    leftover_grace_seconds: float = 1.0
    retry_seconds: float = 1.0
    retry_limit_seconds: float = 300.0
    straggler_limit: int = 16
    queues: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        if not 0 < self.heartbeat_seconds <= self.owner_lease_seconds / 2:
            raise ValueError("heartbeat_seconds must leave room for a missed beat: at most 0.4 of the lease")

    @property
    def owner_lease_seconds(self) -> float:
        return self.lease_seconds * _OWNERS_SHARE


class WorkerStatistics(Struct, frozen=True):
    """A snapshot. All fields but `running` and `stragglers` count from the creation of the worker.

    `stragglers` are handler threads that ignored a cancel and still run; they can no longer write.
    """

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    handed_on: int = 0
    lease_lost: int = 0
    reclaimed: int = 0
    running: int = 0
    stragglers: int = 0
