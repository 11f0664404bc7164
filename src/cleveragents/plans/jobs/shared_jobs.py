"""The jobs of a shared queue: run plans, and apply and undo their results.

Each job may be killed at any point and claimed again. The journal records the file changes of an earlier
attempt: an unfinished apply is completed or rolled back first, and finished work is not repeated. If a result
cannot be applied, the plan stores the reason and the job fails without a retry, because a retry would fail,
too.

`cancel_plan_of` handles a job that is cancelled while no worker runs it, for example between two phases. It
cancels the plan at once, without waiting for the next process that reads the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cleveragents.access.model.project import TO_BRANCH
from cleveragents.apply.ports import CommitRequest
from cleveragents.core.cancellation import is_resumable_stop
from cleveragents.core.errors import (
    ApplyRefused,
    Conflict,
    PlanError,
    Remedy,
    StaleFence,
    StalePlan,
    UnknownPlan,
)
from cleveragents.core.identifiers import Fence, acting_as
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.jobs.model.job import HANDED_ON, HandedOn, Job
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.plans.apply_policy import ApplyPolicyParts, apply_if_allowed, should_apply
from cleveragents.plans.jobs.names import kind_of_plan, should_run
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState

__all__ = ["ApplyJob", "PlanJob", "PlanObserver", "UndoJob", "cancel_plan_of"]


_APPLIED = (Phase.APPLY, PlanState.APPLIED)
_UNDONE = (Phase.APPLY, PlanState.UNDONE)


@dataclass(frozen=True, slots=True)
class PlanObserver:
    """Receives reports about plans: `tell` gets each line of progress, and `end` marks the end of a job."""

    tell: Callable[[Plan, str], None] = lambda plan, line: None
    end: Callable[[str], None] = lambda plan_id: None

    def of(self, plan: Plan) -> Callable[[str], None]:
        return lambda line: self.tell(plan, line)


@dataclass(frozen=True, slots=True)
class ApplyJob:
    """Applies an approved result. Stateless."""

    parts: ApplyPolicyParts
    watched: PlanObserver

    def __call__(self, job: AsyncJob) -> JsonValue:
        """Apply the result and return the phase and state of the plan.

        Raises `PlanError` if it was not applied, also if the plan has changed since the user requested it.
        """
        with acting_as(_by(job)):  # guard: the audit log names the user
            try:
                plan = _settled(self.parts, job, self.watched)
                _ensure_requested(job, plan)
                return _told(self.applied(job, plan))
            finally:
                self.watched.end(str(job.payload["plan_id"]))

    def applied(self, job: AsyncJob, plan: Plan) -> Plan:
        """Return the plan, applied by this or another attempt.

        If it is not applied, reports the reason and raises `PlanError`.
        """
        if plan.phase_state == _APPLIED:  # guard: nothing is applied twice
            return plan
        job.token.raise_if_cancelled()
        try:
            told, fence = self.watched.of(plan), _fence(job)
            # A job of version 0.1.0 names no tree.
            tree, commit = _text(job.payload.get("tree")) or None, _commit(job)
            applied, _ = self.parts.apply.apply(
                plan, job.token, commit=commit, told=told, fence=fence, tree=tree
            )
            return applied
        except (StalePlan, StaleFence):
            raise  # another process has it; the next attempt sees the outcome
        except Conflict as refused:
            self.watched.tell(plan, str(refused))
            raise PlanError(plan.id, f"not applied: {_why(plan, refused)}") from refused


@dataclass(frozen=True, slots=True)
class UndoJob:
    """Undoes an applied result. Stateless."""

    parts: ApplyPolicyParts
    watched: PlanObserver

    def __call__(self, job: AsyncJob) -> JsonValue:
        """Undo the result and return the phase and state of the plan.

        Raises `PlanError` if it was not undone.
        """
        with acting_as(_by(job)):  # guard: the audit log names the user
            return self._undone(job)

    def _undone(self, job: AsyncJob) -> JsonValue:
        plan = self.parts.plans.get(str(job.payload["plan_id"]))
        try:
            plan = _settled(self.parts, job, self.watched)
            if plan.phase_state == _UNDONE:  # guard: an earlier attempt did it
                return _told(plan)
            job.token.raise_if_cancelled()
            told = self.watched.of(plan)
            commit, fence = _commit(job), _fence(job)
            undone, _ = self.parts.apply.undo(plan, commit=commit, told=told, fence=fence, stop=job.token)
            return _told(undone)
        except (StalePlan, StaleFence):
            raise
        except Conflict as refused:
            self.watched.tell(plan, str(refused))
            raise PlanError(plan.id, f"still applied, the undo failed: {_why(plan, refused)}") from refused
        finally:
            self.watched.end(plan.id)


@dataclass(frozen=True, slots=True)
class PlanJob:
    """Runs a plan and applies its result if no approval is needed. With `phases_apart`, runs one phase and
    queues the job again. Stateless.
    """

    run: Callable[[AsyncJob], JsonValue | HandedOn]
    parts: ApplyPolicyParts
    watched: PlanObserver
    phases_apart: bool = False

    def __call__(self, job: AsyncJob) -> JsonValue | HandedOn:
        """Run the plan and return its state, or `HANDED_ON` if there is more to do."""
        plan_id = str(job.payload["plan_id"])
        before = self.parts.plans.get(plan_id).phase_state if self.phases_apart else None
        try:
            answer = self.run(job)
            if isinstance(answer, HandedOn):  # guard: it continues later, not at once
                return answer
            plan = self.parts.plans.get(plan_id)
            if plan.job_id != job.id:  # guard: not the plan of another job
                return answer
            job.token.raise_if_cancelled()  # guard: a worker that lost the plan does not apply it
            if before is not None and self._has_a_next_phase(before, plan):
                return HANDED_ON
            after = self._concluded(job, plan)
        finally:
            self.watched.end(plan_id)
        return answer if after == plan else _told(after)

    def _has_a_next_phase(self, before: PhaseState, plan: Plan) -> bool:
        """Return whether another phase follows, including Strategize for a plan that is planned again."""
        if should_run(plan):
            return True
        return before != plan.phase_state and should_apply(self.parts, plan)

    def _concluded(self, job: AsyncJob, plan: Plan) -> Plan:
        # An earlier attempt may have been killed or stopped while it applied the result.
        again = plan.phase is Phase.APPLY and job.attempt > 1
        if again:
            plan = _settled(self.parts, job, self.watched)
        told, fence = self.watched.of(plan), _fence(job)
        return apply_if_allowed(self.parts, plan, told, stop=job.token, fence=fence, again=again)


def _settled(parts: ApplyPolicyParts, job: AsyncJob, watched: PlanObserver) -> Plan:
    """Complete or roll back the unfinished apply of a dead process, and return the plan. Raises `PlanError`
    if a person has to act first; `Cancelled`.
    """
    plan_id = str(job.payload["plan_id"])
    plan = parts.plans.get(plan_id)
    if plan.phase is not Phase.APPLY:
        return plan
    try:
        # guard: `settle` would skip it while another plan is applied to the same files, and so would we
        return parts.apply.taken_up(plan, _fence(job), watched.of(plan), job.token)
    except ApplyRefused as refused:
        # Another attempt would not change this.
        watched.tell(plan, str(refused))
        raise PlanError(plan.id, _why(plan, refused)) from refused


def _fence(job: AsyncJob) -> Fence:
    return Fence(job.id, job.fence)


def _why(plan: Plan, refused: Conflict) -> str:
    """Return the reason for the refusal, without the part of the message that names the plan."""
    words = str(refused)
    for done in ("applied", "undone"):
        words = words.removeprefix(f"plan {plan.id} was not {done}: ")
    return words


def _by(job: AsyncJob) -> str | None:
    """Return the user who requested the job."""
    name = job.payload.get("by")
    return name if isinstance(name, str) else None


def _ensure_requested(job: AsyncJob, plan: Plan) -> None:
    """Raise `PlanError` if the plan has moved since the request: it may have another result, or a user has
    applied it. An earlier attempt of this job may have moved it to the phase Apply, which keeps the result. A
    job of version 0.1.0 names no version.
    """
    version, begun = job.payload.get("version"), job.attempt > 1 and plan.phase is Phase.APPLY
    if isinstance(version, int) and plan.version != version and not begun:
        show = Remedy("plan.show", plan.id, text="Look at the plan, and apply it again")
        # Not `StalePlan`, which would be retried.
        raise PlanError(plan.id, "it has changed since the apply was requested", (show,)) from StalePlan(
            plan.id, version
        )


def _commit(job: AsyncJob) -> CommitRequest | None:
    message, branch = (_text(job.payload.get(name)) for name in ("commit", TO_BRANCH))
    return CommitRequest(message, branch or None) if message or branch else None


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _told(plan: Plan) -> JsonValue:
    return freeze({"plan": plan.id, "phase": plan.phase.value, "state": plan.state.value})


def cancel_plan_of(job: Job, lifecycle: PlanLifecycle) -> None:
    """Cancel the plan of a cancelled job. A plan that has another job by now, or has ended, is left alone. A
    job that applies or undoes a result does not change its plan.
    """
    try:
        plan = lifecycle.plans.get(str(job.payload.get("plan_id")))
    except UnknownPlan:
        return
    plan = lifecycle.queueing.taken_up_by(job.id, plan)
    if plan.job_id != job.id or job.kind != kind_of_plan(plan.root):  # guard: not the plan of another job
        return
    reason = str(job.cancel_reason)
    if is_resumable_stop(reason):
        lifecycle.reconciled(plan)
        return
    with suppress(PlanError):  # it has ended otherwise
        lifecycle.cancel(plan, reason)
