"""Routes that list, search, create, show and delete plans, and sum their costs."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field, JsonValue

from cleveragents.api.costs import CostGroup, CostView
from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.api.plans.summary import EXAMPLE_PLAN, Needs, PlanCount, PlanSummary
from cleveragents.api.plans.views import PlanView
from cleveragents.api.search import FoundPlan
from cleveragents.api.views import Page
from cleveragents.plans.model.plan import PlanState
from cleveragents.server.access import AnyClient, OperatorClient, PlanOperator, PlanViewer
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.parameters import Limit, PlanId, StrictBody

__all__ = ["NewLimits", "ToBranch", "router"]

router = APIRouter(prefix="/api", tags=["plans"])

_NAME = r"^[a-z0-9][a-z0-9._-]*$"
_TITLED = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
ToBranch = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=200,
        description="for a remote: a new branch to push the result to, so that the resource's own branch "
        "does not change; `{plan}` in the name is replaced by the plan's id",
        examples=["agents/{plan}"],
    ),
]
_Text = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]

States = Annotated[
    list[PlanState] | None,
    Query(description="only plans in these states; may be repeated", examples=[["waiting"]]),
]
OfName = Annotated[str | None, Query(max_length=64, pattern=_NAME, examples=["shop"])]
AfterPlan = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Z]+$",
        description="`next` of the previous page",
        examples=[EXAMPLE_PLAN],
    ),
]


class NewLimits(StrictBody):
    """Limits on the total spending of a plan and its sub-plans. An omitted limit does not apply."""

    usd: float | None = Field(
        default=None, gt=0, le=1e6, description="in dollars; needs known prices", examples=[0.5]
    )
    tokens: int | None = Field(default=None, ge=1, le=2**53, examples=[200_000])
    steps: int | None = Field(default=None, ge=1, le=2**31, description="model calls", examples=[100])
    seconds: float | None = Field(default=None, gt=0, le=30 * 86_400, examples=[1800])

    def limits(self) -> Limits:
        """Return the limits of the client."""
        return Limits(usd=self.usd, tokens=self.tokens, steps=self.steps, seconds=self.seconds)


class NewPlan(StrictBody):
    """A request for a plan: a goal, or an action with its arguments."""

    resource: str = Field(
        max_length=64,
        pattern=_NAME,
        description="a registered resource; GET /resources lists them",
        examples=["shop-main"],
    )
    goal: str | None = Field(
        default=None,
        min_length=1,
        max_length=100_000,
        description="the goal; with an action, its purpose",
        examples=["Add a --json flag to the export command"],
    )
    action: str | None = Field(default=None, max_length=200, pattern=_TITLED, examples=[None])
    arguments: dict[str, JsonValue] | None = Field(
        default=None, description="arguments of the action", examples=[None]
    )
    actor: str | None = Field(
        default=None,
        max_length=200,
        pattern=_TITLED,
        description="one actor for all roles, instead of the default three",
        examples=[None],
    )
    actor_yaml: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_536,
        description="instead of an actor's name: its YAML, for this plan only. It cannot start programs, "
        "and files that it names are not read",
        examples=[None],
    )
    model: str | None = Field(default=None, max_length=200, pattern=r"\S", examples=["openai/gpt-4.1"])
    profile: str | None = Field(
        default=None,
        max_length=64,
        description="the profile, which decides what the plan may do without approval",
        examples=["supervised"],
    )
    checks: list[_Text] = Field(
        default=[], max_length=50, description="commands that must pass", examples=[["pytest -q"]]
    )
    invariants: list[_Text] = Field(
        default=[],
        max_length=50,
        description="rules that the result must not break",
        examples=[["never touch migrations/"]],
    )
    limits: NewLimits | None = None
    max_parallel: int | None = Field(
        default=None, ge=1, le=64, description="maximum number of sub-plans that run in parallel"
    )
    apply: Literal["review", "auto"] | None = Field(
        default=None,
        description=(
            "auto: apply without approval if the checks pass; review: only a person applies; null: "
            "the profile decides"
        ),
        examples=["review"],
    )
    to_branch: ToBranch = None
    start: Literal["tree", "HEAD"] = Field(
        default="tree",
        description="the base: the current files of a directory, or its last commit; "
        "on a git remote always the last commit",
    )
    goals: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_536,
        description="instead of a goal or an action: the YAML of several goals, the sub-plans of one "
        "plan; files that it names are not read",
        examples=[None],
    )

    def request(self) -> PlanRequest:
        """Return the request of the client. Raises `RequestRefused` if it is invalid."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return PlanRequest(**(given | {"limits": (self.limits or NewLimits()).limits()}))


@router.get("/plans", operation_id="listPlans")
def list_plans(
    client: AnyClient,
    state: States = None,
    project: OfName = None,
    resource: OfName = None,
    needs: Annotated[
        list[Needs] | None,
        Query(description="only plans with these kinds of pending request; may be repeated"),
    ] = None,
    every: Annotated[bool, Query(alias="all", description="include sub-plans")] = False,
    limit: Limit = 100,
    after: AfterPlan = None,
) -> Page[PlanSummary]:
    """List plans, the newest first.

    Sub-plans are listed if they need a person, or all of them with `all`.
    """
    return client.plans.list(
        states=state or (),
        needs=needs or (),
        project=project,
        resource=resource,
        sub_plans=every,
        limit=limit,
        after=after,
    )


@router.get("/search", operation_id="searchPlans")
def search_plans(
    client: AnyClient,
    text: Annotated[str, Query(description="2 to 200 characters", examples=["discount"])],
    project: OfName = None,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of plans")] = 20,
) -> Page[FoundPlan]:
    """Search the goals, answers, transcripts and changes of the latest 1,000 plans.

    Upper and lower case are the same. Masked texts are not found.
    """
    return Page(items=client.plans.search(text, project=project, limit=limit))


@router.get("/costs", operation_id="listCosts")
def list_costs(
    client: AnyClient,
    by: Annotated[CostGroup, Query(description="how the calls are grouped")] = "day",
    since: Annotated[date | None, Query(description="the first day; default: 30 days ago")] = None,
    until: Annotated[date | None, Query(description="the last day; default: today, in UTC")] = None,
    project: OfName = None,
) -> Page[CostView]:
    """List the costs of model calls by day, project, model or actor.

    Days come in order, others with the highest cost first. Deleted plans are not counted.
    """
    return Page(items=client.costs.list(by, since=since, until=until, project=project))


@router.get("/plan-counts", operation_id="countPlans")
def count_plans(client: AnyClient) -> Page[PlanCount]:
    """Count plans by phase and state. Sub-plans are not counted."""
    return Page(items=client.plans.counts())


@router.post("/plans", status_code=201, operation_id="createPlan")
def create_plan(new: NewPlan, response: Response, client: OperatorClient, claim: Claimed) -> PlanView:
    """Create a plan on a registered resource and queue it for a worker.

    The repository is not touched until the result is applied.
    """
    plan = client.plans.create(new.request(), claim=claim)
    response.headers["Location"] = f"/api/plans/{plan.id}"
    return plan


@router.get("/plans/{plan_id}", operation_id="getPlan")
def get_plan(plan_id: PlanId, client: PlanViewer) -> PlanView:
    """Show a plan: its status, changes, calls, and the actions it allows."""
    return client.plans.get(plan_id)


@router.get("/plans/{plan_id}/summary", operation_id="getPlanSummary")
def get_plan_summary(plan_id: PlanId, client: PlanViewer) -> PlanSummary:
    """Show a plan as in a list, without its changes and calls."""
    return client.plans.summary(plan_id)


@router.delete("/plans/{plan_id}", status_code=204, operation_id="deletePlan")
def delete_plan(
    plan_id: PlanId,
    client: PlanOperator,
    force: Annotated[bool, Query(description="delete even if changes are lost")] = False,
) -> None:
    """Delete a plan, its sub-plans, their sandboxes and records. The audit log stays.

    Refused if changes that were never applied would be lost, unless `force` is true.
    """
    client.plans.delete(plan_id, force=force)
