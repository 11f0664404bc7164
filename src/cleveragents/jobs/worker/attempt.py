"""One attempt at a job, as the threads of its worker share it.

The attempts that a worker has under way, whether it takes more, and what keeps it from its store.

How an attempt ended, decided in one pure place.

What really happened outranks what was wished for, with one exception: once the owner has seen a cancel, the
job is cancelled, even if its handler comes back with a result (which is kept, and said). A cancel that the
owner had not seen when the handler came back is too late: the job has succeeded.

What can be set on a worker, and what it counts.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING

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
from cleveragents.jobs.model.job import AttemptOutcome, HandedOn, Job, JobState
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
    "marker_of",
    "outcome_of",
    "raised",
]


_LIBRARY_CANCELS = {("asyncio.exceptions", "CancelledError"), ("concurrent.futures._base", "CancelledError")}

_OWNERS_SHARE = 0.8


def marker_of(job_id: str, fence: int) -> str:
    """The name that the processes of one attempt carry."""
    return f"{job_id}:{fence}"


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


class Attempt:
    """Who may stop it, who may end it, and until when it is ours.

    Thread safety:
        Owner: the worker that claimed the job; its threads share it.
        Lock: `_lock` guards stop, settlement and lease; held for assignments only.
        Guarantee: exactly one caller of `settle` gets to report how it ended, with the strongest stop that
            came before; a stop that comes after changes nothing and says so; the lease never goes back.
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
        """When the last heartbeat that the store acknowledged was sent."""
        return self._renewed_at

    @property
    def lease_until(self) -> float:
        """When the owner has to let go of the job, unless it is renewed."""
        return self._renewed_at + self._lease_seconds

    @property
    def stopped(self) -> Stop | None:
        return self._stop

    @property
    def settled(self) -> bool:
        """Whether somebody has taken it on to report how it ended."""
        return self._settled

    def renewed(self, sent_at: float) -> None:
        """The store acknowledged a heartbeat sent then."""
        with self._lock:
            self._renewed_at = max(self._renewed_at, sent_at)
            process = self._process
            until = self.lease_until
        if process is not None:
            process.renew(until)

    def stop(self, cause: StopCause, reason: str, now: float) -> bool:
        """Tells the handler to stop; True if that was news."""
        with self._lock:
            if self._settled:  # guard: how it ended is decided
                return False
            if self._stop is not None and self._stop.cause >= cause:  # guard: the stronger stays
                return False
            self._stop = Stop(cause, reason, now)
            process = self._process
        self.view.token.cancel(reason)
        if process is not None:
            process.cancel(reason)
        return True

    def attach(self, process: JobProcess) -> None:
        """From now on renewals and stops reach the process, too; those that came before do so now."""
        # Enter first, then look; a stop or renewal is noted first and then looks for a process. One of the
        # two finds the other, whichever is faster, so no lock is needed.
        self._process = process
        process.renew(self.lease_until)
        stop = self._stop
        if stop is not None:  # guard: it was stopped before there was a process to tell
            process.cancel(stop.reason)

    def detach(self) -> None:
        """The process is over."""
        self._process = None

    def settle(self) -> tuple[Stop | None] | None:
        """The stop (if any) under which it ended, for the one caller that may report it; else None."""
        with self._lock:
            if self._settled:  # guard: one end, one report
                return None
            self._settled = True
            return (self._stop,)

    def escalate(self, now: float, patience_seconds: float) -> bool:
        """True once, when it was told to stop and had its time; at once if the lease is lost."""
        with self._lock:
            if self._stop is None or self._escalated or self._settled:  # guard: once, and only while it runs
                return False
            urgent = self._stop.cause is StopCause.LEASE_LOST
            if not urgent and now < self._stop.at + patience_seconds:
                return False
            self._escalated = True
            return True

    def not_escalated(self) -> None:
        """What `escalate` allowed could not be begun; it will be allowed again."""
        # No lock: whoever was allowed it is the only one with a say in it.
        self._escalated = False


class AttemptTable:
    """Slots for attempts. A slot is reserved before a job is claimed, so a drain sees claims under way.

    Thread safety:
        Owner: one worker; its threads share it.
        Lock: the condition `_changed` guards everything here; held for arithmetic, and while waiting it is
            let go.
        Guarantee: attempts and claims under way never exceed the concurrency; after `stop_accepting` no
            slot is given out; `wait_idle` returns True only when no attempt and no claim is under way.
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
        """Takes a slot for a claim, if there is one and more is wanted."""
        with self._changed:
            if not self._accepting:  # guard: a draining worker claims nothing
                return False
            if self._claiming + len(self._attempts) >= self._options.concurrency:  # guard: the bound
                return False
            if len(self._stragglers) >= self._options.straggler_limit:  # guard: threads that never end add up
                return False
            self._claiming += 1
            return True

    def may_go_on(self) -> bool:
        """Whether an attempt that ends may leave its slot to another; until it does, the slot is its own."""
        # No lock: it is no more than a look, and whoever drains meanwhile waits for what comes of it.
        if not self._accepting:  # guard: a draining worker claims nothing
            return False
        return len(self._stragglers) < self._options.straggler_limit

    def release(self) -> None:
        """The claim came back with nothing."""
        with self._changed:
            self._claiming -= 1
            self._changed.notify_all()

    def admit(self, attempt: Attempt) -> bool:
        """The claim came back with a job; False if it has to be given back, because the worker closes."""
        with self._changed:
            self._claiming -= 1
            self._attempts.add(attempt)
            self._counts["claimed"] += 1
            return not self._abandoning

    def follow(self, ended: Attempt, attempt: Attempt) -> bool:
        """As `admit`, into the slot of an attempt that is over: at no moment it is free."""
        with self._changed:
            self._attempts.discard(ended)
            self._attempts.add(attempt)
            self._counts["claimed"] += 1
            self._changed.notify_all()
            return not self._abandoning

    def leave(self, attempt: Attempt) -> None:
        """The attempt and its thread are over."""
        with self._changed:
            self._attempts.discard(attempt)
            self._stragglers.discard(attempt)
            self._changed.notify_all()

    def strand(self, attempt: Attempt) -> None:
        """The attempt is over, its thread is not: it no longer counts as running, but is remembered."""
        with self._changed:
            if attempt not in self._attempts:  # guard: the thread ended at the last moment
                return
            self._attempts.discard(attempt)
            self._stragglers.add(attempt)
            self._changed.notify_all()

    def stop_accepting(self) -> None:
        # No lock: a slot given out at this very moment is under way for whoever waits for idleness.
        self._accepting = False

    def abandon(self) -> Sequence[Attempt]:
        """All attempts under way; those that claims still bring will be refused by `admit`."""
        with self._changed:
            self._abandoning = True
            return tuple(self._attempts)

    def wait_idle(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._attempts and not self._claiming, timeout)

    def wait_change(self, timeout: float) -> None:
        """Returns when an attempt ended, at the latest after the timeout."""
        with self._changed:
            self._changed.wait(timeout)

    def running(self) -> Sequence[Attempt]:
        with self._changed:
            return tuple(self._attempts)

    def holds(self, job_id: str) -> bool:
        """Whether a thread of this worker is still busy with that job, with or without a right to."""
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
) -> AttemptOutcome | None:
    """What to write; None when the job is somebody else's by now and nothing may be written."""
    cause = stop.cause if stop is not None else None
    if cause is StopCause.LEASE_LOST:  # guard: whatever was done under a lost lease is not ours to report
        return None
    if stop is not None and cause is StopCause.CANCEL:
        return _cancelled(job, verdict, stop.reason)
    if isinstance(verdict, Returned):
        if isinstance(verdict.value, HandedOn):
            return AttemptOutcome(JobState.QUEUED, handed_on=True)
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
    """Doubles with every attempt; `jitter` in [0, 1) takes off up to half, so that herds part."""
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
        error = f"cancelled ({reason}), though its handler came back: {done.error or 'its result is kept'}"
    elif verdict.cancelled:
        error = f"cancelled ({reason})"
    else:
        error = f"cancelled ({reason}); {verdict.problem}"
    return AttemptOutcome(JobState.CANCELLED, result=result, error=error)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """All times in seconds.

    A peer takes a job whose owner was silent for `lease_seconds`; the owner itself lets go earlier, after
    `owner_lease_seconds` without an acknowledged heartbeat, so that its processes are gone by then and two
    clocks of slightly different speed do not matter. `cancel_grace_seconds` is all that a cancelled attempt
    gets: half of it to stop by itself, the other half after a SIGTERM. `queues` are the shared ones that it
    takes jobs from, besides those that are for who names their kind.
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


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """A snapshot. All but `running` and `stragglers` count since the worker was made.

    `stragglers` are handler threads that ignored a cancel and still run, fenced off.
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
