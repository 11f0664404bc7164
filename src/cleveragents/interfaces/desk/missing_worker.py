"""Plans that wait in a queue of which no worker takes: who would have to be started, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.application.services.plan_lanes import SHARED_QUEUE, queue_of
from cleveragents.domain.plan import PlanState
from cleveragents.interfaces.desk.job_account import is_silent

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan

__all__ = ["missing_worker"]


def missing_worker(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """The command that is missing, with what it does; nothing while somebody works who may take the plan."""
    if plan.state is not PlanState.QUEUED:
        return []
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    queue = queue_of(root.request)
    if not queue or _is_taken_from(parts, queue):
        return []
    where = "" if queue == SHARED_QUEUE else f", on the machine where {plan.resource} is"
    return [("agents worker", f"runs it{where}; no worker is there at present")]


def _is_taken_from(parts: PlanParts, queue: str) -> bool:
    now = parts.lifecycle.clock.now()
    living = [one for one in parts.workers.list() if one.state == "working" and not is_silent(one, now=now)]
    return any(queue in one.queue.split(",") for one in living)
