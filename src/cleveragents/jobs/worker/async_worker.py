"""The worker that runs jobs in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.core.cancellation import CancellationToken, user_reason
from cleveragents.core.errors import DeadlineExceeded
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.jobs.model.job import Job, JobState, NewJob, marker_of
from cleveragents.jobs.ports import JobClaim, JobHandler, JobStore, handler_for, is_for
from cleveragents.jobs.service_thread import ServiceThread, start_daemon
from cleveragents.jobs.worker.attempt import (
    Attempt,
    AttemptTable,
    StopCause,
    WorkerOptions,
    WorkerStatistics,
)
from cleveragents.jobs.worker.attempt_run import AttemptRunner, NextAttempt
from cleveragents.jobs.worker.lease import JobRecovery, LeaseKeeper
from cleveragents.jobs.worker.log import NO_STORE, worker_log

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.core.identifiers import WorkerIdentity
    from cleveragents.core.json_value import JsonValue
    from cleveragents.jobs.process.supervisor import ProcessSupervisor

__all__ = ["AsyncJob", "AsyncWorker", "CancellationToken"]

_CLOSE_SECONDS = 10.0
# Longer than the patience of a store: a thread that waits for a slow store must not fail.
_JOIN_SECONDS = 90.0


@dataclass(eq=False)
class AsyncJob:
    """One attempt at a job, as its handler sees it. `token` belongs to this attempt and is never reset.

    A handler that starts a process passes `environment` to it, so that the process ends with the attempt.
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
        # Cached, because looking for processes costs more than a small job: most never ask.
        self.environment_taken = True
        return self.markers


class AsyncWorker:
    """Runs jobs of the kinds it has handlers for: claims, keeps, retries, cancels and recovers them.

    A job has one owner at a time: heartbeats keep its lease, every write carries the fencing token of its
    claim, and a worker that lost the lease stops the run, logs it and writes nothing.

    Thread safety:
        Owner: the code that made it starts and closes it; any thread may submit, cancel, drain and close.
        Lock: none of its own; the state its threads share is in the table of attempts and in each attempt.
        Guarantee: no more parallel attempts than `concurrency`; each ends with at most one write; nothing is
            claimed after `drain`; after `close` none of its threads runs, except the counted stragglers.
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
        """Start claiming, and recover the jobs of dead workers. Call it once."""
        for service in self._services():
            service.start()

    def submit(self, new: NewJob) -> Job:
        """Queue a job for this worker or its peers. Raises `UnknownJobKind`."""
        handler_for(new.kind, self._handlers)
        job = self._store.submit(new, now=self._clock.now())
        self._claims.wake()
        return job

    def cancel(self, job_id: str, reason: str = "cancelled by request") -> Job:
        """Cancel a job, wherever it runs; if it runs in this worker, its token is cancelled immediately.

        Returns the job: cancelled if it was queued, otherwise running until its owner has ended it. Raises
        `JobAlreadyEnded` if there is nothing left to cancel, or `UnknownJob`.
        """
        return self.stop(job_id, user_reason(reason))

    def stop(self, job_id: str, reason: str) -> Job:
        """Cancel a job as `cancel` does, but accept a `resumable_stop` as the reason."""
        job = self._store.request_cancel(job_id, reason, now=self._clock.now())
        for attempt in self._table.running():
            if attempt.job.id == job_id:
                attempt.stop(StopCause.CANCEL, job.cancel_reason or reason, self._clock.monotonic())
        self._watch.wake()
        return job

    def run_one(self, claim: Callable[[WorkerIdentity], Job | None]) -> bool:
        """Run one job that the caller chose, on this thread: `claim` claims it for this worker.

        Returns whether there was a job and the worker accepted it.
        """
        if not self._table.reserve():  # guard: nothing is claimed after a drain
            return False
        attempt = self._claimed(lambda: claim(self._identity))
        if attempt is None:
            return False
        self._runner.run(attempt)
        return True

    def wake(self) -> None:
        """Look for a job now, instead of at the next poll."""
        self._claims.wake()

    def stop_claiming(self) -> None:
        """Claim no more jobs; running jobs continue."""
        self._table.stop_accepting()

    def drain(self, timeout: float) -> bool:
        """Claim no more jobs and wait for the running jobs; return whether all ended within the timeout.

        After the timeout, the remaining jobs are stopped and given back, for another worker to continue. A
        handler thread that does not stop keeps its job until the lease is over.
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
        """Return when no job that this worker would claim is queued or running anywhere.

        Raises `DeadlineExceeded`, or an error such as `StoreFull` that made the store unusable for a whole
        lease.
        """
        deadline = self._clock.monotonic() + timeout
        while self._unfinished():
            if self._clock.monotonic() >= deadline:
                raise DeadlineExceeded("running all jobs", timeout)
            trouble = self._table.trouble.since(self._clock.monotonic() - self._options.lease_seconds)
            if trouble is not None:
                raise trouble
            self._table.wait_change(self._options.poll_seconds)

    def close(self) -> None:
        """Drain without waiting and end the worker's threads. A second call changes nothing."""
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
        """Claim a job into the reserved slot and start it; return False if there was none."""
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
        """Return the attempt at the job claimed into the reserved slot; without a job, release the slot."""
        claimed_at = self._clock.monotonic()
        try:
            job = claim()
            self._faults.reach("job.claim.after")
        except BaseException:
            # If the claim succeeded after all, the job is ours and silent, and will be reclaimed.
            self._table.release()
            raise
        self._table.trouble.over("claiming")
        if job is None:
            self._table.release()
            return None
        self._table.trouble.wrote()
        attempt = self._attempt(job, claimed_at)
        if not self._table.admit(attempt):  # guard: the worker abandoned its attempts during this claim
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
            # No thread can be started now; the watch tries again.
            attempt.not_escalated()
            logger = worker_log(attempt.job)
            logger.exception("job.escalation_failed")

    def _beat(self) -> float:
        self._keeper.beat()
        # It may have stopped an attempt, whose grace period starts now.
        self._watch.wake()
        return min(self._options.heartbeat_seconds, self._options.cancel_poll_seconds)

    def _sweep(self) -> float:
        if self._recovery.sweep():
            self._claims.wake()
        return self._options.heartbeat_seconds

    def _unfinished(self) -> bool:
        if self._table.running():  # the worker's own jobs are known without a query
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
