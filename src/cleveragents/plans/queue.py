"""Queueing of plans, and waking of plans that wait for sub-plans.

A job is submitted for the version of the plan that was read, then the plan moves. If the job is claimed
before the plan moves, or the submitter dies before it moves the plan, the worker moves the plan. So a
submitted job always continues its plan, unless a person has changed the plan meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, field

from cleveragents.core.errors import DuplicateKey, QueueFull, StalePlan, UnknownJob, UnknownPlan
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.plans.jobs.names import (
    ATTEMPTS,
    SHARED_ATTEMPTS,
    ConcurrencyLimits,
    key_of_job,
    kind_of_plan,
    queue_of,
)
from cleveragents.plans.model.plan import (
    Phase,
    PhaseState,
    Plan,
    PlanState,
    ensure_plan_move,
    phase_state_text,
)
from cleveragents.plans.model.sub_plan import has_news, waits_for_sub_plans
from cleveragents.plans.ports.plans import PlanFacts

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.core.identifiers import Fence
    from cleveragents.core.json_value import JsonValue
    from cleveragents.jobs.ports import JobStore
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["PlanQueue", "resume_payload"]

_MADE = (Phase.ACTION, PlanState.QUEUED)
_TO = "to"
_PAGE = 1000
_UNFINISHED = (JobState.QUEUED, JobState.RUNNING)


class PlanQueue(Struct, frozen=True):
    """Queues plans.

    Stateless: any thread and process may queue a plan; of two concurrent calls, one succeeds.
    """

    plans: SqlPlanStore
    jobs: JobStore
    clock: Clock
    max_parallel: int = 4
    lanes: ConcurrencyLimits = field(default_factory=ConcurrencyLimits)

    def queue(
        self, plan: Plan, more: Mapping[str, JsonValue] | None = None, *, wanted: PhaseState | None = None
    ) -> Plan:
        """Submit a job that continues the plan from its current phase or from `wanted`, and return the moved
        plan. `more` is added to the payload of the job.

        Raises `IllegalPlanMove`; `StalePlan` if the plan moved since it was read; `QueueFull` for a new plan
        if the queue is full.
        """
        told = {} if wanted is None else {_TO: phase_state_text(wanted)}
        wanted = wanted or _queued(plan)
        ensure_plan_move(plan.id, plan.phase_state, wanted)
        last = self.job_of(plan)
        kept = {} if last is None else resume_payload(last.payload.get("model"))
        payload: Mapping[str, JsonValue] = {"plan_id": plan.id, **kept, **told, **(more or {})}
        request = self._request_of(plan)
        new = NewJob(
            kind_of_plan(plan.root),
            payload,
            # A merge lets other sub-plans start, so a waiting parent goes first.
            priority=1 if waits_for_sub_plans(plan) else 0,
            max_attempts=SHARED_ATTEMPTS if queue_of(request) else ATTEMPTS,
            key=key_of_job(plan),
            at_most=self._most_at_once(plan),
            queue=queue_of(request),
            lanes=self.lanes.of(request, payload.get("model")),
        )
        job = self.jobs.submit(new, now=self.clock.now(), queue_bound=self._bound_for(plan, new))
        try:
            return self.plans.move(plan, wanted, PlanFacts(job_id=job.id), now=self.clock.now())
        except StalePlan:
            now = self.plans.get(plan.id)
            if now.job_id != job.id:
                raise
            return now  # the job was claimed at once and moved the plan itself

    def queued(self, plan: Plan, more: Mapping[str, JsonValue] | None = None) -> Plan:
        """Queue the plan and return it. Returns the stored plan without queueing it if it was moved
        meanwhile, or if a job with another payload or other settings is about to continue it.
        """
        try:
            return self.queue(plan, more)
        except (StalePlan, DuplicateKey):
            return self.plans.get(plan.id)

    def started(self, plan: Plan, claim: IdempotencyClaim | None = None) -> Plan:
        """Queue a new plan; return a plan that already had a job unchanged.

        Raises `QueueFull` and deletes the plan if the queue is full; `RequestUnderWay` if another request
        took over the claim, and with it the plan.
        """
        if plan.phase_state != _MADE:
            return plan
        try:
            return self.queued(plan)
        except QueueFull:
            self.plans.delete(plan, now=self.clock.now(), claim=claim)
            raise

    def taken_up_by(self, job_id: str, plan: Plan) -> Plan:
        """Return the plan of a claimed job. If the submitter has not moved the plan yet, or died before, this
        call moves the plan.
        """
        if plan.job_id == job_id:
            return plan
        job = self._found(job_id)
        if job is None or job.key != key_of_job(plan):  # guard: a later decision about the plan wins
            return plan
        wanted = _parsed(job.payload.get(_TO)) or _queued(plan)
        try:
            return self.plans.move(plan, wanted, PlanFacts(job_id=job_id), now=self.clock.now())
        except StalePlan:
            return self.plans.get(plan.id)

    def wake(self, plan: Plan) -> None:
        """Queue the parent of a sub-plan that came to rest, if the parent waits for its sub-plans.

        A sub-plan first comes to rest (it ends or needs a person) and then calls this method. A parent first
        begins to wait and then reads its sub-plans again. So at least one of the two notices the other.
        """
        if plan.parent_id is None:
            return
        with suppress(UnknownPlan):
            self.woken(self.plans.get(plan.parent_id), [plan])

    def put_down(self, plan: Plan, waiting_for: JsonValue, fence: Fence | None = None) -> Plan:
        """Move the plan to waiting; queue it if a sub-plan came to rest meanwhile. Raises `StalePlan`,
        `StaleFence`.
        """
        phase_state = plan.phase, PlanState.WAITING
        facts = PlanFacts(waiting_for=waiting_for)
        waits = self.plans.move(plan, phase_state, facts, now=self.clock.now(), fence=fence)
        if waits_for_sub_plans(waits):  # guard: a sub-plan that came to rest before found the parent busy
            waits = self.woken(waits, self.plans.children(plan.id))
        return waits

    def woken(self, parent: Plan, children: Sequence[Plan]) -> Plan:
        """Return the parent. If it waits for its sub-plans, and a sub-plan came to rest after the parent
        began to wait, queue the parent first.
        """
        if not waits_for_sub_plans(parent) or not has_news(parent, children):
            return parent
        return self.queued(parent)

    def job_of(self, plan: Plan) -> Job | None:
        """Return the current or last job of the plan; None if it never had one."""
        return None if plan.job_id is None else self._found(plan.job_id)

    def _found(self, job_id: str) -> Job | None:
        try:
            return self.jobs.get(job_id)
        except UnknownJob:
            return None

    def queue_for(self, plan: Plan) -> str:
        """Return the queue of the plan's next job; "" if the command that continues the plan runs it."""
        return queue_of(self._request_of(plan))

    def _request_of(self, plan: Plan) -> Mapping[str, JsonValue]:
        """Return the request of the root plan, because sub-plans run in the same queue as the root."""
        return plan.request if plan.parent_id is None else self.plans.get(plan.root).request

    def _bound_for(self, plan: Plan, new: NewJob) -> int | None:
        """Return the maximum length of the plan's queue; None for a plan that was admitted before."""
        is_new = plan.phase is Phase.ACTION and plan.parent_id is None
        return self.lanes.queue_bound if is_new and new.queue else None

    def _most_at_once(self, plan: Plan) -> int:
        asked = plan.request.get("max_parallel")
        return asked if isinstance(asked, int) else self.max_parallel

    def unfinished_jobs(self) -> set[str]:
        """Return the ids of all queued and running jobs."""
        after: str | None = None
        found: set[str] = set()
        while page := self.jobs.list(states=_UNFINISHED, limit=_PAGE, after=after):
            after = page[-1].id
            found |= {job.id for job in page}
        return found


def resume_payload(model: JsonValue) -> Mapping[str, JsonValue]:
    """Return the payload of a job for a resume with this model."""
    return {} if model is None else {"model": model}


def _parsed(told: JsonValue) -> PhaseState | None:
    """Parse a phase and state that `phase_state_text` wrote."""
    if told is None:
        return None
    phase, _, state = str(told).partition("/")
    return Phase(phase), PlanState(state)


def _queued(plan: Plan) -> PhaseState:
    """Return the phase and state of the plan once a job is queued for it."""
    if plan.phase is Phase.ACTION:
        return Phase.STRATEGIZE, PlanState.QUEUED
    # A running plan passes from one worker to the next.
    return plan.phase, PlanState.PROCESSING if plan.state.running else PlanState.QUEUED
