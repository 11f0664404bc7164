"""Taking jobs from owners that died or fell silent.

A dead owner on this machine is known at once, by its pid and start. Any other is judged by observation: the
same fence and beat for a whole lease on *our* monotonic clock, counted from after we first saw them. What a
job's timestamps say is shown to people and decides nothing here.

The processes of the attempt are ended with it, as far as this machine has them. An owner known to be dead
cannot object, so they end *before* the job says that it is over: a rescuer that dies between the two is
followed by another. An owner that was only silent may live, so it loses the job first, by compare-and-set,
and its processes after that; if it beats in the last moment, nothing of it is touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.clock import Clock
from cleveragents.core.errors import DatabaseFailed, StaleFence, Unavailable
from cleveragents.core.faults import FaultPoints
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.process.ports import ProcessSupervisor
from cleveragents.jobs.worker.attempt import marker_of
from cleveragents.jobs.worker.attempt_table import AttemptTable
from cleveragents.jobs.worker.log import worker_log
from cleveragents.jobs.worker.options import WorkerOptions

__all__ = ["JobRecovery"]

_PAGE = 100


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
