"""The jobs of plans: what they are called, how often they are tried, and which plans need one."""

from __future__ import annotations

from cleveragents.core.errors import UnknownPlan
from cleveragents.jobs.model.job import Job
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanStore

__all__ = ["ATTEMPTS", "SHARED_ATTEMPTS", "goal_of", "is_to_be_run", "key_of_job", "kind_of_plan", "phase_of"]

ATTEMPTS = 3
SHARED_ATTEMPTS = 10
"""Of a shared queue, whose workers come and go: each that is stopped or killed costs its jobs an attempt."""


def kind_of_plan(root_id: str) -> str:
    """The kind of the jobs of a tree of plans: its own, so that who runs a plan in the foreground runs its
    sub-plans, too, and no other."""
    return f"plan:{root_id}"


def key_of_job(plan: Plan) -> str:
    """Says for which version of the plan a job was submitted, so that it is submitted once."""
    return f"{plan.id}@{plan.version}"


def goal_of(job: Job, plans: PlanStore) -> str:
    """The goal of the job's plan, for people to read; "" for a job of no plan."""
    try:
        return plans.get(str(job.payload.get("plan_id"))).goal
    except UnknownPlan:
        return ""


def phase_of(job: Job, plans: PlanStore) -> str:
    """Which phase of its plan a job does next, for people to read; "" for a job of no plan."""
    name = job.kind.partition(":")[0]
    try:
        plan = plans.get(str(job.payload.get("plan_id")))
    except UnknownPlan:
        return ""
    if name != "plan":
        return name
    if plan.job_id == job.id and plan.standing == (Phase.EXECUTE, PlanState.COMPLETE):
        return Phase.APPLY.value
    # One that is just submitted may say where the plan is to go on; the plan is moved there after that.
    wanted = job.payload.get("to") if plan.job_id != job.id else None
    phase = str(wanted).partition("/")[0] if wanted else plan.phase.value
    return Phase.STRATEGIZE.value if phase == Phase.ACTION.value else phase


def is_to_be_run(plan: Plan) -> bool:
    """Whether it was left before the end of what a job does: between its two phases, too."""
    if plan.phase is Phase.APPLY:
        return False
    return plan.state.running or plan.standing == (Phase.STRATEGIZE, PlanState.COMPLETE)
