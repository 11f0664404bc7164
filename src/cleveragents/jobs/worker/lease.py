"""Keeping a job: heartbeats, and letting go in time when they fail.

No wall clock takes part. The owner measures from the moment *before* it sent its last acknowledged
heartbeat; a peer measures from the moment *after* it first saw that heartbeat; both for a whole lease, each
on its own clock. So the owner's time is over before any peer's is. Beating waits for the store, watching
must not: two threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cleveragents.core.clock import Clock
from cleveragents.core.errors import StaleFence, Unavailable
from cleveragents.core.faults import FaultPoints
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.worker.attempt import Attempt
from cleveragents.jobs.worker.attempt_table import AttemptTable
from cleveragents.jobs.worker.log import worker_log
from cleveragents.jobs.worker.options import WorkerOptions
from cleveragents.jobs.worker.outcome import StopCause

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["LeaseKeeper"]

_SHORTEST_LOOK_SECONDS = 0.01


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
