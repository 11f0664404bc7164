"""Leases: heartbeats of owned jobs, and recovery of jobs whose owner died or is silent.

Leases do not depend on wall clocks. The owner measures a lease from the time *before* it sent its last
acknowledged heartbeat; a peer measures a lease from the time *after* it first saw that heartbeat; each uses
its own monotonic clock. So the owner's lease ends before any peer takes the job. Heartbeats and leases have a
thread each, because sending heartbeats may wait for the store, and watching leases must not wait.

A dead owner on this machine is detected immediately, by its pid and start time. Any other owner is judged by
observation: the same fence and beat for a whole lease on *our* monotonic clock, counted from after we first
saw them. The timestamps of a job are only for display.

Reclaiming a job also kills the processes of its attempt on this machine. For a dead owner they are killed
*before* the job is reclaimed: if the rescuer dies in between, another one repeats the work. A silent owner
may be alive, so the job is reclaimed first, by compare-and-set, and the processes are killed afterwards. An
owner that sends a heartbeat at the last moment keeps the job and its processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.core.clock import Clock
from cleveragents.core.errors import DatabaseFailed, StaleFence, Unavailable
from cleveragents.core.faults import FaultPoints
from cleveragents.jobs.model.job import Job, JobState, marker_of
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.process.supervisor import ProcessSupervisor
from cleveragents.jobs.worker.attempt import Attempt, AttemptTable, StopCause, WorkerOptions
from cleveragents.jobs.worker.log import worker_log

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["JobRecovery", "LeaseKeeper"]


_SHORTEST_LOOK_SECONDS = 0.01

_PAGE = 100


class LeaseKeeper:
    """Sends the heartbeats of the attempts in a table, and watches their leases.

    Thread-safe without a lock of its own: `beat` and `watch` run on a thread each, and share state only in
    the attempts.
    """

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        table: AttemptTable,
        options: WorkerOptions,
        faults: FaultPoints,
    ) -> None:
        self._store = store
        self._clock = clock
        self._table = table
        self._options = options
        self._faults = faults

    def beat(self) -> None:
        """Run one round: send due heartbeats, and check the other attempts for requested cancels.

        A round is one query: with hundreds of attempts on a busy machine, a query for each would take longer
        than a lease.
        """
        silent: list[Attempt] = []
        others: list[Attempt] = []
        now = self._clock.monotonic()
        for attempt in self._table.running():
            stop = attempt.stopped
            if (
                stop is not None and stop.cause is StopCause.LEASE_LOST
            ):  # guard: a job we gave up stays given up
                continue
            if attempt.settled:  # guard: a report that never succeeds must not keep the job forever
                continue
            is_due = now - attempt.renewed_at >= self._options.heartbeat_seconds
            (silent if is_due else others).append(attempt)
        for attempts, ask in ((silent, self._beat_for), (others, self._look_for_cancels)):
            if not attempts:
                continue
            try:
                ask(attempts)
            except Exception as error:
                # Not a reason to stop: the next round may succeed, and the lease limits how long we may go
                # without an answer.
                if self._table.trouble.met("writing", error, self._clock.monotonic()):
                    continue
                if isinstance(error, Unavailable):
                    self._logger(attempts).warning("job.heartbeat_failed", problem=str(error))
                    continue
                logger = self._logger(attempts)
                logger.exception("job.heartbeat_failed")

    def watch(self, escalate: Callable[[Attempt], None]) -> float:
        """Stop attempts whose lease is over, and escalate stopped attempts whose grace period is over.

        Return the seconds until the next call is due.
        """
        patience = self._options.cancel_grace_seconds / 2
        now = self._clock.monotonic()
        next_look = self._options.heartbeat_seconds
        for attempt in self._table.running():
            if attempt.settled:  # guard: its outcome is decided, there is nothing left to stop
                continue
            if attempt.lease_until <= now:
                attempt.stop(
                    StopCause.LEASE_LOST, "no heartbeat was acknowledged for the length of a lease", now
                )
            if attempt.escalate(now, patience):
                escalate(attempt)
            stop = attempt.stopped
            if stop is None:
                next_look = min(next_look, attempt.lease_until - now)
            elif stop.at + patience > now:
                next_look = min(next_look, stop.at + patience - now, max(attempt.lease_until - now, 0.0))
        return max(next_look, _SHORTEST_LOOK_SECONDS)

    def _beat_for(self, attempts: Sequence[Attempt]) -> None:
        sent_at = self._clock.monotonic()
        self._faults.reach("job.heartbeat.before")
        held = _held(attempts)
        heard = self._store.heartbeats(held, now=self._clock.now())
        self._faults.reach("job.heartbeat.after")
        for attempt in attempts:
            # guard: an answer to a later attempt of ours does not renew an earlier one
            answer = heard.get(attempt.job.id) if held[attempt.job.id] == attempt.job.fence else None
            if answer is None:
                words = str(StaleFence(attempt.job.id, attempt.job.fence))
                attempt.stop(StopCause.LEASE_LOST, words, self._clock.monotonic())
                continue
            if answer.heard:  # guard: a heartbeat that was not stored extends no lease
                attempt.renewed(sent_at)
                self._table.trouble.wrote()
            if answer.cancel_reason is not None:
                attempt.stop(StopCause.CANCEL, answer.cancel_reason, self._clock.monotonic())

    def _look_for_cancels(self, attempts: Sequence[Attempt]) -> None:
        held = _held(attempts)
        reasons = self._store.cancels(held)
        for attempt in attempts:
            reason = reasons.get(attempt.job.id)
            if reason is not None and held[attempt.job.id] == attempt.job.fence:
                attempt.stop(StopCause.CANCEL, reason, self._clock.monotonic())

    def _logger(self, attempts: Sequence[Attempt]) -> FilteringBoundLogger:
        """Return a logger with the job's id for one attempt, or with the number of jobs for several."""
        return worker_log(attempts[0].job) if len(attempts) == 1 else worker_log().bind(jobs=len(attempts))


def _held(attempts: Sequence[Attempt]) -> dict[str, int]:
    """Return the latest fence of each job that has an attempt.

    A worker may have two attempts at one job: a peer took the job and gave it back, and the first attempt
    does not know yet.
    """
    return {one.job.id: one.job.fence for one in sorted(attempts, key=lambda attempt: attempt.job.fence)}


class _Sight(Struct, frozen=True):
    fence: int
    beat: int
    since: float


class JobRecovery:
    """Sweeps the running jobs and reclaims those without a live owner.

    Not thread-safe: one thread of the worker sweeps. Other workers sweep concurrently. The store compares
    fence and beat in the same step as it changes them, so only one of several workers that find the same
    silent owner reclaims the job, and an owner that sends a heartbeat at the last moment keeps it.
    """

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        supervisor: ProcessSupervisor,
        table: AttemptTable,
        *,
        options: WorkerOptions,
        faults: FaultPoints,
    ) -> None:
        self._store = store
        self._clock = clock
        self._supervisor = supervisor
        self._table = table
        self._lease_seconds = options.lease_seconds
        self._faults = faults
        self._seen: dict[str, _Sight] = {}

    def sweep(self) -> int:
        """Examine every running job once; return the number of reclaimed jobs."""
        before = self._seen
        self._seen = {}
        try:
            return self._sweep(before)
        except BaseException:
            # An observation stays valid until fence or beat changes, so a failed sweep need not start over.
            self._seen = {**before, **self._seen}
            raise

    def _sweep(self, before: dict[str, _Sight]) -> int:
        reclaimed = 0
        failed = False
        after: str | None = None
        while True:
            asked_at = self._clock.monotonic()
            page = self._store.list(states=(JobState.RUNNING,), limit=_PAGE, after=after)
            seen_at = self._clock.monotonic()
            for job in page:
                # A second attempt must not run beside one of our own threads; a cancelled job gets none.
                if job.cancel_reason is None and self._table.holds(
                    job.id
                ):  # guard: our own thread works on it
                    continue
                try:
                    reclaimed += self._look_at(job, before.get(job.id), asked_at, seen_at)
                except Exception as error:
                    # This job waits for the next sweep; the others do not.
                    # An unexpected error may concern only this job.
                    if not isinstance(error, DatabaseFailed) and self._table.trouble.met(
                        "reclaiming", error, seen_at
                    ):
                        failed = True
                        continue
                    if isinstance(error, Unavailable):  # for example, another transaction holds it
                        worker_log(job).warning("job.reclaim_failed", problem=str(error))
                        continue
                    logger = worker_log(job)
                    logger.exception("job.reclaim_failed")
            if len(page) < _PAGE:
                if not failed:
                    self._table.trouble.over("reclaiming")
                return reclaimed
            after = page[-1].id

    def _look_at(self, job: Job, sight: _Sight | None, asked_at: float, seen_at: float) -> bool:
        """Reclaim the job if its owner is dead or silent; return whether it was reclaimed."""
        if job.owner is not None and self._supervisor.is_alive(job.owner) is False:
            why = f"the worker {job.owner.id} (pid {job.owner.pid}) died"
            return self._reclaim(job, why, owner_is_dead=True)
        silence = self._silence(job, sight, asked_at, seen_at)
        return silence is not None and self._reclaim(job, silence, owner_is_dead=False)

    def _silence(self, job: Job, sight: _Sight | None, asked_at: float, seen_at: float) -> str | None:
        if sight is None or (sight.fence, sight.beat) != (job.fence, job.beat):  # guard: a sign of life
            self._seen[job.id] = _Sight(job.fence, job.beat, seen_at)
            return None
        self._seen[job.id] = sight
        if asked_at - sight.since < self._lease_seconds:  # guard: a whole lease, by our own clock
            return None
        name = job.owner.id if job.owner is not None else "unknown"
        return f"the worker {name} was silent for {self._lease_seconds:g} s"

    def _reclaim(self, job: Job, why: str, *, owner_is_dead: bool) -> bool:
        self._faults.reach("job.reclaim.before")
        if owner_is_dead:
            self._end_processes(job)
        try:
            self._store.reclaim(job.id, job.fence, job.beat, error=why, now=self._clock.now())
        except StaleFence:
            return False  # a peer was faster, or the owner is alive
        self._faults.reach("job.reclaim.after")
        self._table.trouble.wrote()
        self._table.count("reclaimed")
        worker_log(job).info("job.reclaimed", fence=job.fence, why=why)
        if not owner_is_dead:
            self._end_processes(job)
        return True

    def _end_processes(self, job: Job) -> None:
        """Kill the processes of the attempt on this machine.

        The marker of the attempt is unique, so no other process has it.
        """
        ended = self._supervisor.end(marker_of(job.id, job.fence), grace_seconds=0)
        if ended:
            worker_log(job).info("job.processes_ended", count=len(ended))
