"""What a person does with plans: makes them, answers them, cancels, resumes and rejects them.

A plan under way belongs to the job that runs it. So a cancel goes to the job, whose owner moves the plan;
only where there is no living owner is the plan moved from here. `reconciled` is how a plan learns what became
of a job whose owner died without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cleveragents.core.cancellation import is_mere_stop, said_by_somebody
from cleveragents.core.clock import Clock
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
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_known_text, redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.worker.attempt import marker_of
from cleveragents.plans.jobs.names import ConcurrencyLimits, should_run
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState, ensure_plan_move
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.model.sub_plan import (
    CONFLICT,
    STOPPED,
    SUB_PLANS,
    ended_by,
    has_news,
    waits_for_sub_plans,
)
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts
from cleveragents.plans.queue import PlanQueue, going_on_with
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.plans.sub_plans.messages import leave_out_named
from cleveragents.storage.idempotency import IdempotencyClaim

if TYPE_CHECKING:
    from cleveragents.jobs.ports import JobStore
    from cleveragents.jobs.process.supervisor import ProcessSupervisor
    from cleveragents.plans.sandbox_edits import SandboxEdits

__all__ = ["PlanLifecycle"]

_DECISIONS = 10
_REJECTED = (Phase.APPLY, PlanState.REJECTED)
_RESUMED = ("budget", CONFLICT, SUB_PLANS)


@dataclass(frozen=True, slots=True)
class PlanLifecycle:
    """Stateless but for its stores: any thread and any process may decide about a plan; one decision wins."""

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
        """A plan with a job queued for it. `QueueFull`: then there is none. With a claim, as the store's."""
        # What is only read by people needs no secret; arguments are kept as given, for the plan uses them.
        new = replace(new, goal=redact_text(new.goal))
        plan = self.plans.create(new, now=self.clock.now(), claim=claim)
        return self.queueing.started(plan, claim)

    def resume(self, plan: Plan, *, model: str | None = None) -> Plan:
        """Queues a plan that failed or was interrupted, to go on where it stands. Of one that failed at a
        call, that call is made again; what was done before it is not. A job that nobody works at any more
        goes on with its plan: a second one would get in its way. With `model`, its actors go on with that
        one, also when it is resumed or answered again.

        Its sub-plans go on likewise; without those that were cancelled, if it had said so and failed.

        `PlanError` for one that runs, waits for an answer, was to be cancelled, is merged or has ended;
        `NeedsHuman` when files in its sandbox were edited by hand and not taken in.
        """
        plan = self.reconciled(plan)
        if plan.state.ended:
            raise PlanError(plan.id, f"it is {plan.state.value}, which is final; start a new one")
        if plan.phase is Phase.APPLY:
            again = Remedy("plan.apply", plan.id, text="Apply it again")
            problem = f"it is {plan.phase.value}/{plan.state.value}, so it is applied and not resumed"
            raise PlanError(plan.id, problem, (again,))
        if self.should_cancel(plan):
            cancel = Remedy("plan.cancel", plan.id, text="Finish cancelling it")
            raise PlanError(plan.id, "it was to be cancelled, so it does not go on", (cancel,))
        if should_run(plan):
            plan = self._taken_up(plan, model)
            self._resume_children(plan, model)
            return plan
        if plan.state is PlanState.WAITING and self.asking(plan) is not None:
            answers = (
                Remedy("plan.approve", plan.id, text="Approve"),
                Remedy("plan.deny", plan.id, text="Deny"),
            )
            raise PlanError(plan.id, "it waits for your approval", answers)
        self.sandbox_edits.ensure_unmerged(plan)  # guard: what it would do now is not merged again
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run brings the sandbox to what is recorded
        # Before the plan itself, which would find them failed and fail again.
        self._resume_children(plan, model)
        if plan.phase is Phase.EXECUTE and plan.state in (PlanState.ERRORED, PlanState.WAITING):
            # One that waits for more time may have been stopped at a call, too.
            with suppress(SandboxMissing):
                self.sandbox_edits.take_back_failure(plan)
        if plan.phase_state == (Phase.EXECUTE, PlanState.ERRORED):
            past, now = self.sandbox_edits.history.calls(plan.id), self.clock.now()
            leave_out_named(plan, self._children_wanted(plan), past, self.calls, now)
        return self.queue(plan, going_on_with(model))

    def has_worker(self, plan: Plan) -> bool:
        """Whether a living process runs it; one that is not known to be dead counts as alive."""
        job = self.queueing.job_of(plan)
        return job is not None and self._is_at_work(job)

    def should_cancel(self, plan: Plan) -> bool:
        """Whether it was told to stop, and nobody is left who does."""
        job = self.queueing.job_of(plan)
        if job is None or job.state.ended or not should_run(plan):
            return False
        return job.cancel_reason is not None and not self._is_at_work(job)

    def asking(self, plan: Plan) -> ToolCall | None:
        """The call that waits for leave, if one does."""
        for call in self.sandbox_edits.history.calls(plan.id):
            if call.state is CallState.ASKED and call.approval is None:
                return call
        return None

    def answer(self, plan: Plan, granted: bool, number: int | None = None, *, by: str | None = None) -> Plan:
        """Gives or refuses leave to the call that asks, and queues the plan to go on; the log says that it
        was given `by` somebody. `PlanError`, also when that is not the call of the number;
        `NeedsHuman` when files in its sandbox were edited by hand and not taken in."""
        plan = self.plans.get(plan.id)
        call = self.asking(plan) if plan.state is PlanState.WAITING else None
        if call is None:  # guard: a plan whose run has not yet stopped asking is not run a second time
            raise PlanError(plan.id, "nothing in it waits for an answer")
        if number not in (None, call.number):  # guard: an answer is to what was seen
            raise PlanError(plan.id, f"call {number} does not wait for an answer; call {call.number} does")
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run brings the sandbox to what is recorded
        verdict = "granted" if granted else "denied"
        self.calls.answer(plan.id, call.number, verdict, now=self.clock.now(), by=by)
        return self.queue(plan)

    def reply(self, plan: Plan, text: str, question: str | None = None) -> Plan:
        """Answers the question that an actor asks, and queues the plan to go on. `PlanError` when none is
        asked, or another than the `question` of that name, or the answer is not among its choices."""
        plan = self.plans.get(plan.id)
        waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        if (
            plan.state is not PlanState.WAITING or waited.get("for") != "question"
        ):  # guard: an answer is to one
            raise PlanError(plan.id, "no actor of it asks a question")
        if question not in (None, waited.get("question")):  # guard: an answer is to what was seen
            asks = f"it asks something else by now: {redact_known_text(str(waited.get('what')))}"
            raise PlanError(plan.id, f"{asks}; the answer was to a question before")
        choices = waited.get("choices")
        if isinstance(choices, Sequence) and choices and text not in choices:
            raise PlanError(plan.id, f"{text!r} is not among the choices: {', '.join(map(str, choices))}")
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run brings the sandbox to what is recorded
        return self.queue(plan, {"answer": {"question": waited.get("question"), "text": text}})

    def reject(self, plan: Plan) -> Plan:
        """Says that the result is not wanted. `IllegalPlanMove` while it runs or once it has ended;
        `PlanError` for a part that is merged."""
        ensure_plan_move(
            plan.id, plan.phase_state, _REJECTED
        )  # guard: the calls of one that runs are its own
        with self.sandbox_edits.unmerged(plan):  # guard: what is rejected is in no result
            self._end_calls(plan, PlanState.REJECTED, "")
            rejected = self.plans.move(plan, _REJECTED, now=self.clock.now())
        self.cancel_children(rejected, "the plan that it is a part of was rejected")
        self.wake(rejected)
        return rejected

    def cancel(self, plan: Plan, reason: str) -> Plan:
        """Cancelled, or told to stop: then `state` is still running, and its owner cancels it. Its sub-plans
        are cancelled with it, but for those that are done.

        `PlanError` when it has ended otherwise, is being applied, or is merged. A plan that is cancelled
        already is returned as it is.
        """
        return self._ended_for(plan, said_by_somebody(reason))

    def stop(self, plan: Plan) -> Plan:
        """The same for a sub-plan that is to go on later: it fails, unless it is done or somebody wants it
        cancelled."""
        return self._ended_for(plan, STOPPED)

    def _ended_for(self, plan: Plan, reason: str) -> Plan:
        cancelled = self._decided(plan, reason)
        # What it spawned until it heard of this, its owner cancels: after it was moved it spawns nothing.
        self.cancel_children(cancelled, reason)
        self.wake(cancelled)
        return cancelled

    def cancel_children(self, plan: Plan, reason: str) -> None:
        """Cancels all that is unfinished below it. Whoever moved the plan to its end calls this afterwards:
        a plan that does not run gets no further sub-plan, so none is missed."""
        for child in self.plans.children(plan.id):
            if child.phase_state != (Phase.EXECUTE, PlanState.COMPLETE):
                with suppress(PlanError):  # it has ended, or was rejected
                    self._ended_for(child, reason)

    def _decided(self, plan: Plan, reason: str) -> Plan:
        for _ in range(_DECISIONS):
            with suppress(StalePlan):  # somebody else decided first; what is left to decide?
                return self._cancelled(self.reconciled(plan), reason)
            plan = self.plans.get(plan.id)
        return self._cancelled(self.reconciled(plan), reason)

    def _cancelled(self, plan: Plan, reason: str) -> Plan:
        state, error = ended_by(reason)
        if plan.state is PlanState.CANCELLED or (is_mere_stop(reason) and _is_settled(plan)):
            return plan
        if plan.state.ended:
            raise PlanError(plan.id, f"it is {plan.state.value} already; nothing was changed")
        if plan.phase is Phase.APPLY and plan.state.running:  # guard: what it did to files decides its state
            undo = Remedy("plan.undo", plan.id, text="Undo it")
            raise PlanError(plan.id, "it is being applied", (undo,))
        job = self.queueing.job_of(plan)
        if job is not None and not job.state.ended:
            with suppress(JobAlreadyEnded):
                self.jobs.request_cancel(job.id, reason, now=self.clock.now())
            self._end_of_dead_owner(self.jobs.get(job.id))
            plan = self.reconciled(self.plans.get(plan.id))
            if plan.state in (state, PlanState.CANCELLED) or (plan.state.running and self.has_worker(plan)):
                return plan
        with self.sandbox_edits.unmerged(plan):  # guard: a result that is merged is not cancelled
            self._end_calls(plan, state, error)
            return self.plans.move(plan, (plan.phase, state), PlanFacts(error=error), now=self.clock.now())

    def queue(
        self, plan: Plan, more: Mapping[str, JsonValue] | None = None, *, wanted: PhaseState | None = None
    ) -> Plan:
        """The plan with a job that goes on with it, from where it stands or from `wanted`. `more` is what
        that job is told. `IllegalPlanMove`; `StalePlan` when somebody moved it since it was read."""
        return self.queueing.queue(plan, more, wanted=wanted)

    def wake(self, plan: Plan) -> None:
        """Has the parent of a sub-plan that came to rest look at it, if the parent waits for its
        sub-plans."""
        self.queueing.wake(plan)

    @property
    def queueing(self) -> PlanQueue:
        return PlanQueue(self.plans, self.jobs, self.clock, self.max_parallel, self.lanes)

    def reconciled(self, plan: Plan) -> Plan:
        """The plan, moved to where its job's end has left it, if the job could not do that itself."""
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
        if job is None or not job.state.ended or job.state is JobState.SUCCEEDED:
            return self.plans.get(plan.id)
        cancelled = job.state is JobState.CANCELLED
        failed = PlanState.ERRORED, job.error or "its job failed"
        state, error = ended_by(str(job.cancel_reason)) if cancelled else failed
        try:
            if not plan.state.running and state is PlanState.ERRORED:  # it was between its two phases
                plan = self.plans.move(plan, (Phase.EXECUTE, PlanState.QUEUED), now=self.clock.now())
            self._end_calls(plan, state, error)
            moved = self.plans.move(plan, (plan.phase, state), PlanFacts(error=error), now=self.clock.now())
        except StalePlan:
            return self.plans.get(plan.id)  # it has moved since, and not by us
        if cancelled:
            self.cancel_children(moved, str(job.cancel_reason))
        self.wake(moved)
        return moved

    def all_reconciled(self, plans: Sequence[Plan]) -> list[Plan]:
        """`reconciled` for each of many plans, at a price that depends on how many are under way. One that
        cannot learn what became of it is returned as it was, with an `error` that says why."""
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
            raise  # of a store that cannot be used, all have a part
        except (InvalidRequest, Conflict, Fault, SandboxBusy, OSError) as error:
            import structlog

            structlog.get_logger().warning("plan.not_reconciled", plan_id=plan.id, error=str(error))
            return replace(plan, error=f"it cannot be looked after: {error}")

    def _resume_children(self, plan: Plan, model: str | None) -> None:
        """What of them failed, was left by a dead worker, or waits for what a person has given by now."""
        for child in self._children_wanted(plan):
            child = self._settled(self.reconciled(child))
            waited = child.waiting_for if isinstance(child.waiting_for, Mapping) else {}
            again = child.state is PlanState.WAITING and waited.get("for") in _RESUMED
            if again or child.state is PlanState.ERRORED or should_run(child):
                with suppress(PlanError):  # it runs already
                    self.resume(child, model=model)

    def _settled(self, plan: Plan) -> Plan:
        """The plan; if it was told to stop and nobody is left who does, then as that leaves it."""
        job = self.queueing.job_of(plan)
        if job is None or not self.should_cancel(plan):
            return plan
        return self._ended_for(plan, str(job.cancel_reason))

    def _children_wanted(self, plan: Plan) -> list[Plan]:
        """Those that the strategy has by now, and that were begun."""
        tasks = () if plan.strategy is None else Strategy.from_json(plan.strategy).tasks
        parts = {task.part(number) for number, task in enumerate(tasks, start=1) if task.sub_plan}
        if not parts:
            return []
        children = self.plans.children(plan.id)
        return [child for child in children if child.key in parts and child.phase is not Phase.ACTION]

    def _taken_up(self, plan: Plan, model: str | None) -> Plan:
        """A plan that should be running, with a job that can be claimed. `PlanError` if it does run."""
        job = self.queueing.job_of(plan)
        if job is not None:
            self._end_of_dead_owner(job)
            plan = self.reconciled(self.plans.get(plan.id))
            job = self.queueing.job_of(plan)
        if job is None or job.state.ended:
            return self.queue(plan, going_on_with(model))
        if self.has_worker(plan):  # guard: one owner at a time
            raise PlanError(plan.id, "it is running already")
        if model is None:
            return plan
        # The plan leaves its job first: whoever claims that one meanwhile finds that it is not its plan's.
        plan = self.queue(plan, going_on_with(model))
        self._let_go(job)
        return plan

    def _let_go(self, job: Job | None) -> None:
        """Ends a job of a plan that needs none, unless its owner is about to report it. One of a shared queue
        is left to the next who claims it: what is to be done with a result is up to them, too."""
        if job is None or job.state.ended or job.queue or self._is_at_work(job):
            return
        with suppress(JobAlreadyEnded):
            job = self.jobs.request_cancel(job.id, "its plan is done with it", now=self.clock.now())
            self._end_of_dead_owner(job)

    def _end_calls(self, plan: Plan, state: PlanState, error: str) -> None:
        """Before a plan is cancelled for an owner that is dead, so that whoever dies in between has moved
        nothing: then it is cancelled by the next, and what its calls had done is recorded all the same. One
        that is only stopped makes them again. A plan that is rejected makes none again either."""
        if state is PlanState.REJECTED:
            self.sandbox_edits.end_calls(plan, "its plan was rejected")
        elif state is PlanState.CANCELLED:
            self.sandbox_edits.end_calls(plan, error.removeprefix("cancelled: "))

    def _end_calls_left(self, plan: Plan) -> None:
        """Whoever cancelled or rejected it may have found somebody at work in its sandbox."""
        with suppress(StalePlan):  # guard: a peer looked at the same time, and ends them
            self._end_calls(plan, plan.state, plan.error or "")

    def _is_at_work(self, job: Job) -> bool:
        """Whether its owner lives; one that is not known to be dead does."""
        owner = job.owner if job.state is JobState.RUNNING else None
        return owner is not None and self.processes.is_alive(owner) is not False

    def _end_of_dead_owner(self, job: Job) -> None:
        """Ends what a dead owner left running, and takes its job away."""
        if job.state is not JobState.RUNNING or self._is_at_work(job):
            return
        self.processes.end(marker_of(job.id, job.fence), grace_seconds=self.grace_seconds)
        try:
            self.jobs.reclaim(job.id, job.fence, job.beat, error="its worker died", now=self.clock.now())
        except StaleFence:
            return  # a peer was faster


def _is_settled(plan: Plan) -> bool:
    """Whether it is done or failed, so that there is nothing to stop."""
    return plan.state is PlanState.ERRORED or plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
