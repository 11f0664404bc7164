"""Queues plans, and wakes those that wait for their sub-plans.

A job is submitted first, for the version of the plan that was seen, and the plan moved second. Whoever claims
the job in between, or finds that its submitter was killed there, moves the plan itself: so a job that was
submitted is a plan that goes on, unless somebody decided otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cleveragents.core.clock import Clock
from cleveragents.core.errors import DuplicateKey, QueueFull, StalePlan, UnknownJob, UnknownPlan
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.jobs.ports import JobStore
from cleveragents.plans.jobs.names import (
    ATTEMPTS,
    SHARED_ATTEMPTS,
    ConcurrencyLimits,
    key_of_job,
    kind_of_plan,
    queue_of,
)
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState, ensure_plan_move, spelt
from cleveragents.plans.model.sub_plan import has_news, waits_for_sub_plans
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["PlanQueue", "going_on_with"]

_MADE = (Phase.ACTION, PlanState.QUEUED)
_TO = "to"
_PAGE = 1000
_UNFINISHED = (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class PlanQueue:
    """Stateless but for its stores: any thread and any process may queue a plan; of two, one does."""

    plans: SqlPlanStore
    jobs: JobStore
    clock: Clock
    max_parallel: int = 4
    lanes: ConcurrencyLimits = field(default_factory=ConcurrencyLimits)

    def queue(
        self, plan: Plan, more: Mapping[str, JsonValue] | None = None, *, wanted: PhaseState | None = None
    ) -> Plan:
        """The plan with a job that goes on with it, from where it stands or from `wanted`. `more` is what
        that job is told. `IllegalPlanMove`; `StalePlan` when somebody moved it since it was read; `QueueFull`
        for one that is new, where no more may wait."""
        told = {} if wanted is None else {_TO: spelt(wanted)}
        wanted = wanted or _queued(plan)
        ensure_plan_move(plan.id, plan.phase_state, wanted)
        last = self.job_of(plan)
        kept = {} if last is None else going_on_with(last.payload.get("model"))
        payload: Mapping[str, JsonValue] = {"plan_id": plan.id, **kept, **told, **(more or {})}
        request = self._request_of(plan)
        new = NewJob(
            kind_of_plan(plan.root),
            payload,
            # What was merged lets others begin, so a parent goes before them.
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
            return now  # the job was claimed at once, and took the plan up itself

    def queued(self, plan: Plan, more: Mapping[str, JsonValue] | None = None) -> Plan:
        """As `queue`; as it stands, if somebody else decided about it since it was read, or a job that was
        told something else, or submitted under other settings, is about to take it up."""
        try:
            return self.queue(plan, more)
        except (StalePlan, DuplicateKey):
            return self.plans.get(plan.id)

    def started(self, plan: Plan, claim: IdempotencyClaim | None = None) -> Plan:
        """The plan that was made, with a job; as it is, if it has had one. `QueueFull`: then the plan is
        gone, unless somebody took over the claim that it was made under, whose it is: `RequestUnderWay`."""
        if plan.phase_state != _MADE:
            return plan
        try:
            return self.queued(plan)
        except QueueFull:
            self.plans.delete(plan, now=self.clock.now(), claim=claim)
            raise

    def taken_up_by(self, job_id: str, plan: Plan) -> Plan:
        """The plan as that job, which was claimed, finds it. A job may be claimed before whoever submitted it
        has moved the plan, or was killed before that: then the job does it."""
        if plan.job_id == job_id:
            return plan
        job = self._found(job_id)
        if job is None or job.key != key_of_job(plan):  # guard: somebody decided about the plan since
            return plan
        wanted = _standing(job.payload.get(_TO)) or _queued(plan)
        try:
            return self.plans.move(plan, wanted, PlanFacts(job_id=job_id), now=self.clock.now())
        except StalePlan:
            return self.plans.get(plan.id)

    def wake(self, plan: Plan) -> None:
        """Has the parent of a sub-plan that came to rest look at it, if the parent waits for its sub-plans.

        Whoever brings a sub-plan to rest moves it first and then calls this; a parent that is about to wait
        says so first and then looks at its sub-plans once more. So one of the two sees the other.
        """
        if plan.parent_id is None:
            return
        with suppress(UnknownPlan):
            self.woken(self.plans.get(plan.parent_id), [plan])

    def put_down(self, plan: Plan, waiting_for: JsonValue, fence: Fence | None = None) -> Plan:
        """The plan, waiting; queued, if a sub-plan that it waits for came to rest meanwhile. `StalePlan`,
        `StaleFence`."""
        phase_state = plan.phase, PlanState.WAITING
        facts = PlanFacts(waiting_for=waiting_for)
        waits = self.plans.move(plan, phase_state, facts, now=self.clock.now(), fence=fence)
        if waits_for_sub_plans(waits):  # guard: who came to rest before this found it busy
            waits = self.woken(waits, self.plans.children(plan.id))
        return waits

    def woken(self, parent: Plan, children: Sequence[Plan]) -> Plan:
        """The parent; queued, if it waits for its sub-plans and one of these came to rest since it looked."""
        if not waits_for_sub_plans(parent) or not has_news(parent, children):
            return parent
        return self.queued(parent)

    def job_of(self, plan: Plan) -> Job | None:
        """The job that goes on with it, or went; None if there never was one."""
        return None if plan.job_id is None else self._found(plan.job_id)

    def _found(self, job_id: str) -> Job | None:
        try:
            return self.jobs.get(job_id)
        except UnknownJob:
            return None

    def _request_of(self, plan: Plan) -> Mapping[str, JsonValue]:
        """What the whole of which it is a part was asked for with: parts run where the whole does."""
        return plan.request if plan.parent_id is None else self.plans.get(plan.root).request

    def _bound_for(self, plan: Plan, new: NewJob) -> int | None:
        """How many may wait where it is queued. What was let in goes on, whatever waits."""
        is_new = plan.phase is Phase.ACTION and plan.parent_id is None
        return self.lanes.queue_bound if is_new and new.queue else None

    def _most_at_once(self, plan: Plan) -> int:
        asked = plan.request.get("max_parallel")
        return asked if isinstance(asked, int) else self.max_parallel

    def unfinished_jobs(self) -> set[str]:
        """All jobs that wait or are worked on."""
        after: str | None = None
        found: set[str] = set()
        while page := self.jobs.list(states=_UNFINISHED, limit=_PAGE, after=after):
            after = page[-1].id
            found |= {job.id for job in page}
        return found


def going_on_with(model: JsonValue) -> Mapping[str, JsonValue]:
    """What a job is told of the model that was named at a resume."""
    return {} if model is None else {"model": model}


def _standing(told: JsonValue) -> PhaseState | None:
    """What `spelt` said."""
    if told is None:
        return None
    phase, _, state = str(told).partition("/")
    return Phase(phase), PlanState(state)


def _queued(plan: Plan) -> PhaseState:
    """Where a plan stands when a job is to go on with it."""
    if plan.phase is Phase.ACTION:
        return Phase.STRATEGIZE, PlanState.QUEUED
    # One that was running goes from hand to hand.
    return plan.phase, PlanState.PROCESSING if plan.state.running else PlanState.QUEUED
