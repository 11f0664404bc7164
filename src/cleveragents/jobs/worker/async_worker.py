"""Cancellation, and the worker that runs jobs in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from cleveragents.core.cancellation import CancellationView, Registration, said_by_somebody
from cleveragents.core.clock import Clock
from cleveragents.core.errors import DeadlineExceeded
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.jobs.ports import JobClaim, JobHandler, JobStore, handler_for, is_for
from cleveragents.jobs.process.supervisor import ProcessSupervisor
from cleveragents.jobs.service_thread import ServiceThread, start_daemon
from cleveragents.jobs.worker.attempt import (
    Attempt,
    AttemptTable,
    StopCause,
    WorkerOptions,
    WorkerStatistics,
    marker_of,
)
from cleveragents.jobs.worker.attempt_run import AttemptRunner, NextAttempt
from cleveragents.jobs.worker.lease import JobRecovery, LeaseKeeper
from cleveragents.jobs.worker.log import NO_STORE, worker_log

__all__ = ["AsyncJob", "AsyncWorker", "CancellationToken"]

_CLOSE_SECONDS = 10.0
# Longer than a store is patient: a thread that waits for a slow one is no reason to fail.
_JOIN_SECONDS = 90.0


class CancellationToken:
    """Asks work to stop, from any thread; `reset` makes it ready for the next run.

    Every cancel belongs to one generation, for good. A run that must not miss it holds its own `view()`.

    Thread safety:
        Owner: whoever starts the work; any thread may share it.
        Lock: `_lock`, one for a token and all below it, guards the moves (cancel, reset, a child's birth).
            It is held for assignments only, never in a callback or while waiting. Reading takes no lock.
        Guarantee: of all cancels of a generation one returns True, and its reason stays; a waiter of a
            cancelled generation returns True however soon `reset` follows; each callback runs exactly once
            or was closed in time; a child made during a cancel is cancelled.
        Signal handlers and finalizers may read, register and close. They must not cancel, reset or make a
            child, because the thread they interrupt may hold the lock: set a flag or write to a pipe.
    Cancel safety: `cancel` returns when its callbacks have run; the rest run even if one is interrupted.
    """

    def __init__(self, parent: CancellationView | None = None) -> None:
        self._parent = parent
        self._lock = threading.Lock() if parent is None else parent._lock
        self._cancelled = CancellationView(self._lock, 1)
        if parent is not None:
            with self._lock:
                self._cancelled.attach(parent)

    def cancel(self, reason: str | None = None) -> bool:
        """True for the one call that cancelled this generation; any other changes nothing."""
        return self._cancelled.cancel(reason)

    def reset(self) -> bool:
        """True if this call began a new generation, one that is not cancelled.

        A token that was not cancelled stays as it is, and so do its waiters, callbacks and children. A child
        stays cancelled once the generation it was made under is.
        """
        with self._lock:
            before = self._cancelled
            if not before.is_cancelled:  # guard: nobody could cancel the waiters of a generation cast aside
                return False
            parent = self._parent
            fresh = CancellationView(self._lock, before.generation + 1)
            if parent is not None:
                fresh.attach(parent)
            born_cancelled = fresh.is_cancelled
            self._cancelled = fresh
        if parent is not None and self._parent is None:  # guard: closed meanwhile
            fresh.detach(parent)
        return not born_cancelled

    def view(self) -> CancellationView:
        """The current generation, for a run to hold: a reset cannot un-cancel it."""
        return self._cancelled

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled._cause is not None  # not by way of the view's property: loops poll this

    @property
    def reason(self) -> str | None:
        """The reason of the current generation's cancel, if there was one and it gave one."""
        return self._cancelled.reason

    def raise_if_cancelled(self) -> None:
        """Returns, or raises `Cancelled` with the reason."""
        self._cancelled.raise_if_cancelled()

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the generation that is current now is cancelled (True), or for so many seconds."""
        return self._cancelled.wait(timeout)

    async def wait_async(self) -> None:
        """Returns once the generation that is current when awaited is cancelled."""
        await self._cancelled.wait_async()

    def on_cancel(self, callback: Callable[[], None]) -> Registration:
        """Registers with the current generation (see there); the next one knows nothing of it."""
        return self._cancelled.on_cancel(callback)

    def child(self) -> CancellationToken:
        """A token that is cancelled with the current generation (at once, if that has been), never upward.

        It is out of reach once closed, or when nobody holds it, a view or a registration of it any more.
        """
        return CancellationToken(self._cancelled)

    def close(self) -> None:
        """Ends a child: a cancel of its parent that begins after this does not reach it. Takes no lock."""
        parent = self._parent
        self._parent = None
        if parent is not None:
            self._cancelled.detach(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(eq=False)
class AsyncJob:
    """One attempt at a job, as its handler sees it. `token` is this attempt's own and never reset.

    Whoever starts a process passes `environment` on to it, so that the process ends with the attempt.
    """

    id: str
    kind: str
    payload: Mapping[str, JsonValue]
    attempt: int
    fence: int
    token: CancellationToken
    markers: Mapping[str, str]
    environment_taken: bool = False

    @property
    def environment(self) -> Mapping[str, str]:
        # Remembered, because looking for processes costs more than a small job: most never ask.
        self.environment_taken = True
        return self.markers


class AsyncWorker:
    """Runs jobs of the kinds it has handlers for: claims, keeps, retries, cancels and recovers them.

    A job has one owner at a time: heartbeats keep its lease, every write carries the fencing token of its
    claim, and a worker that lost the lease stops the run, says so and writes nothing.

    Thread safety:
        Owner: whoever made it starts and closes it; any thread may submit, cancel, drain and close.
        Lock: none of its own; what its threads share is in the table of attempts and in each attempt.
        Guarantee: no more attempts at once than `concurrency`; each ends with at most one write; nothing is
            claimed after `drain`; after `close` none of its threads runs, counted stragglers excepted.
    Cancel safety: an interrupted `drain`, `run_until_idle` or `close` may be called again.
    """

    def __init__(
        self,
        store: JobStore,
        handlers: Mapping[str, JobHandler],
        clock: Clock,
        supervisor: ProcessSupervisor,
        options: WorkerOptions | None = None,
        *,
        faults: FaultPoints | None = None,
        spawn: Callable[[str, Callable[[], None]], None] = start_daemon,
    ) -> None:
        options = options or WorkerOptions()
        faults = faults or NoFaults()
        self._store = store
        self._handlers = dict(handlers)
        self._clock = clock
        self._supervisor = supervisor
        self._options = options
        self._faults = faults
        self._spawn = spawn
        self._identity = supervisor.identity(options.name)
        self._table = AttemptTable(options)
        self._keeper = LeaseKeeper(store, clock, self._table, options, faults)
        self._recovery = JobRecovery(store, clock, supervisor, self._table, options=options, faults=faults)
        self._claims = self._service("claims", self._claim_ready)
        self._beats = self._service("heartbeats", self._beat)
        self._watch = self._service("watch", lambda: self._keeper.watch(self._escalate))
        self._sweeps = self._service("recovery", self._sweep)
        claim = JobClaim(self._identity, frozenset(self._handlers), options.queues)
        following = NextAttempt(claim, self._attempt)
        self._runner = AttemptRunner(
            store,
            clock,
            supervisor,
            self._table,
            self._handlers,
            options,
            faults,
            following,
            self._claims.wake,
        )

    def start(self) -> None:
        """Begins to claim, and takes up what dead workers left. Once only."""
        for service in self._services():
            service.start()

    def submit(self, new: NewJob) -> Job:
        """Queues a job for this worker or its peers. `UnknownJobKind`."""
        handler_for(new.kind, self._handlers)
        job = self._store.submit(new, now=self._clock.now())
        self._claims.wake()
        return job

    def cancel(self, job_id: str, reason: str = "cancelled by request") -> Job:
        """Has the job cancelled, wherever it runs; if here, its token is cancelled at once.

        Returns it as it stands: cancelled if it was queued, else running until its owner has ended it.
        `JobAlreadyEnded` when there is nothing left to cancel, `UnknownJob`.
        """
        job = self._store.request_cancel(job_id, said_by_somebody(reason), now=self._clock.now())
        for attempt in self._table.running():
            if attempt.job.id == job_id:
                attempt.stop(StopCause.CANCEL, job.cancel_reason or reason, self._clock.monotonic())
        self._watch.wake()
        return job

    def run_one(self, claim: Callable[[WorkerIdentity], Job | None]) -> bool:
        """Runs a job, on this thread, that somebody else chose: `claim` takes it for this worker. Whether
        there was one, and the worker took it."""
        if not self._table.reserve():  # guard: nothing is claimed after a drain
            return False
        attempt = self._claimed(lambda: claim(self._identity))
        if attempt is None:
            return False
        self._runner.run(attempt)
        return True

    def wake(self) -> None:
        """Looks for a job now, and not only when its next look is due."""
        self._claims.wake()

    def stop_claiming(self) -> None:
        """Claims nothing more; what runs goes on."""
        self._table.stop_accepting()

    def drain(self, timeout: float) -> bool:
        """Claims nothing more and lets running jobs end; True if all did within the time.

        Past it, the rest are told to stop and are given back, for another worker to go on with. A handler
        thread that does not stop keeps its job until the lease is over.
        """
        self._table.stop_accepting()
        if self._table.wait_idle(timeout):
            return True
        for attempt in self._table.abandon():
            self._give_back(attempt)
        self._watch.wake()
        self._table.wait_idle(self._options.cancel_grace_seconds + _CLOSE_SECONDS)
        return False

    def run_until_idle(self, timeout: float) -> None:
        """Returns when no job that it would claim is queued or running anywhere. `DeadlineExceeded`; what has
        kept the store from being used for a whole lease, as `StoreFull`."""
        deadline = self._clock.monotonic() + timeout
        while self._unfinished():
            if self._clock.monotonic() >= deadline:
                raise DeadlineExceeded("running all jobs", timeout)
            trouble = self._table.trouble.since(self._clock.monotonic() - self._options.lease_seconds)
            if trouble is not None:
                raise trouble
            self._table.wait_change(self._options.poll_seconds)

    def close(self) -> None:
        """Drains without waiting and ends the worker's threads. A second call changes nothing."""
        self.drain(0)
        for service in self._services():
            service.stop()
        for service in self._services():
            if not service.join(_JOIN_SECONDS):
                raise DeadlineExceeded(f"closing the worker ({service.name})", _JOIN_SECONDS)

    def statistics(self) -> WorkerStatistics:
        return self._table.statistics()

    def _services(self) -> tuple[ServiceThread, ...]:
        return self._claims, self._beats, self._watch, self._sweeps

    def _service(self, name: str, step: Callable[[], float]) -> ServiceThread:
        full_name = f"{self._options.name}-{name}"
        return ServiceThread(full_name, step, pause_seconds=self._options.poll_seconds)

    def _claim_ready(self) -> float:
        try:
            while self._table.reserve():
                if not self._claim_one():
                    break
        except NO_STORE as error:
            self._table.trouble.met("claiming", error, self._clock.monotonic())
        return self._options.poll_seconds

    def _claim_one(self) -> bool:
        """Claims a job into the reserved slot and sets it going; False if there was none."""
        attempt = self._claimed(self._next_job)
        if attempt is None:
            return False
        try:
            self._spawn(f"job-{attempt.job.id}", lambda: self._runner.run(attempt, claims_next=True))
        except BaseException:
            self._table.leave(attempt)
            raise
        return True

    def _next_job(self) -> Job | None:
        return self._store.claim(
            self._identity, self._handlers, now=self._clock.now(), queues=self._options.queues
        )

    def _claimed(self, claim: Callable[[], Job | None]) -> Attempt | None:
        """The attempt at what is claimed so, in the reserved slot; without one, the slot is free again."""
        claimed_at = self._clock.monotonic()
        try:
            job = claim()
            self._faults.reach("job.claim.after")
        except BaseException:
            # If the claim was kept after all, the job is ours and silent, and will be reclaimed.
            self._table.release()
            raise
        self._table.trouble.over("claiming")
        if job is None:
            self._table.release()
            return None
        self._table.trouble.wrote()
        attempt = self._attempt(job, claimed_at)
        if not self._table.admit(attempt):  # guard: the worker gave up its attempts while this was claimed
            self._give_back(attempt)
        return attempt

    def _attempt(self, job: Job, claimed_at: float) -> Attempt:
        markers = self._supervisor.environment(marker_of(job.id, job.fence))
        view = AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, CancellationToken(), markers)
        return Attempt(job, view, claimed_at=claimed_at, lease_seconds=self._options.owner_lease_seconds)

    def _give_back(self, attempt: Attempt) -> None:
        attempt.stop(StopCause.DRAIN, "the worker shuts down", self._clock.monotonic())

    def _escalate(self, attempt: Attempt) -> None:
        try:
            self._spawn(f"end-{attempt.job.id}", lambda: self._runner.escalate(attempt))
        except Exception:
            # No thread to be had just now; the watch comes by again.
            attempt.not_escalated()
            logger = worker_log(attempt.job)
            logger.exception("job.escalation_failed")

    def _beat(self) -> float:
        self._keeper.beat()
        # It may have stopped an attempt, whose time to stop by itself runs from now.
        self._watch.wake()
        return min(self._options.heartbeat_seconds, self._options.cancel_poll_seconds)

    def _sweep(self) -> float:
        if self._recovery.sweep():
            self._claims.wake()
        return self._options.heartbeat_seconds

    def _unfinished(self) -> bool:
        if self._table.running():  # its own are known without a look at the table of jobs
            return True
        try:
            found = self._has_queued()
        except NO_STORE as error:
            self._table.trouble.met("looking", error, self._clock.monotonic())
            return True
        self._table.trouble.over("looking")
        return found

    def _has_queued(self) -> bool:
        after: str | None = None
        while page := self._store.list(states=(JobState.QUEUED, JobState.RUNNING), after=after):
            if any(is_for(job, self._handlers, self._options.queues) for job in page):
                return True
            after = page[-1].id
        return False
