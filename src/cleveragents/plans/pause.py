"""Stops a plan without cancelling it: afterwards nobody works on it, and it can go on.

The plan is moved first and its job told second. A run that still has the plan is refused from then on,
whatever it wants to make of it, so it can neither complete the plan nor cancel it; one that was faster has
completed it, and then there is nothing to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    DeadlineExceeded,
    JobAlreadyEnded,
    PlanError,
    Remedy,
    StaleFence,
    StalePlan,
    UnknownJob,
    offered,
)
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.process.supervisor import ProcessSupervisor
from cleveragents.jobs.worker.attempt import marker_of
from cleveragents.plans.jobs.names import should_run
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.store.sql_plan_store import SqlPlanStore

__all__ = ["PlanPause", "waiting_for_correction", "waiting_in"]

_DECISIONS = 10
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 30.0


def waiting_for_correction(plan: Plan) -> JsonValue:
    """What a plan that was stopped says of itself."""
    resume = Remedy("plan.resume", plan.id, text="Resume it")
    return {"for": "correction", "what": "it was stopped to be corrected", **offered((resume,))}


def waiting_in(phase: Phase) -> tuple[PhaseState, ...]:
    """How a plan that nobody works on comes to wait in that phase."""
    return (phase, PlanState.QUEUED), (phase, PlanState.PROCESSING), (phase, PlanState.WAITING)


@dataclass(frozen=True, slots=True)
class PlanPause:
    """Stateless but for its stores: any thread and any process may pause any plan; one that is moved
    meanwhile is looked at again."""

    plans: SqlPlanStore
    jobs: JobStore
    processes: ProcessSupervisor
    lifecycle: PlanLifecycle
    clock: Clock
    grace_seconds: float = 5.0
    sleep: Callable[[float], None] = time.sleep

    def pause(self, plan: Plan, *, sub_plans: bool = True) -> Plan:
        """The plan at rest: as it ended or waits, or else waiting to be corrected, and no process of it is
        alive. With `sub_plans`, those of its sub-plans that are not done are cancelled.

        `PlanError` when it was to be cancelled, or is being applied; `StalePlan` when others keep moving it;
        `DeadlineExceeded` when whoever runs it does not stop.
        """
        for _ in range(_DECISIONS):
            plan = self.lifecycle.reconciled(self.plans.get(plan.id))
            self._ensure_pausable(plan)
            way = _way_down(plan)
            try:
                plan = self._put_down(plan, way)
            except StalePlan:
                continue  # it was completed, cancelled, or taken over at that very moment
            # guard: a run that has just completed it would take a word to its job for a cancel of the plan
            self._end_job(plan, told=bool(way))
            if sub_plans:
                self.end_sub_plans(plan, self.plans.children(plan.id))
            return self.plans.get(plan.id)
        raise StalePlan(plan.id, plan.version)

    def _ensure_pausable(self, plan: Plan) -> None:
        if plan.phase is Phase.APPLY and plan.state.running:  # guard: what it did to files decides its state
            raise PlanError(plan.id, "it is being applied", (Remedy("plan.undo", plan.id, text="Undo it"),))
        if self.lifecycle.should_cancel(plan):  # guard: a cancel is not undone by a later wish
            cancel = Remedy("plan.cancel", plan.id, text="Finish cancelling it")
            raise PlanError(plan.id, "it was to be cancelled, so it does not go on", (cancel,))

    def _put_down(self, plan: Plan, way: Sequence[PhaseState]) -> Plan:
        for phase_state in way:
            facts = PlanFacts(waiting_for=waiting_for_correction(plan))
            waits = phase_state[1] is PlanState.WAITING
            plan = self.plans.move(plan, phase_state, facts if waits else None, now=self.clock.now())
        return plan

    def _end_job(self, plan: Plan, *, told: bool) -> None:
        """Returns when the job has ended, and with it every process of its last attempt; it is `told` to, or
        about to end anyway."""
        job = self._job(plan)
        if job is None or job.state.ended:
            return
        if told:
            with suppress(JobAlreadyEnded):
                self.jobs.request_cancel(job.id, "its plan is to be corrected", now=self.clock.now())
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
        """Cancels those of them that are not done; none of their processes is alive afterwards.
        `DeadlineExceeded` when one does not stop."""
        reason = f"plan {plan.id}, of which it is a part, is corrected"
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
                self.lifecycle.cancel(now, reason)  # it came to rest before it heard of it
                continue
            self.sleep(_LOOK_SECONDS)
        self._end_job(self.plans.get(child.id), told=False)

    def _job(self, plan: Plan) -> Job | None:
        if plan.job_id is None:
            return None
        try:
            return self.jobs.get(plan.job_id)
        except UnknownJob:
            return None

    def _is_orphan(self, job: Job) -> bool:
        """Whether whoever runs it is known to be dead."""
        return job.owner is None or self.processes.is_alive(job.owner) is False

    def _take_away(self, job: Job) -> None:
        self.processes.end(marker_of(job.id, job.fence), grace_seconds=self.grace_seconds)
        with suppress(StaleFence):  # a peer was faster
            self.jobs.reclaim(job.id, job.fence, job.beat, error="its worker died", now=self.clock.now())


def _way_down(plan: Plan) -> tuple[PhaseState, ...]:
    """How it comes to wait; nothing, if it rests by itself. What waits for sub-plans would be woken."""
    if plan.phase_state == (Phase.STRATEGIZE, PlanState.COMPLETE):
        return waiting_in(Phase.EXECUTE)
    if should_run(plan):
        way = waiting_in(plan.phase)
        return way[2:] if plan.state is PlanState.PROCESSING else way[1:]
    return waiting_in(plan.phase) if waits_for_sub_plans(plan) else ()


def _is_unfinished(child: Plan) -> bool:
    return not (child.state.ended or child.phase_state == (Phase.EXECUTE, PlanState.COMPLETE))
