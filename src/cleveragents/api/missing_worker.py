"""Plans that wait in a queue of which no worker takes: who would have to be started, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.api.workers import is_silent
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.jobs.lanes import SHARED_QUEUE, queue_of
from cleveragents.plans.jobs.names import is_to_be_run
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["missing_worker", "waits_for_worker"]


def waits_for_worker(parts: PlanParts, plan: Plan) -> bool:
    """Whether it is queued where workers take plans from: nobody has to resume it."""
    if not is_to_be_run(plan) or not _queue_of(parts, plan):
        return False
    job = parts.lifecycle.queueing.job_of(plan)
    return job is not None and job.state is JobState.QUEUED


def missing_worker(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """The command that is missing, with what it does; nothing while somebody works who may take the plan."""
    if plan.state is not PlanState.QUEUED and not waits_for_worker(parts, plan):
        return []
    queue = _queue_of(parts, plan)
    if not queue or _is_taken_from(parts, queue):
        return []
    where = "" if queue == SHARED_QUEUE else f", on the machine where {plan.resource} is"
    return [("agents worker", f"runs it{where}; no worker is there at present")]


def _queue_of(parts: PlanParts, plan: Plan) -> str:
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    return queue_of(root.request)


def _is_taken_from(parts: PlanParts, queue: str) -> bool:
    now = parts.lifecycle.clock.now()
    living = [one for one in parts.workers.list() if one.state == "working" and not is_silent(one, now=now)]
    return any(queue in one.queue.split(",") for one in living)
