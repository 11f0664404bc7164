"""Actions of a person on plans: create, approve, answer, cancel, resume, discard.

A running plan belongs to the job that runs it, so a cancel is sent to the job, and the worker that owns the
job moves the plan. This module moves the plan only if no such worker is alive. `reconciled` updates a plan
whose job ended without moving it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cleveragents.core.cancellation import is_resumable_stop, user_reason
from cleveragents.core.errors import (
    Conflict,
    DatabaseFailed,
    DatabaseUnusable,
    Fault,
    InvalidRequest,
    JobAlreadyEnded,
    PlanError,
    Remedy,
    SandboxBusy,
    SandboxMissing,
    StaleFence,
    StalePlan,
)
from cleveragents.core.text.redaction import redact_known_text, redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.model.job import Job, JobState, marker_of
from cleveragents.plans.jobs.names import ConcurrencyLimits, should_run
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState, ensure_plan_move
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.model.sub_plan import (
    CONFLICT,
    STOPPED,
    SUB_PLANS,
    ended_by,
    has_news,
    waits_for_sub_plans,
)
from cleveragents.plans.model.usage_wait import is_parked, waiting_process
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts
from cleveragents.plans.queue import PlanQueue, resume_payload
from cleveragents.plans.sub_plans.messages import leave_out_named

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.core.json_value import JsonValue
    from cleveragents.jobs.ports import JobStore
    from cleveragents.jobs.process.supervisor import ProcessSupervisor
    from cleveragents.plans.sandbox_edits import SandboxEdits
    from cleveragents.plans.store.sql_plan_records import SqlCallStore
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore
    from cleveragents.plans.store.sql_rule_store import NewRule
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["PlanLifecycle"]

_DECISIONS = 10
_REJECTED = (Phase.APPLY, PlanState.REJECTED)
_RESUMED = ("budget", CONFLICT, SUB_PLANS)


class PlanLifecycle(Struct, frozen=True):
    """Creates, resumes, cancels and discards plans. Stateless: any thread and process may use it; of several
    concurrent calls for a plan, one wins.
    """

    plans: SqlPlanStore
    calls: SqlCallStore
    jobs: JobStore
    processes: ProcessSupervisor
    sandbox_edits: SandboxEdits
    clock: Clock
    grace_seconds: float = 5.0
    max_parallel: int = 4
    lanes: ConcurrencyLimits = field(default_factory=ConcurrencyLimits)

    def create(self, new: PlanDraft, claim: IdempotencyClaim | None = None) -> Plan:
        """Create a plan and queue a job for it. If the queue is full, raises `QueueFull` and keeps no plan.
        For `claim`, see `SqlPlanStore.create`.
        """
        # The goal is only for people to read, so secrets are masked. The plan needs its arguments unchanged.
        new = replace(new, goal=redact_text(new.goal))
        plan = self.plans.create(new, now=self.clock.now(), claim=claim)
        return self.queueing.started(plan, claim)

    def resume(self, plan: Plan, *, model: str | None = None) -> Plan:
        """Queue a plan that failed, was interrupted or waits for a usage limit, so that it continues where it
        stopped.

        If the plan failed at a call, that call is made again; earlier calls are not. A job of the plan that
        has no owner is reused, because a second job would compete with it. With `model`, the actors of the
        plan use that model from now on. Its sub-plans are resumed as well, except the cancelled sub-plans
        that the error of the plan names.

        Raises `PlanError` if the plan runs, waits for approval, is being cancelled, is merged or has ended;
        `NeedsHuman` if its sandbox has unrecorded edits.
        """
        plan = self.reconciled(plan)
        if plan.state.ended:
            raise PlanError(
                plan.id,
                f"already {status_word(plan)}, which is final; start a new plan",
            )
        if plan.phase is Phase.APPLY and not self.sandbox_edits.history.is_rolled_back(plan):
            again = Remedy("plan.apply", plan.id, text="Apply the plan again")
            problem = f"{status_word(plan)}; an apply cannot be resumed"
            raise PlanError(plan.id, problem, (again,))
        if self.should_cancel(plan):
            cancel = Remedy("plan.cancel", plan.id, text="Finish the cancel")
            raise PlanError(plan.id, "the cancel is not finished", (cancel,))
        if should_run(plan) and not is_parked(plan):
            plan = self._taken_up(plan, model)
            self._resume_children(plan, model)
            return plan
        parked = self._parked_job(plan)
        if plan.state is PlanState.WAITING and self.asking(plan) is not None:
            answers = (
                Remedy("plan.approve", plan.id, text="Approve"),
                Remedy("plan.deny", plan.id, text="Deny"),
            )
            raise PlanError(plan.id, "waiting for your approval", answers)
        self.sandbox_edits.ensure_unmerged(plan)  # guard: later work would not be merged again
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run resets the sandbox to the records
        # First: otherwise the plan finds its sub-plans failed and fails again.
        self._resume_children(plan, model)
        if plan.phase is Phase.EXECUTE and plan.state in (PlanState.ERRORED, PlanState.WAITING):
            # A plan that waits for more time may also have stopped at a call.
            with suppress(SandboxMissing):
                self.sandbox_edits.take_back_failure(plan)
        if plan.phase_state == (Phase.EXECUTE, PlanState.ERRORED):
            past, now = self.sandbox_edits.history.calls(plan.id), self.clock.now()
            leave_out_named(plan, self._children_wanted(plan), past, self.calls, now)
        return self._queued_anew(plan, model, parked)

    def _queued_anew(self, plan: Plan, model: str | None, parked: Job | None) -> Plan:
        """Queue a new job for the plan and end the `parked` job that waited for a usage limit, if any."""
        try:
            # A blocked plan that was rolled back executes again.
            wanted = (Phase.EXECUTE, PlanState.QUEUED) if plan.phase is Phase.APPLY else None
            queued = self.queue(plan, resume_payload(model), wanted=wanted)
        except StalePlan:
            stored = self.plans.get(plan.id)
            if parked is None or stored.job_id != parked.id or not stored.state.running:
                raise
            return stored  # the limit has just reset, and a worker continues the plan
        if parked is not None:
            # The plan left this job first: a worker that claims it finds that the plan has another one.
            with suppress(JobAlreadyEnded):
                self.jobs.request_cancel(parked.id, "the plan was resumed", now=self.clock.now())
        return queued

    def _parked_job(self, plan: Plan) -> Job | None:
        """Return the job that waits for the reset of a usage limit; None for a plan without such a job.
        Raises `PlanError` if a worker has the job at this moment.
        """
        job = self.queueing.job_of(plan) if is_parked(plan) else None
        if job is None:
            return None
        self._end_of_dead_owner(job)
        if self.has_worker(plan):  # guard: one owner at a time
            raise PlanError(plan.id, "the worker of the plan has not stopped yet; try again")
        return job

    def has_worker(self, plan: Plan) -> bool:
        """Return whether a living process runs the plan. A process that is not known to be dead counts as
        alive.
        """
        job = self.queueing.job_of(plan)
        return job is not None and self._is_at_work(job)

    def is_abandoned(self, plan: Plan) -> bool:
        """Return whether the plan waits for the reset of a usage limit in a process that is dead."""
        process = waiting_process(plan)
        return process is not None and self.processes.is_alive(process) is False

    def should_cancel(self, plan: Plan) -> bool:
        """Return whether a stop was requested and the worker of the plan is gone."""
        job = self.queueing.job_of(plan)
        if job is None or job.state.ended or not should_run(plan):
            return False
        return job.cancel_reason is not None and not self._is_at_work(job)

    def asking(self, plan: Plan) -> ToolCall | None:
        """Return the call that waits for approval, if any."""
        for call in self.sandbox_edits.history.calls(plan.id):
            if call.state is CallState.ASKED and call.approval is None:
                return call
        return None

    def answer(
        self,
        plan: Plan,
        granted: bool,
        number: int | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
        rule: NewRule | None = None,
    ) -> Plan:
        """Approve or deny the pending call and queue the plan. `by` is recorded in the audit log; the agent
        reads the `reason` of a denial; `rule` approves later calls as well.

        Raises `PlanError` if no call is pending or the pending call is not `number`; `NeedsHuman` if the
        sandbox has unrecorded edits.
        """
        plan = self.plans.get(plan.id)
        call = self.asking(plan) if plan.state is PlanState.WAITING else None
        if call is None:  # guard: a run that has not stopped yet is not run twice
            raise PlanError(plan.id, "no approval is pending")
        if number not in (None, call.number):  # guard: an answer is to the request that was seen
            raise PlanError(plan.id, f"call {number} is not pending; call {call.number} is")
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run resets the sandbox to the records
        verdict = "granted" if granted else "denied"
        self.calls.answer(
            plan.id, call.number, verdict, now=self.clock.now(), by=by, reason=reason, rule=rule
        )
        return self.queue(plan)

    def reply(self, plan: Plan, text: str, question: str | None = None) -> Plan:
        """Answer the pending question of an actor and queue the plan.

        Raises `PlanError` if no question is pending, if the pending question has another name than
        `question`, or if the answer is not one of its choices.
        """
        plan = self.plans.get(plan.id)
        waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        if (
            plan.state is not PlanState.WAITING or waited.get("for") != "question"
        ):  # guard: an answer needs a question
            raise PlanError(plan.id, "no question is pending")
        if question not in (
            None,
            waited.get("question"),
        ):  # guard: an answer is to the question seen
            asks = f"another question is pending: {redact_known_text(str(waited.get('what')))}"
            raise PlanError(plan.id, f"{asks}; the answer was for an earlier one")
        choices = waited.get("choices")
        if isinstance(choices, Sequence) and choices and text not in choices:
            raise PlanError(plan.id, f"{text!r} is not one of the choices: {', '.join(map(str, choices))}")
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run resets the sandbox to the records
        return self.queue(plan, {"answer": {"question": waited.get("question"), "text": text}})

    def reject(self, plan: Plan) -> Plan:
        """Discard the result of a plan. Raises `IllegalPlanMove` if the plan runs or has ended, `PlanError`
        if it is merged.
        """
        ensure_plan_move(plan.id, plan.phase_state, _REJECTED)  # guard: a running plan owns its calls
        with self.sandbox_edits.unmerged(plan):  # guard: a discarded result is in no other result
            self._end_calls(plan, PlanState.REJECTED, "")
            rejected = self.plans.move(plan, _REJECTED, now=self.clock.now())
        self.cancel_children(rejected, "the parent plan was discarded")
        self.wake(rejected)
        return rejected

    def cancel(self, plan: Plan, reason: str) -> Plan:
        """Cancel the plan and its unfinished sub-plans.

        If a worker runs the plan, the returned plan is still running, and the worker cancels it. A cancelled
        plan is returned unchanged. Raises `PlanError` if the plan ended otherwise, is being applied, or is
        merged.
        """
        return self._ended_for(plan, user_reason(reason))

    def stop(self, plan: Plan, reason: str = STOPPED) -> Plan:
        """Stop the plan and its sub-plans so that they can be resumed: they fail with this reason, a
        `resumable_stop`. A plan that has not started, is complete or is being cancelled stays as it is.

        If a worker runs the plan, the returned plan is still running, and the worker stops it. Raises
        `PlanError` if the plan has ended, is being applied, or is merged.
        """
        return self._ended_for(plan, reason)

    def _ended_for(self, plan: Plan, reason: str) -> Plan:
        cancelled = self._decided(plan, reason)
        # Its owner cancels sub-plans spawned until now: a moved plan spawns no more.
        self.cancel_children(cancelled, reason)
        self.wake(cancelled)
        return cancelled

    def cancel_children(self, plan: Plan, reason: str) -> None:
        """Cancel every unfinished plan below this one.

        Call this after the plan itself has ended, because an ended plan gets no more sub-plans.
        """
        for child in self.plans.children(plan.id):
            if child.phase_state != (Phase.EXECUTE, PlanState.COMPLETE):
                with suppress(PlanError):  # it has ended, or was discarded
                    self._ended_for(child, reason)

    def _decided(self, plan: Plan, reason: str) -> Plan:
        for _ in range(_DECISIONS):
            with suppress(StalePlan):  # a concurrent decision won; decide again
                return self._cancelled(self.reconciled(plan), reason)
            plan = self.plans.get(plan.id)
        return self._cancelled(self.reconciled(plan), reason)

    def _cancelled(self, plan: Plan, reason: str) -> Plan:
        state, error = ended_by(reason)
        if plan.state is PlanState.CANCELLED or (is_resumable_stop(reason) and _is_settled(plan)):
            return plan
        if plan.state.ended:
            raise PlanError(plan.id, f"already {status_word(plan)}; nothing was changed")
        if plan.phase is Phase.APPLY and plan.state.running:  # guard: its changes to files decide its state
            undo = Remedy("plan.undo", plan.id, text="Undo it")
            raise PlanError(plan.id, "an apply is running", (undo,))
        job = self.queueing.job_of(plan)
        if job is not None and not job.state.ended:
            with suppress(JobAlreadyEnded):
                self.jobs.request_cancel(job.id, reason, now=self.clock.now())
            self._end_of_dead_owner(self.jobs.get(job.id))
            plan = self.reconciled(self.plans.get(plan.id))
            if plan.state in (state, PlanState.CANCELLED) or (plan.state.running and self.has_worker(plan)):
                return plan
        with self.sandbox_edits.unmerged(plan):  # guard: a merged result is not cancelled
            self._end_calls(plan, state, error)
            return self.plans.move(plan, (plan.phase, state), PlanFacts(error=error), now=self.clock.now())

    def queue(
        self, plan: Plan, more: Mapping[str, JsonValue] | None = None, *, wanted: PhaseState | None = None
    ) -> Plan:
        """Queue a job that continues the plan, from its current phase or from `wanted`. `more` is added to
        the payload of the job. Raises `IllegalPlanMove`; `StalePlan` if the plan moved since it was read.
        """
        return self.queueing.queue(plan, more, wanted=wanted)

    def wake(self, plan: Plan) -> None:
        """Queue the parent of a sub-plan that no longer runs, if the parent waits for its sub-plans."""
        self.queueing.wake(plan)

    @property
    def queueing(self) -> PlanQueue:
        return PlanQueue(self.plans, self.jobs, self.clock, self.max_parallel, self.lanes)

    def reconciled(self, plan: Plan) -> Plan:
        """Return the plan, moved to the outcome of its job if the job ended without moving it."""
        if plan.phase is Phase.APPLY:
            self._end_calls_left(plan)
            return plan
        if waits_for_sub_plans(plan):
            self._let_go(self.queueing.job_of(plan))
            children = [self.reconciled(child) for child in self.plans.children(plan.id)]
            return self.queueing.woken(plan, children)
        job = self.queueing.job_of(plan)
        if not should_run(plan):
            self._let_go(job)
            self._end_calls_left(plan)
            return plan
        if job is not None and is_resumable_stop(job.cancel_reason):
            self._end_of_dead_owner(job)  # nothing is lost by a stop, so the plan need not be cancelled
            job = self.queueing.job_of(plan)
        if job is None or not job.state.ended or job.state is JobState.SUCCEEDED:
            return self.plans.get(plan.id)
        cancelled = job.state is JobState.CANCELLED
        failed = PlanState.ERRORED, job.error or "the job of the plan failed"
        state, error = ended_by(str(job.cancel_reason)) if cancelled else failed
        try:
            between = plan.phase_state == (Phase.STRATEGIZE, PlanState.COMPLETE)
            if between and state is PlanState.ERRORED:
                plan = self.plans.move(plan, (Phase.EXECUTE, PlanState.QUEUED), now=self.clock.now())
            self._end_calls(plan, state, error)
            moved = self.plans.move(plan, (plan.phase, state), PlanFacts(error=error), now=self.clock.now())
        except StalePlan:
            return self.plans.get(plan.id)  # another process moved it
        if cancelled:
            self.cancel_children(moved, str(job.cancel_reason))
        self.wake(moved)
        return moved

    def all_reconciled(self, plans: Sequence[Plan]) -> list[Plan]:
        """Reconcile many plans. The cost depends on the number of unfinished plans. A plan that cannot be
        reconciled is returned unchanged, with the reason as its `error`.
        """
        unfinished = self.queueing.unfinished_jobs()
        children: dict[str, Sequence[Plan]] = {}
        parents = [plan.id for plan in plans if waits_for_sub_plans(plan)]
        while parents:
            found = self.plans.children_of(parents)
            children |= found
            parents = [one.id for some in found.values() for one in some if waits_for_sub_plans(one)]

        def knows_all(plan: Plan) -> bool:
            if not waits_for_sub_plans(plan):
                return should_run(plan) == (plan.job_id in unfinished)
            below = children.get(plan.id, ())
            rests = plan.job_id not in unfinished and not has_news(plan, below)
            return rests and all(map(knows_all, below))

        return [plan if knows_all(plan) else self._reconciled_if_possible(plan) for plan in plans]

    def _reconciled_if_possible(self, plan: Plan) -> Plan:
        try:
            return self.reconciled(plan)
        except (DatabaseFailed, DatabaseUnusable):
            raise  # an unusable store affects every plan
        except (InvalidRequest, Conflict, Fault, SandboxBusy, OSError) as error:
            import structlog

            structlog.get_logger().warning("plan.not_reconciled", plan_id=plan.id, error=str(error))
            return replace(plan, error=f"the state of the plan could not be updated: {error}")

    def _resume_children(self, plan: Plan, model: str | None) -> None:
        """Resume the sub-plans that failed, that lost their worker, or whose pending request a person has
        answered.
        """
        for child in self._children_wanted(plan):
            child = self._settled(self.reconciled(child))
            waited = child.waiting_for if isinstance(child.waiting_for, Mapping) else {}
            again = child.state is PlanState.WAITING and waited.get("for") in _RESUMED
            if again or child.state is PlanState.ERRORED or should_run(child):
                with suppress(PlanError):  # it is already running
                    self.resume(child, model=model)

    def _settled(self, plan: Plan) -> Plan:
        """Return the plan; if a stop was requested and its worker is gone, end it first."""
        job = self.queueing.job_of(plan)
        if job is None or not self.should_cancel(plan):
            return plan
        return self._ended_for(plan, str(job.cancel_reason))

    def _children_wanted(self, plan: Plan) -> list[Plan]:
        """Return the sub-plans of the current strategy that have started."""
        tasks = () if plan.strategy is None else Strategy.from_json(plan.strategy).tasks
        parts = {task.part(number) for number, task in enumerate(tasks, start=1) if task.sub_plan}
        if not parts:
            return []
        children = self.plans.children(plan.id)
        return [child for child in children if child.key in parts and child.phase is not Phase.ACTION]

    def _taken_up(self, plan: Plan, model: str | None) -> Plan:
        """Return the plan, whose worker is gone, with a job that can be claimed. Raises `PlanError` if a
        worker does run the plan.
        """
        job = self.queueing.job_of(plan)
        if job is not None:
            self._end_of_dead_owner(job)
            plan = self.reconciled(self.plans.get(plan.id))
            job = self.queueing.job_of(plan)
        if job is None or job.state.ended:
            return self.queue(plan, resume_payload(model))
        if self.has_worker(plan):  # guard: one owner at a time
            raise PlanError(plan.id, "already running")
        if model is None and job.queue == self.queueing.queue_for(plan):
            return plan
        # The plan leaves its job first: a worker that claims the old job finds that the plan has another one.
        plan = self.queue(plan, resume_payload(model))
        self._let_go(job)
        return plan

    def _let_go(self, job: Job | None) -> None:
        """End the job of a plan that no longer needs one, unless the owner of the job is alive and will end
        it. A job of a shared queue is left to the worker that claims it next, because this worker also
        applies the result or leaves it for review.
        """
        if job is None or job.state.ended or job.queue or self._is_at_work(job):
            return
        with suppress(JobAlreadyEnded):
            job = self.jobs.request_cancel(job.id, "the plan no longer needs this job", now=self.clock.now())
            self._end_of_dead_owner(job)

    def _end_calls(self, plan: Plan, state: PlanState, error: str) -> None:
        """End the open calls of a plan that is cancelled or discarded, and record their changes.

        Call this before the plan moves, so that after a crash the next process repeats the call. The open
        calls of a plan that is only stopped stay open; a resume makes them again.
        """
        if state is PlanState.REJECTED:
            self.sandbox_edits.end_calls(plan, "the plan was discarded")
        elif state is PlanState.CANCELLED:
            self.sandbox_edits.end_calls(plan, error.removeprefix("cancelled: "))

    def _end_calls_left(self, plan: Plan) -> None:
        """End calls that were left open because the sandbox was busy when the plan was cancelled or
        discarded.
        """
        with suppress(StalePlan):  # guard: a concurrent process ends them
            self._end_calls(plan, plan.state, plan.error or "")

    def _is_at_work(self, job: Job) -> bool:
        """Return whether the owner of the job is alive. An owner that is not known to be dead counts as
        alive.
        """
        owner = job.owner if job.state is JobState.RUNNING else None
        return owner is not None and self.processes.is_alive(owner) is not False

    def _end_of_dead_owner(self, job: Job) -> None:
        """End the processes of a dead owner and reclaim its job."""
        if job.state is not JobState.RUNNING or self._is_at_work(job):
            return
        self.processes.end(marker_of(job.id, job.fence), grace_seconds=self.grace_seconds)
        try:
            self.jobs.reclaim(job.id, job.fence, job.beat, error="the worker died", now=self.clock.now())
        except StaleFence:
            return  # another process was faster


def _is_settled(plan: Plan) -> bool:
    """Return whether there is nothing to stop: the plan has not started, is complete or has failed."""
    if plan.phase is Phase.ACTION:  # guard: a failed plan in this phase could not be resumed
        return True
    return plan.state is PlanState.ERRORED or plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
