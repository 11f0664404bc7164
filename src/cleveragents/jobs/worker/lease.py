"""Keeping a job: heartbeats, and letting go in time when they fail.

No wall clock takes part. The owner measures from the moment *before* it sent its last acknowledged
heartbeat; a peer measures from the moment *after* it first saw that heartbeat; both for a whole lease, each
on its own clock. So the owner's time is over before any peer's is. Beating waits for the store, watching
must not: two threads.

Taking jobs from owners that died or fell silent.

A dead owner on this machine is known at once, by its pid and start. Any other is judged by observation: the
same fence and beat for a whole lease on *our* monotonic clock, counted from after we first saw them. What a
job's timestamps say is shown to people and decides nothing here.

The processes of the attempt are ended with it, as far as this machine has them. An owner known to be dead
cannot object, so they end *before* the job says that it is over: a rescuer that dies between the two is
followed by another. An owner that was only silent may live, so it loses the job first, by compare-and-set,
and its processes after that; if it beats in the last moment, nothing of it is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.core.clock import Clock
from cleveragents.core.errors import DatabaseFailed, StaleFence, Unavailable
from cleveragents.core.faults import FaultPoints
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.process.supervisor import ProcessSupervisor
from cleveragents.jobs.worker.attempt import Attempt, AttemptTable, StopCause, WorkerOptions, marker_of
from cleveragents.jobs.worker.log import worker_log

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["JobRecovery", "LeaseKeeper"]


_SHORTEST_LOOK_SECONDS = 0.01

_PAGE = 100


class LeaseKeeper:
    """Beats for the attempts of a table, and watches their time.

    Thread-safe without a lock of its own: `beat` and `watch` run on a thread each, and what they share is in
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
        """One round: a heartbeat where one is due, elsewhere a look whether a cancel was requested.

        All of a round are one question to the store: with hundreds of attempts on a busy machine, a question
        for each takes longer than a lease.
        """
        silent: list[Attempt] = []
        others: list[Attempt] = []
        now = self._clock.monotonic()
        for attempt in self._table.running():
            stop = attempt.stopped
            if stop is not None and stop.cause is StopCause.LEASE_LOST:  # guard: what we let go stays let go
                continue
            if attempt.settled:  # guard: a report that never gets through must not keep the job for ever
                continue
            is_due = now - attempt.renewed_at >= self._options.heartbeat_seconds
            (silent if is_due else others).append(attempt)
        for attempts, ask in ((silent, self._beat_for), (others, self._look_for_cancels)):
            if not attempts:
                continue
            try:
                ask(attempts)
            except Exception as error:
                # No reason to stop: the next round may be heard, and the lease decides how long we may go
                # without an answer.
                if self._table.trouble.met("writing", error, self._clock.monotonic()):
                    continue
                if isinstance(error, Unavailable):
                    self._logger(attempts).warning("job.heartbeat_failed", problem=str(error))
                    continue
                logger = self._logger(attempts)
                logger.exception("job.heartbeat_failed")

    def watch(self, escalate: Callable[[Attempt], None]) -> float:
        """Stops attempts whose lease is over, escalates those that had their time; seconds to the next."""
        patience = self._options.cancel_grace_seconds / 2
        now = self._clock.monotonic()
        next_look = self._options.heartbeat_seconds
        for attempt in self._table.running():
            if attempt.settled:  # guard: its end is decided, there is nothing left to stop
                continue
            if attempt.lease_until <= now:
                attempt.stop(StopCause.LEASE_LOST, "no heartbeat was acknowledged for a lease", now)
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
            # guard: an answer to a later attempt of ours keeps no earlier one
            answer = heard.get(attempt.job.id) if held[attempt.job.id] == attempt.job.fence else None
            if answer is None:
                words = str(StaleFence(attempt.job.id, attempt.job.fence))
                attempt.stop(StopCause.LEASE_LOST, words, self._clock.monotonic())
                continue
            if answer.heard:  # guard: what nobody kept extends no lease
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
        """Of one job by name, else of how many."""
        return worker_log(attempts[0].job) if len(attempts) == 1 else worker_log().bind(jobs=len(attempts))


def _held(attempts: Sequence[Attempt]) -> dict[str, int]:
    """By the last fence of each job: of one that a peer took and gave back, a worker may have two attempts,
    until the first one hears of it."""
    return {one.job.id: one.job.fence for one in sorted(attempts, key=lambda attempt: attempt.job.fence)}


@dataclass(frozen=True, slots=True)
class _Sight:
    fence: int
    beat: int
    since: float


class JobRecovery:
    """Sweeps over the running jobs and reclaims those that nobody works on.

    Not thread-safe: one thread of the worker sweeps. Its peers do the same at the same time; of all who
    find the same silent owner one reclaims, and an owner that beats in the last moment keeps its job, both
    by the store's compare-and-set on fence and beat.
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
        """Looks at every running job once; returns how many were reclaimed."""
        before = self._seen
        self._seen = {}
        try:
            return self._sweep(before)
        except BaseException:
            # A sight stays true until fence or beat moved on, so a broken sweep need not begin anew.
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
                # A second attempt must not join one of our own threads; a cancelled job gets none.
                if job.cancel_reason is None and self._table.holds(job.id):  # guard: our own is at it
                    continue
                try:
                    reclaimed += self._look_at(job, before.get(job.id), asked_at, seen_at)
                except Exception as error:
                    # This job waits for the next sweep; the others do not.
                    # What nobody foresaw may be this job's alone.
                    if not isinstance(error, DatabaseFailed) and self._table.trouble.met(
                        "reclaiming", error, seen_at
                    ):
                        failed = True
                        continue
                    if isinstance(error, Unavailable):  # as one that somebody holds
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
        """True if nobody worked on it and it was reclaimed."""
        if job.owner is not None and self._supervisor.is_alive(job.owner) is False:
            why = f"its worker {job.owner.id} (pid {job.owner.pid}) died"
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
        return f"its worker {name} was silent for {self._lease_seconds:g} s"

    def _reclaim(self, job: Job, why: str, *, owner_is_dead: bool) -> bool:
        self._faults.reach("job.reclaim.before")
        if owner_is_dead:
            self._end_processes(job)
        try:
            self._store.reclaim(job.id, job.fence, job.beat, error=why, now=self._clock.now())
        except StaleFence:
            return False  # a peer was faster, or the owner lives
        self._faults.reach("job.reclaim.after")
        self._table.trouble.wrote()
        self._table.count("reclaimed")
        worker_log(job).info("job.reclaimed", fence=job.fence, why=why)
        if not owner_is_dead:
            self._end_processes(job)
        return True

    def _end_processes(self, job: Job) -> None:
        """Of the attempt that is being taken away. Its marker is unique, so elsewhere this finds nothing."""
        ended = self._supervisor.end(marker_of(job.id, job.fence), grace_seconds=0)
        if ended:
            worker_log(job).info("job.processes_ended", count=len(ended))
