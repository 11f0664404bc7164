"""Plans and their jobs in dictionaries, each method one step, so that explorers need few operations.

Only what a queue of plans needs. The stores on a database promise the same steps, as their own tests show.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from cleveragents.core.errors import StalePlan, UnknownJob
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.plans.model.plan import PhaseState, Plan
from cleveragents.plans.ports.plans import PlanFacts

__all__ = ["JobsInMemory", "PlansInMemory"]


class PlansInMemory:
    """Thread safety:
        Owner: the scenario that made it.
        Lock: `_lock` is held for one step.
        Guarantee: a move is made from the version that was seen, or not at all.
    Cancel safety: no call waits.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._lock = threading.Lock()
        self._plans = {plan.id: plan for plan in plans}

    def get(self, plan_id: str) -> Plan:
        return self._plans[plan_id]

    def children(self, plan_id: str) -> Sequence[Plan]:
        with self._lock:
            return [plan for plan in self._plans.values() if plan.parent_id == plan_id]

    def move(
        self,
        plan: Plan,
        wanted: PhaseState,
        facts: PlanFacts | None = None,
        *,
        now: datetime,
        fence: Fence | None = None,
    ) -> Plan:
        told = facts or PlanFacts()
        moved = replace(
            plan,
            phase=wanted[0],
            state=wanted[1],
            version=plan.version + 1,
            waiting_for=told.waiting_for,
            job_id=told.job_id or plan.job_id,
        )
        with self._lock:
            if self._plans[plan.id].version != plan.version:
                raise StalePlan(plan.id, plan.version)
            self._plans[plan.id] = moved
        return moved


class JobsInMemory:
    """Thread safety:
        Owner: the scenario that made it.
        Lock: `_lock` is held for one step.
        Guarantee: of all submissions of a key one is kept; a job is claimed once.
    Cancel safety: no call waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.kept: dict[str, Job] = {}

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        job_id = str(new.key)
        facts: dict[str, Any] = {"created_at": now, "updated_at": now, "not_before": now}
        job = Job(job_id, new.kind, new.payload, JobState.QUEUED, 0, 0, 3, 0, 0, key=new.key, **facts)
        with self._lock:
            return self.kept.setdefault(job_id, job)

    def get(self, job_id: str) -> Job:
        job = self.kept.get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        return job

    def request_cancel(self, job_id: str, reason: str, *, now: datetime) -> Job:
        with self._lock:
            job = self.kept[job_id]
            state = JobState.CANCELLED if job.state is JobState.QUEUED else job.state
            self.kept[job_id] = replace(job, state=state, cancel_reason=reason)
            return self.kept[job_id]

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queue: str | None = None
    ) -> Job | None:
        with self._lock:
            for job in self.kept.values():
                if job.state is JobState.QUEUED:
                    self.kept[job.id] = replace(job, state=JobState.RUNNING, fence=1)
                    return self.kept[job.id]
        return None
