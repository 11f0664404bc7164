"""A job that was cancelled while no code of it ran: its plan learns of that at once.

A plan under way belongs to its job, and whoever runs the job moves the plan. Where an engine hands a job on
after each phase, a cancel may come when nobody runs it, and from somebody who knows jobs only. Plans would
learn of it when somebody looks at them; so does this, without waiting for that.
"""

from __future__ import annotations

from contextlib import suppress

from cleveragents.core.cancel_reason import is_mere_stop
from cleveragents.core.errors import PlanError, UnknownPlan
from cleveragents.jobs.model.job import Job
from cleveragents.plans.jobs.names import kind_of_plan
from cleveragents.plans.lifecycle import PlanLifecycle

__all__ = ["cancel_plan_of"]


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
