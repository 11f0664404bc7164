"""The jobs of plans: their names, attempts, queues and concurrency limits.

A plan that is created with a `queue` runs on any worker of that queue, on any machine. Concurrency limits
across all these workers are therefore stored in its jobs. A plan without a queue belongs to the process that
created it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from cleveragents.core.errors import UnknownPlan
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import Job, Lane
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.usage_wait import is_parked
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
"""Maximum attempts of a job in a shared queue. Its workers come and go, and each stopped worker costs its
jobs an attempt.
"""

SHARED_QUEUE = "plans"
"""The queue of plans that a server created and that can run on any machine."""


def kind_of_plan(root_id: str) -> str:
    """Return the kind of the jobs of a tree of plans. Each tree has its own kind, so that a foreground run
    takes only the jobs of its own tree.
    """
    return f"plan:{root_id}"


def key_of_job(plan: Plan) -> str:
    """Return a key for the version of the plan, so that its job is submitted once."""
    return f"{plan.id}@{plan.version}"


def goal_of(job: Job, plans: SqlPlanStore) -> str:
    """Return the goal of the job's plan for people to read; "" for other jobs."""
    try:
        return plans.get(str(job.payload.get("plan_id"))).goal
    except UnknownPlan:
        return ""


def phase_of(job: Job, plans: SqlPlanStore) -> str:
    """Return the phase that the job runs next, for people to read; "" for a job without a plan."""
    name = job.kind.partition(":")[0]
    try:
        plan = plans.get(str(job.payload.get("plan_id")))
    except UnknownPlan:
        return ""
    if name != "plan":
        return name
    if plan.job_id == job.id and plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
        return Phase.APPLY.value
    # A new job may name the phase and state to continue from; the plan moves there afterwards.
    wanted = job.payload.get("to") if plan.job_id != job.id else None
    phase = str(wanted).partition("/")[0] if wanted else plan.phase.value
    return Phase.STRATEGIZE.value if phase == Phase.ACTION.value else phase


def should_run(plan: Plan) -> bool:
    """Return whether a job has to continue the plan. This includes a plan between Strategize and Execute, and
    a plan that waits for the reset of a usage limit.
    """
    if plan.phase is Phase.APPLY:
        return False
    return plan.state.running or is_parked(plan) or plan.phase_state == (Phase.STRATEGIZE, PlanState.COMPLETE)


def client_queue(home: str) -> str:
    """Return the queue of plans that Python clients with the state directory `home` create and run."""
    return f"clients@{home}"


def home_queue(home: str | None) -> str:
    """Return the queue for plans on a local directory. Only workers with the state directory `home` serve
    this queue. Without `home`, return the shared queue.
    """
    return SHARED_QUEUE if home is None else f"{SHARED_QUEUE}@{home}"


def queue_of(request: Mapping[str, JsonValue]) -> str:
    """Return the shared queue of a request; "" if it has none."""
    queue = request.get("queue")
    return queue if isinstance(queue, str) else ""


def project_lane(name: str) -> str:
    """Return the name of the group of all jobs of a project, for its concurrency limit."""
    return f"project:{name}"


class ConcurrencyLimits(Struct, frozen=True):
    """The configured concurrency limits. A job keeps the limits that were configured when it was queued."""

    project_limit: Callable[[str], int | None] = lambda name: None
    provider_limit: int = 64
    default_model: str = ""
    queue_bound: int | None = None

    def of(self, request: Mapping[str, JsonValue], model: JsonValue = None) -> tuple[Lane, ...]:
        """Return the limits for the jobs of a plan, given the request of its root. `model` overrides the
        model of the request.
        """
        if not queue_of(request):
            return ()
        return (*self.of_project(request), *self._of_provider(model or request.get("model")))

    def of_project(self, request: Mapping[str, JsonValue]) -> tuple[Lane, ...]:
        """Return only the limit of the project, for jobs that call no model."""
        project = request.get("project")
        if not queue_of(request) or not isinstance(project, str):
            return ()
        limit = self.project_limit(project)
        return () if limit is None else (Lane(project_lane(project), limit),)

    def _of_provider(self, model: JsonValue) -> tuple[Lane, ...]:
        named = model if isinstance(model, str) and model else self.default_model
        provider = named.partition("/")[0]
        return (Lane(f"provider:{provider}", self.provider_limit),) if provider else ()
