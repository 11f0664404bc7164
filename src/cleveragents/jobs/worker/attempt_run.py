"""Execution of an attempt: the handler, its processes, and the single write that reports the outcome."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field

from msgspec import Struct

from cleveragents.config.logging import is_logged
from cleveragents.core.clock import Clock
from cleveragents.core.errors import CleverAgentsError, StaleFence, UnknownJob, UnknownJobKind
from cleveragents.core.faults import FaultPoints
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, marker_of
from cleveragents.jobs.ports import JobClaim, JobHandler, JobHandoff, JobStore, handler_for
from cleveragents.jobs.process.supervisor import JobProgram, ProcessSupervisor, Raised, Returned
from cleveragents.jobs.worker.attempt import (
    Attempt,
    AttemptTable,
    StopCause,
    WorkerOptions,
    backoff_seconds,
    outcome_of,
    raised,
)
from cleveragents.jobs.worker.log import speaking_of, worker_log

__all__ = ["AttemptRunner", "NextAttempt"]

_WAIT_SECONDS = 1.0
_STORE_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_COUNTED = {
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.QUEUED: "retried",
}


class NextAttempt(Struct, frozen=True):
    """The next claim of a thread, and a function that makes an attempt from the claimed job."""

    claim: JobClaim
    attempt_at: Callable[[Job, float], Attempt]


@dataclass(frozen=True)
class AttemptRunner:
    """`run` is the body of an attempt's thread; another thread calls `escalate` if the attempt does not stop.

    Immutable: the threads share state in the attempt and the table.
    """

    store: JobStore
    clock: Clock
    supervisor: ProcessSupervisor
    table: AttemptTable
    handlers: Mapping[str, JobHandler]
    options: WorkerOptions
    faults: FaultPoints
    following: NextAttempt
    on_slot_free: Callable[[], None] = lambda: None
    jitter: Callable[[], float] = field(default_factory=lambda: secrets.SystemRandom().random)

    def run(self, attempt: Attempt, *, claims_next: bool = False) -> None:
        """Call the handler and report the outcome; with `claims_next`, continue with the next claimed job.

        Never raises: it is the body of a thread.
        """
        under_way: Attempt | None = attempt
        while under_way is not None:
            # guard: context variables of one handler are not visible to the next
            under_way = copy_context().run(self._run, under_way, claims_next)

    def _run(self, attempt: Attempt, claims_next: bool) -> Attempt | None:
        job = attempt.job
        following: Attempt | None = None
        try:
            with speaking_of(job):
                self._end_older(attempt)
                self.faults.reach("job.run.before")
                verdict = self._call(attempt)
                self.faults.reach("job.run.after")
                self._end_processes(attempt, self.options.leftover_grace_seconds)
                following = self._conclude(attempt, verdict, claims_next)
        except BaseException:
            # The job stays ours and silent; a peer, or this worker, recovers it when the lease is over. The
            # same holds for a job that may have been claimed.
            logger = worker_log(job)
            logger.exception("job.attempt_broke", fence=job.fence)
        finally:
            attempt.ended.set()
            if following is None:
                self.table.leave(attempt)
                self.on_slot_free()
        if following is not None and not self.table.follow(attempt, following):  # guard: it shuts down
            following.stop(StopCause.DRAIN, "the worker shuts down", self.clock.monotonic())
        return following

    def escalate(self, attempt: Attempt) -> None:
        """Kill the processes of the attempt, and then abandon a thread that still does not stop.

        Never raises: it is the body of a thread, too.
        """
        try:
            self._end_by_force(attempt)
        except BaseException:
            # It is abandoned anyway; a peer recovers the job when the lease is over.
            logger = worker_log(attempt.job)
            logger.exception("job.escalation_broke", fence=attempt.job.fence)

    def _end_by_force(self, attempt: Attempt) -> None:
        stop = attempt.stopped
        if stop is None or stop.cause is StopCause.LEASE_LOST:
            left = 0.0
        else:
            left = max(0.0, stop.at + self.options.cancel_grace_seconds - self.clock.monotonic())
        began = self.clock.monotonic()
        self._end_processes(attempt, left)
        left -= self.clock.monotonic() - began
        if self._has_processes(attempt):
            # The waiting thread needs a moment to notice that its process was killed.
            left = max(left, self.options.leftover_grace_seconds)
        if attempt.ended.wait(max(left, 0.0)):
            return
        self._strand(attempt)

    def _call(self, attempt: Attempt) -> Returned | Raised:
        try:
            handler = handler_for(attempt.job.kind, self.handlers)
            if handler.isolation == "process":
                return self._call_elsewhere(attempt, handler.target or "")
            assert handler.run is not None
            return Returned(handler.run(attempt.view))
        except BaseException as error:
            # Any exception, including asyncio.CancelledError and SystemExit, ends the handler, not us.
            report = raised(error, told_to_stop=attempt.stopped is not None)
            logger = worker_log(attempt.job)
            # One sentence: a traceback shows the handler's code, and its locals may hold secrets.
            logger.info("job.handler_raised", kind=attempt.job.kind, problem=report.problem)
            return report

    def _call_elsewhere(self, attempt: Attempt, target: str) -> Returned | Raised:
        program = JobProgram(attempt.job, target, attempt.lease_until)
        process = self.supervisor.launch(attempt.marker, program)
        try:
            attempt.attach(process)
            while True:
                # No timeout here: the lease, a cancel or the drain end it, each with its own deadline.
                verdict = process.wait(_WAIT_SECONDS)
                if verdict is not None:
                    return verdict
        finally:
            attempt.detach()
            process.close()

    def _conclude(self, attempt: Attempt, verdict: Returned | Raised, claims_next: bool) -> Attempt | None:
        """Report the outcome; return the attempt that follows, if any."""
        settled = attempt.settle()
        if settled is None:  # guard: it was reported while the handler still ran
            return None
        stop = settled[0]
        backoff = backoff_seconds(attempt.job.attempt, self.options, self.jitter())
        outcome = outcome_of(attempt.job, verdict, stop, self.clock.now(), backoff)
        if outcome is None:
            self._lost(attempt, stop.reason if stop is not None else "")
            return None
        claimed_at = self.clock.monotonic()
        job = self._write(attempt, outcome, claims_next and self.table.may_go_on())
        return None if job is None else self.following.attempt_at(job, claimed_at)

    def _strand(self, attempt: Attempt) -> None:
        settled = attempt.settle()
        if settled is None or settled[0] is None:  # guard: it ended by itself at the last moment
            return
        stop = settled[0]
        try:
            if stop.cause is StopCause.LEASE_LOST:
                self._lost(attempt, stop.reason)
            elif stop.cause is StopCause.CANCEL:
                text = f"cancelled ({stop.reason}); the handler's thread did not stop and was abandoned"
                self._write(attempt, AttemptOutcome(JobState.CANCELLED, error=text))
            # A drain writes nothing: given back immediately, the job might run beside its own straggler. Its
            # heartbeats stop, so a peer takes it when this process is gone or the lease is over.
        finally:
            self.table.strand(attempt)
            logger = worker_log(attempt.job)
            logger.warning("job.straggler", fence=attempt.job.fence, reason=stop.reason)
            self.on_slot_free()

    def _write(self, attempt: Attempt, outcome: AttemptOutcome, claims_next: bool = False) -> Job | None:
        """Store the outcome if the job is still ours; return the job claimed in the same step, if any."""
        job = attempt.job
        self.faults.reach("job.finish.before")
        try:
            turn = self._finish(attempt, outcome, claims_next)
        except CleverAgentsError as error:
            self._lost(attempt, str(error))
            return None
        self.faults.reach("job.finish.after")
        self.table.trouble.wrote()
        after = turn.ended
        handed_on = outcome.handed_on and after.state is JobState.QUEUED
        self.table.count("handed_on" if handed_on else _COUNTED[after.state])
        if is_logged("info"):
            worker_log(job).info("job.finished", state=after.state.value, attempt=job.attempt)
        if turn.following is not None:
            self.faults.reach("job.claim.after")
        return turn.following

    def _finish(self, attempt: Attempt, outcome: AttemptOutcome, claims_next: bool) -> JobHandoff:
        """Write the outcome; retry while the store fails and the job is still ours.

        Every error is retried, because the work is done and its result should not be lost. Only the first try
        claims the next job. If the answer to this try is lost, the claimed job gets no heartbeats and is
        reclaimed.
        """
        job = attempt.job
        tried_before = False
        pause = _STORE_PAUSE_SECONDS
        while True:
            try:
                if claims_next and not tried_before:
                    claim = self.following.claim
                    return self.store.finish_and_claim(
                        job.id, job.fence, outcome, claim, now=self.clock.now()
                    )
                return JobHandoff(self._finish_once(job, outcome, tried_before), None)
            except (StaleFence, UnknownJob):
                raise
            except CleverAgentsError as error:
                now = self.clock.monotonic()
                told = self.table.trouble.met("writing", error, now) or tried_before
                if now >= attempt.lease_until:  # guard: it is not ours to write any more
                    raise
                if not told:
                    worker_log(job).warning("job.finish_failed", problem=str(error))
                tried_before = True
                threading.Event().wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _finish_once(self, job: Job, outcome: AttemptOutcome, tried_before: bool) -> Job:
        try:
            return self.store.finish(job.id, job.fence, outcome, now=self.clock.now())
        except StaleFence:
            if not tried_before:
                raise
            now = self.store.get(job.id)
            # An earlier try whose answer was lost may have succeeded.
            if now.fence == job.fence and now.state is outcome.state:
                return now
            raise

    def _lost(self, attempt: Attempt, why: str) -> None:
        self.table.count("lease_lost")
        worker_log(attempt.job).warning("job.lease_lost", fence=attempt.job.fence, why=why)

    def _end_older(self, attempt: Attempt) -> None:
        """Kill remaining processes of earlier attempts on this machine: none may run beside this attempt."""
        for fence in range(1, attempt.job.fence):
            self.supervisor.end(marker_of(attempt.job.id, fence), grace_seconds=0)

    def _end_processes(self, attempt: Attempt, grace_seconds: float) -> None:
        if not self._has_processes(attempt):
            return
        try:
            ended = self.supervisor.end(attempt.marker, grace_seconds=grace_seconds)
        except Exception:
            # A failure to kill them must not keep the attempt from being reported.
            logger = worker_log(attempt.job)
            logger.exception("job.processes_left")
            return
        if ended:
            worker_log(attempt.job).info("job.processes_ended", count=len(ended))

    def _has_processes(self, attempt: Attempt) -> bool:
        if attempt.view.environment_taken:
            return True
        with suppress(UnknownJobKind):
            return handler_for(attempt.job.kind, self.handlers).isolation == "process"
        return False
