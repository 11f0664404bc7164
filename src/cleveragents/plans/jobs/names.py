"""The jobs of plans: what they are called, how often they are tried, and which plans need one.

Where the jobs of a plan are queued, and which lanes they are in.

A plan that was asked for with a `queue` is run by whoever works for that, on whatever machine; so limits that
are meant for all of them are lanes of its jobs. A plan without one belongs to the process that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleveragents.core.errors import UnknownPlan
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import Job, Lane
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.store.sql_plan_store import SqlPlanStore

__all__ = [
    "ATTEMPTS",
    "SHARED_ATTEMPTS",
    "SHARED_QUEUE",
    "ConcurrencyLimits",
    "client_queue",
    "goal_of",
    "home_queue",
    "key_of_job",
    "kind_of_plan",
    "phase_of",
    "project_lane",
    "queue_of",
    "should_run",
]


ATTEMPTS = 3

SHARED_ATTEMPTS = 10
"""Of a shared queue, whose workers come and go: each that is stopped or killed costs its jobs an attempt."""

SHARED_QUEUE = "plans"
"""The queue of plans that a server was asked for, and that can run on any machine."""


def kind_of_plan(root_id: str) -> str:
    """The kind of the jobs of a tree of plans: its own, so that who runs a plan in the foreground runs its
    sub-plans, too, and no other."""
    return f"plan:{root_id}"


def key_of_job(plan: Plan) -> str:
    """Says for which version of the plan a job was submitted, so that it is submitted once."""
    return f"{plan.id}@{plan.version}"


def goal_of(job: Job, plans: SqlPlanStore) -> str:
    """The goal of the job's plan, for people to read; "" for a job of no plan."""
    try:
        return plans.get(str(job.payload.get("plan_id"))).goal
    except UnknownPlan:
        return ""


def phase_of(job: Job, plans: SqlPlanStore) -> str:
    """Which phase of its plan a job does next, for people to read; "" for a job of no plan."""
    name = job.kind.partition(":")[0]
    try:
        plan = plans.get(str(job.payload.get("plan_id")))
    except UnknownPlan:
        return ""
    if name != "plan":
        return name
    if plan.job_id == job.id and plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
        return Phase.APPLY.value
    # One that is just submitted may say where the plan is to go on; the plan is moved there after that.
    wanted = job.payload.get("to") if plan.job_id != job.id else None
    phase = str(wanted).partition("/")[0] if wanted else plan.phase.value
    return Phase.STRATEGIZE.value if phase == Phase.ACTION.value else phase


def should_run(plan: Plan) -> bool:
    """Whether it was left before the end of what a job does: between its two phases, too."""
    if plan.phase is Phase.APPLY:
        return False
    return plan.state.running or plan.phase_state == (Phase.STRATEGIZE, PlanState.COMPLETE)


def client_queue(home: str) -> str:
    """Return the queue of plans that Python clients on this state created and run themselves."""
    return f"clients@{home}"


def home_queue(home: str | None) -> str:
    """The queue of plans on a directory, which only workers with that state directory have. Without one, the
    queue of all."""
    return SHARED_QUEUE if home is None else f"{SHARED_QUEUE}@{home}"


def queue_of(request: Mapping[str, JsonValue]) -> str:
    """The shared queue that a plan was asked for with; "" is none."""
    queue = request.get("queue")
    return queue if isinstance(queue, str) else ""


def project_lane(name: str) -> str:
    """The lane of all jobs of a project."""
    return f"project:{name}"


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """The limits of today: a job keeps those that were in force when it was queued."""

    project_limit: Callable[[str], int | None] = lambda name: None
    provider_limit: int = 64
    default_model: str = ""
    queue_bound: int | None = None

    def of(self, request: Mapping[str, JsonValue], model: JsonValue = None) -> tuple[Lane, ...]:
        """The lanes of a plan's jobs, as the request of its root says. `model` is one that was named since,
        instead of the request's."""
        if not queue_of(request):
            return ()
        return (*self.of_project(request), *self._of_provider(model or request.get("model")))

    def of_project(self, request: Mapping[str, JsonValue]) -> tuple[Lane, ...]:
        """Only the project's, for jobs that ask no model."""
        project = request.get("project")
        if not queue_of(request) or not isinstance(project, str):
            return ()
        limit = self.project_limit(project)
        return () if limit is None else (Lane(project_lane(project), limit),)

    def _of_provider(self, model: JsonValue) -> tuple[Lane, ...]:
        named = model if isinstance(model, str) and model else self.default_model
        provider = named.partition("/")[0]
        return (Lane(f"provider:{provider}", self.provider_limit),) if provider else ()
