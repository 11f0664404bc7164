"""Stop a plan without cancelling it, so that it can be corrected and resumed.

The plan moves first, then its job is cancelled. After the move, every move by the old run is refused, so the
run can neither complete nor cancel the plan. If the run completed the plan first, there is nothing to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.core.errors import (
    DeadlineExceeded,
    JobAlreadyEnded,
    PlanError,
    Remedy,
    StaleFence,
    StalePlan,
    UnknownJob,
    remedies_record,
)
from cleveragents.jobs.model.job import Job, JobState, marker_of
from cleveragents.plans.jobs.names import should_run
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.model.usage_wait import is_parked
from cleveragents.plans.ports.plans import PlanFacts

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.core.json_value import JsonValue
    from cleveragents.jobs.ports import JobStore
    from cleveragents.jobs.process.supervisor import ProcessSupervisor
    from cleveragents.plans.lifecycle import PlanLifecycle
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore

__all__ = ["PlanPause", "waiting_for_correction", "waiting_in"]

_DECISIONS = 10
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 30.0


def waiting_for_correction(plan: Plan) -> JsonValue:
    """Return the pending request of a plan that was stopped for a correction."""
    resume = Remedy("plan.resume", plan.id, text="Resume it")
    return {"for": "correction", "what": "stopped for a correction", **remedies_record((resume,))}


def waiting_in(phase: Phase) -> tuple[PhaseState, ...]:
    """Return the moves that bring a plan without an owner to `waiting` in this phase."""
    return (phase, PlanState.QUEUED), (phase, PlanState.PROCESSING), (phase, PlanState.WAITING)


class PlanPause(Struct, frozen=True):
    """Pauses plans. Stateless: any thread and process may pause any plan. If the plan moves meanwhile, the
    plan is read again, and the pause is repeated.
    """

    plans: SqlPlanStore
    jobs: JobStore
    processes: ProcessSupervisor
    lifecycle: PlanLifecycle
    clock: Clock
    grace_seconds: float = 5.0
    sleep: Callable[[float], None] = time.sleep

    def pause(self, plan: Plan, *, sub_plans: bool = True, version: int | None = None) -> Plan:
        """Stop the plan and return it, ended or waiting, with none of its processes alive. With `sub_plans`,
        unfinished sub-plans are cancelled. With a `version`, a plan that has moved since is not stopped.

        Raises `PlanError` if the plan is being cancelled or applied; `StalePlan` if others keep moving it, or
        if it is no longer at the `version`; `DeadlineExceeded` if its worker does not stop.
        """
        for _ in range(_DECISIONS):
            plan = self.lifecycle.reconciled(self.plans.get(plan.id))
            if version is not None and plan.version != version:  # guard: the decision was about that version
                raise StalePlan(plan.id, version)
            self._ensure_pausable(plan)
            way = _way_down(plan)
            try:
                plan = self._put_down(plan, way)
            except StalePlan:
                continue  # it was completed, cancelled or taken over at that moment
            # guard: a run that just completed the plan would read a cancel of its job as a cancel of the plan
            self._end_job(plan, told=bool(way))
            if sub_plans:
                self.end_sub_plans(plan, self.plans.children(plan.id))
            return plan
        raise StalePlan(plan.id, plan.version)

    def _ensure_pausable(self, plan: Plan) -> None:
        if plan.phase is Phase.APPLY and plan.state.running:  # guard: its changes to files decide its state
            raise PlanError(plan.id, "an apply is running", (Remedy("plan.undo", plan.id, text="Undo it"),))
        if self.lifecycle.should_cancel(plan):  # guard: a later request does not undo a cancel
            cancel = Remedy("plan.cancel", plan.id, text="Finish the cancel")
            raise PlanError(plan.id, "the cancel is not finished", (cancel,))

    def _put_down(self, plan: Plan, way: Sequence[PhaseState]) -> Plan:
        for phase_state in way:
            facts = PlanFacts(waiting_for=waiting_for_correction(plan))
            waits = phase_state[1] is PlanState.WAITING
            plan = self.plans.move(plan, phase_state, facts if waits else None, now=self.clock.now())
        return plan

    def _end_job(self, plan: Plan, *, told: bool) -> None:
        """Wait until the job and every process of its last attempt have ended. With `told`, cancel the job
        first; otherwise the job is about to end by itself.
        """
        job = None if plan.job_id is None else self.job(plan.job_id)
        if job is None or job.state.ended:
            return
        if told:
            with suppress(JobAlreadyEnded):
                self.jobs.request_cancel(job.id, "the plan is being corrected", now=self.clock.now())
        patience = self.grace_seconds + _PATIENCE_SECONDS
        deadline = self.clock.monotonic() + patience
        while (job := self.jobs.get(job.id)).state is JobState.RUNNING:
            if self._is_orphan(job):
                self._take_away(job)
            elif self.clock.monotonic() > deadline:
                raise DeadlineExceeded(f"stopping plan {plan.id}", patience)
            else:
                self.sleep(_LOOK_SECONDS)
        if job.fence:
            self.processes.end(marker_of(job.id, job.fence), grace_seconds=self.grace_seconds)

    def end_sub_plans(self, plan: Plan, children: Sequence[Plan]) -> None:
        """Cancel the unfinished sub-plans and wait until their processes have ended. Raises
        `DeadlineExceeded` if one does not stop.
        """
        reason = f"the parent plan {plan.id} is being corrected"
        unfinished = [child for child in children if _is_unfinished(child)]
        for child in unfinished:
            self.lifecycle.cancel(child, reason)
        for child in unfinished:
            self._wait_cancelled(child, reason)

    def _wait_cancelled(self, child: Plan, reason: str) -> None:
        patience = self.grace_seconds + _PATIENCE_SECONDS
        deadline = self.clock.monotonic() + patience
        while _is_unfinished(now := self.lifecycle.reconciled(self.plans.get(child.id))):
            if self.clock.monotonic() > deadline:
                raise DeadlineExceeded(f"stopping plan {child.id}", patience)
            if not now.state.running:
                self.lifecycle.cancel(now, reason)  # it came to rest before the cancel reached it
                continue
            self.sleep(_LOOK_SECONDS)
        self._end_job(self.plans.get(child.id), told=False)

    def job(self, job_id: str) -> Job | None:
        """Return the job; None if it was deleted."""
        try:
            return self.jobs.get(job_id)
        except UnknownJob:
            return None

    def _is_orphan(self, job: Job) -> bool:
        """Return whether the owner of the job is known to be dead."""
        return job.owner is None or self.processes.is_alive(job.owner) is False

    def _take_away(self, job: Job) -> None:
        self.processes.end(marker_of(job.id, job.fence), grace_seconds=self.grace_seconds)
        with suppress(StaleFence):  # another process was faster
            self.jobs.reclaim(job.id, job.fence, job.beat, error="the worker died", now=self.clock.now())


def _way_down(plan: Plan) -> tuple[PhaseState, ...]:
    """Return the moves that bring the plan to `waiting`; none if no process will continue it. A plan that
    waits for sub-plans or for a usage limit is moved, too, because it would continue by itself.
    """
    if waits_for_sub_plans(plan) or is_parked(plan):
        return waiting_in(plan.phase)
    if plan.phase_state == (Phase.STRATEGIZE, PlanState.COMPLETE):
        return waiting_in(Phase.EXECUTE)
    if should_run(plan):
        way = waiting_in(plan.phase)
        return way[2:] if plan.state is PlanState.PROCESSING else way[1:]
    return ()


def _is_unfinished(child: Plan) -> bool:
    return not (child.state.ended or child.phase_state == (Phase.EXECUTE, PlanState.COMPLETE))
