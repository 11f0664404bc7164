"""Plans: listed, made, shown, deleted."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field, JsonValue

from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.api.plans.views import EXAMPLE_PLAN, Needs, PlanCount, PlanSummary, PlanView
from cleveragents.api.views import Page
from cleveragents.plans.model.plan import PlanState
from cleveragents.server.access import AnyClient, OperatorClient, PlanOperator, PlanViewer
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.parameters import Limit, PlanId, StrictBody

__all__ = ["NewLimits", "ToBranch", "router"]

router = APIRouter(tags=["plans"])

_NAME = r"^[a-z0-9][a-z0-9._-]*$"
_TITLED = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
ToBranch = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=200,
        description="of a remote: a new branch that the result is pushed to, so that the resource's own "
        "stays as it is; `{plan}` in it stands for the plan's id",
        examples=["agents/{plan}"],
    ),
]
_Text = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]

States = Annotated[
    list[PlanState] | None, Query(description="only these; may be repeated", examples=[["waiting"]])
]
OfName = Annotated[str | None, Query(max_length=64, pattern=_NAME, examples=["shop"])]
AfterPlan = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Z]+$",
        description="what `next` of the last piece said",
        examples=[EXAMPLE_PLAN],
    ),
]


class NewLimits(StrictBody):
    """What the plan and all below it may spend, in all. What is left out has no limit of its own."""

    usd: float | None = Field(default=None, gt=0, le=1e6, description="needs known prices", examples=[0.5])
    tokens: int | None = Field(default=None, ge=1, le=2**53, examples=[200_000])
    steps: int | None = Field(default=None, ge=1, le=2**31, description="calls of models", examples=[100])
    seconds: float | None = Field(default=None, gt=0, le=30 * 86_400, examples=[1800])

    def limits(self) -> Limits:
        """Return the limits that the client takes."""
        return Limits(usd=self.usd, tokens=self.tokens, steps=self.steps, seconds=self.seconds)


class NewPlan(StrictBody):
    """What is wanted: a goal in words, or an action with its arguments."""

    resource: str = Field(
        max_length=64,
        pattern=_NAME,
        description="a registered resource: GET /resources has them",
        examples=["shop-main"],
    )
    goal: str | None = Field(
        default=None,
        min_length=1,
        max_length=100_000,
        description="in words; with an action, what that is for",
        examples=["Add a --json flag to the export command"],
    )
    action: str | None = Field(default=None, max_length=200, pattern=_TITLED, examples=[None])
    arguments: dict[str, JsonValue] | None = Field(default=None, description="of the action", examples=[None])
    actor: str | None = Field(
        default=None,
        max_length=200,
        pattern=_TITLED,
        description="who does all of it, instead of the usual three",
        examples=[None],
    )
    actor_yaml: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_536,
        description="instead of an actor's name: its YAML, for this plan alone. It may start no program of "
        "its own; no file that it names is read",
        examples=[None],
    )
    model: str | None = Field(default=None, max_length=200, pattern=r"\S", examples=["openai/gpt-4.1"])
    profile: str | None = Field(
        default=None, max_length=64, description="what it may do by itself", examples=["supervised"]
    )
    checks: list[_Text] = Field(
        default=[], max_length=50, description="commands that must pass", examples=[["pytest -q"]]
    )
    invariants: list[_Text] = Field(
        default=[], max_length=50, description="what must hold", examples=[["never touch migrations/"]]
    )
    limits: NewLimits | None = None
    max_parallel: int | None = Field(default=None, ge=1, le=64, description="of its plans, at once")
    apply: Literal["review", "auto"] | None = Field(
        default=None,
        description="auto: without asking, if its checks pass; review: never by itself; "
        "null: as its profile says",
        examples=["review"],
    )
    to_branch: ToBranch = None
    start: Literal["tree", "HEAD"] = Field(
        default="tree",
        description="what it begins with: the files of a directory as they are, or what is committed there; "
        "on a git remote it is always what is committed",
    )
    goals: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_536,
        description="instead of a goal or an action: the YAML of goals that belong together, as parts of one "
        "plan; no file that it names is read",
        examples=[None],
    )

    def request(self) -> PlanRequest:
        """Return the request that the client takes. `RequestRefused`."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return PlanRequest(**(given | {"limits": (self.limits or NewLimits()).limits()}))


@router.get("/plans", operation_id="listPlans")
def list_plans(
    client: AnyClient,
    state: States = None,
    project: OfName = None,
    resource: OfName = None,
    needs: Annotated[list[Needs] | None, Query(description="only these; may be repeated")] = None,
    every: Annotated[bool, Query(alias="all", description="sub-plans, too")] = False,
    limit: Limit = 100,
    after: AfterPlan = None,
) -> Page[PlanSummary]:
    """Lists plans, the newest first.

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


@router.get("/plan-counts", operation_id="countPlans")
def count_plans(client: AnyClient) -> Page[PlanCount]:
    """Counts plans by phase and state. Sub-plans are not counted."""
    return Page(items=client.plans.counts())


@router.post("/plans", status_code=201, operation_id="createPlan")
def create_plan(new: NewPlan, response: Response, client: OperatorClient, claim: Claimed) -> PlanView:
    """Creates a plan on a registered resource and queues it for a worker.

    The repository is not touched until the result is applied.
    """
    plan = client.plans.create(new.request(), claim=claim)
    response.headers["Location"] = f"/api/plans/{plan.id}"
    return plan


@router.get("/plans/{plan_id}", operation_id="getPlan")
def get_plan(plan_id: PlanId, client: PlanViewer) -> PlanView:
    """Shows everything about one plan: its state, changes, calls, and the actions it allows."""
    return client.plans.get(plan_id)


@router.get("/plans/{plan_id}/summary", operation_id="getPlanSummary")
def get_plan_summary(plan_id: PlanId, client: PlanViewer) -> PlanSummary:
    """Shows a plan as lists do: without its changes and calls."""
    return client.plans.summary(plan_id)


@router.delete("/plans/{plan_id}", status_code=204, operation_id="deletePlan")
def delete_plan(
    plan_id: PlanId,
    client: PlanOperator,
    force: Annotated[bool, Query(description="even if changes are lost")] = False,
) -> None:
    """Deletes a plan, its sub-plans, their sandboxes and records. The audit log stays.

    Refused if something would be lost, such as changes that were never applied, unless `force` is true.
    """
    client.plans.delete(plan_id, force=force)
