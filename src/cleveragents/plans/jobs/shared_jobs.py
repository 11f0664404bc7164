"""The jobs of a shared queue: running plans, applying and undoing their results.

Each may be killed anywhere and claimed again. What an earlier attempt did to files is in the journal: it is
settled first, and what is done already is not done again. What stands in the way of a result is kept with its
plan; the job of whoever asked for it has failed then, and is not tried again, for nothing has changed.

A job that was cancelled while no code of it ran: its plan learns of that at once.

A plan under way belongs to its job, and whoever runs the job moves the plan. Where an engine hands a job on
after each phase, a cancel may come when nobody runs it, and from somebody who knows jobs only. Plans would
learn of it when somebody looks at them; so does this, without waiting for that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cleveragents.access.model.project import TO_BRANCH
from cleveragents.apply.ports import CommitRequest
from cleveragents.core.cancellation import is_mere_stop
from cleveragents.core.errors import ApplyRefused, Conflict, PlanError, StaleFence, StalePlan, UnknownPlan
from cleveragents.core.identifiers import Fence, acting_as
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.jobs.model.job import HANDED_ON, HandedOn, Job
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.plans.apply_policy import ApplyPolicyParts, apply_if_allowed, can_retry_apply, should_apply
from cleveragents.plans.jobs.names import kind_of_plan, should_run
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState

__all__ = ["ApplyJob", "PlanJob", "PlanObserver", "UndoJob", "cancel_plan_of"]


_APPLIED = (Phase.APPLY, PlanState.APPLIED)
_UNDONE = (Phase.APPLY, PlanState.UNDONE)


@dataclass(frozen=True, slots=True)
class PlanObserver:
    """Who hears of plans: `tell` a line, `end` that nothing more comes for now."""

    tell: Callable[[Plan, str], None] = lambda plan, line: None
    end: Callable[[str], None] = lambda plan_id: None

    def of(self, plan: Plan) -> Callable[[str], None]:
        return lambda line: self.tell(plan, line)


@dataclass(frozen=True, slots=True)
class ApplyJob:
    """Applies a result that somebody decided about. Stateless but for its parts."""

    parts: ApplyPolicyParts
    watched: PlanObserver

    def __call__(self, job: AsyncJob) -> JsonValue:
        """Where the plan stands. `PlanError` where it was not applied."""
        with acting_as(_by(job)):  # guard: the log says who asked for it
            try:
                return _told(self.applied(job, _settled(self.parts, job, self.watched)))
            finally:
                self.watched.end(str(job.payload["plan_id"]))

    def applied(self, job: AsyncJob, plan: Plan) -> Plan:
        """The plan, applied, be it by another attempt. `PlanError`, having said why not."""
        if plan.phase_state == _APPLIED:  # guard: nothing is applied twice
            return plan
        job.token.raise_if_cancelled()
        try:
            told, fence = self.watched.of(plan), _fence(job)
            return self.parts.apply.apply(plan, job.token, commit=_commit(job), told=told, fence=fence)[0]
        except (StalePlan, StaleFence):
            raise  # somebody else has it in hand; the next attempt sees what came of that
        except Conflict as refused:
            self.watched.tell(plan, str(refused))
            raise PlanError(plan.id, f"it was not applied: {_why(plan, refused)}") from refused


@dataclass(frozen=True, slots=True)
class UndoJob:
    """Takes out again what was applied. Stateless but for its parts."""

    parts: ApplyPolicyParts
    watched: PlanObserver

    def __call__(self, job: AsyncJob) -> JsonValue:
        """Where the plan stands. `PlanError` where it was not undone."""
        with acting_as(_by(job)):  # guard: the log says who asked for it
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
            still = "the undo was refused, and it is still applied"
            raise PlanError(plan.id, f"{still}: {_why(plan, refused)}") from refused
        finally:
            self.watched.end(plan.id)


@dataclass(frozen=True, slots=True)
class PlanJob:
    """Runs a plan, and applies what comes of it if that is allowed without a question. With `phases_apart`
    it does one of the plan's phases, and hands the job on. Stateless but for its parts."""

    run: Callable[[AsyncJob], JsonValue]
    parts: ApplyPolicyParts
    watched: PlanObserver
    phases_apart: bool = False

    def __call__(self, job: AsyncJob) -> JsonValue | HandedOn:
        """Where the plan stands, unless there is more to do for it."""
        plan_id = str(job.payload["plan_id"])
        before = self.parts.plans.get(plan_id).phase_state if self.phases_apart else None
        try:
            answer = self.run(job)
            plan = self.parts.plans.get(plan_id)
            if plan.job_id != job.id:  # guard: no other job's plan
                return answer
            job.token.raise_if_cancelled()  # guard: who lost the plan does not apply it
            if before is not None and self._has_a_next_phase(before, plan):
                return HANDED_ON
            after = self._concluded(job, plan)
        finally:
            self.watched.end(plan_id)
        return answer if after == plan else _told(after)

    def _has_a_next_phase(self, before: PhaseState, plan: Plan) -> bool:
        """Also the first one, for a plan that is to be thought through again."""
        if should_run(plan):
            return True
        return before != plan.phase_state and should_apply(self.parts, plan)

    def _concluded(self, job: AsyncJob, plan: Plan) -> Plan:
        if plan.phase is Phase.APPLY and job.attempt > 1:
            return self._applied_after_all(job, plan)
        return apply_if_allowed(self.parts, plan, self.watched.of(plan), stop=job.token, fence=_fence(job))

    def _applied_after_all(self, job: AsyncJob, plan: Plan) -> Plan:
        """An earlier attempt may have been killed, or its worker stopped, while it applied the result."""
        plan = _settled(self.parts, job, self.watched)
        if can_retry_apply(plan):
            with suppress(PlanError):  # the plan says what stood in the way
                plan = ApplyJob(self.parts, self.watched).applied(job, plan)
        return self.parts.plans.get(plan.id)


def _settled(parts: ApplyPolicyParts, job: AsyncJob, watched: PlanObserver) -> Plan:
    """The plan, with what a dead process left of it completed or taken back. `PlanError` where a person has
    to do something first; `Cancelled`."""
    plan_id = str(job.payload["plan_id"])
    plan = parts.plans.get(plan_id)
    if plan.phase is not Phase.APPLY:
        return plan
    try:
        # guard: `settle` would leave it alone while another plan is applied to the same files, as would we
        return parts.apply.taken_up(plan, _fence(job), watched.of(plan), job.token)
    except ApplyRefused as refused:
        # By itself nothing will have changed at the next attempt.
        watched.tell(plan, str(refused))
        raise PlanError(plan.id, _why(plan, refused)) from refused


def _fence(job: AsyncJob) -> Fence:
    return Fence(job.id, job.fence)


def _why(plan: Plan, refused: Conflict) -> str:
    """What stands in the way, without once more saying of what."""
    words = str(refused)
    for done in ("applied", "undone"):
        words = words.removeprefix(f"plan {plan.id} was not {done}: ")
    return words


def _by(job: AsyncJob) -> str | None:
    """The user who asked for it."""
    name = job.payload.get("by")
    return name if isinstance(name, str) else None


def _commit(job: AsyncJob) -> CommitRequest | None:
    message, branch = (_text(job.payload.get(name)) for name in ("commit", TO_BRANCH))
    return CommitRequest(message, branch or None) if message or branch else None


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _told(plan: Plan) -> JsonValue:
    return freeze({"plan": plan.id, "phase": plan.phase.value, "state": plan.state.value})


def cancel_plan_of(job: Job, lifecycle: PlanLifecycle) -> None:
    """Cancels the plan that the job, which is cancelled, was to run; one that has another job by now, or came
    to its end, is left alone. A job that was to apply or undo a result leaves that as it is."""
    try:
        plan = lifecycle.plans.get(str(job.payload.get("plan_id")))
    except UnknownPlan:
        return
    plan = lifecycle.queueing.taken_up_by(job.id, plan)
    if plan.job_id != job.id or job.kind != kind_of_plan(plan.root):  # guard: no other job's plan
        return
    reason = str(job.cancel_reason)
    if is_mere_stop(reason):
        lifecycle.reconciled(plan)
        return
    with suppress(PlanError):  # it has ended otherwise
        lifecycle.cancel(plan, reason)
