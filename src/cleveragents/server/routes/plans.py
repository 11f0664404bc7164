"""Plans: listed, made, shown, deleted."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field, JsonValue

from cleveragents.api.plans.ending import delete
from cleveragents.api.plans.listing import children_in, is_for_a_person, latest
from cleveragents.api.plans.overview import board_row, overview_of, resource_name_of
from cleveragents.api.plans.requests import Wanted
from cleveragents.api.plans.spending import limits_of
from cleveragents.api.plans.standing import needs_of
from cleveragents.api.server_requests import Asked, requested_by
from cleveragents.core.errors import RequestRefused
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.server.access import AnyUser, OperatedPlan, Operator, ReadPlan
from cleveragents.server.accounts import account_as
from cleveragents.server.listing import Limit, Listing
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.plan_models import (
    EXAMPLE_PLAN,
    Needs,
    PlanAccount,
    PlanRow,
    Strict,
)
from cleveragents.server.service import Here

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


class NewLimits(Strict):
    """What the plan and all below it may spend, in all. What is left out has no limit of its own."""

    usd: float | None = Field(default=None, gt=0, le=1e6, description="needs known prices", examples=[0.5])
    tokens: int | None = Field(default=None, ge=1, le=2**53, examples=[200_000])
    steps: int | None = Field(default=None, ge=1, le=2**31, description="calls of models", examples=[100])
    seconds: float | None = Field(default=None, gt=0, le=30 * 86_400, examples=[1800])


class NewPlan(Strict):
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

    def asked(self) -> Asked:
        """As the desk takes it. `RequestRefused`."""
        if self.goals is not None and (self.goal, self.action, self.arguments) != (None, None, None):
            raise RequestRefused("goals say what is wanted; leave goal, action and arguments out", "goals")
        if self.goals is None and self.action is None and self.goal is None:
            raise RequestRefused("say what is wanted: a goal in words, or an action", "goal")
        if self.action is None and self.arguments is not None:
            raise RequestRefused("arguments are for actions; say the goal in words", "arguments")
        if self.actor is not None and self.actor_yaml is not None:
            raise RequestRefused("an actor is named, or its YAML is sent; say one of them", "actor_yaml")
        given = self.limits or NewLimits()
        wanted = Wanted(
            action=self.action,
            words=(self.goal,) if self.action is None and self.goal is not None else (),
            pairs=(),
            checks=tuple(self.checks),
            profile=self.profile,
            from_head=self.start == "HEAD",
            include=(),
            goal=self.goal,
            commit=False,
            actor=self.actor,
            sent_actor=self.actor_yaml,
            model=self.model,
            limits=limits_of(given.usd, given.tokens, given.steps, given.seconds),
            invariants=tuple(self.invariants),
            arguments=None if self.action is None else (self.arguments or {}),
            parallel=self.max_parallel,
        )
        return Asked(self.resource, wanted, self.apply, self.to_branch, self.goals)


@router.get("/plans", operation_id="listPlans")
def list_plans(
    here: Here,
    access: AnyUser,
    state: States = None,
    project: OfName = None,
    resource: OfName = None,
    needs: Annotated[list[Needs] | None, Query(description="only these; may be repeated")] = None,
    every: Annotated[bool, Query(alias="all", description="sub-plans, too")] = False,
    limit: Limit = 100,
    after: AfterPlan = None,
) -> Listing[PlanRow]:
    """Lists plans, the newest first.

    Of sub-plans only those that need somebody are listed, unless `all` is said.
    """
    parts = here.parts

    def wanted(plan: Plan) -> bool:
        return (
            (every or is_for_a_person(plan))
            and project in (None, plan.project)
            and resource in (None, resource_name_of(plan))
            and (needs is None or needs_of(parts, plan) in needs)
        )

    found, more = latest(parts, wanted, states=state or (), limit=limit, after=after, scope=access.scope)
    split = children_in(parts, found)
    rows = [account_as(PlanRow, board_row(parts, plan, split.get(plan.id, ()))) for plan in found]
    return Listing[PlanRow](items=rows, next=found[-1].id if more else None)


@router.post("/plans", status_code=201, operation_id="createPlan")
def create_plan(
    new: NewPlan, response: Response, here: Here, access: Operator, claim: Claimed
) -> PlanAccount:
    """Makes a plan on a registered resource; a worker takes it from the queue.

    The repository is not touched until the result is applied.
    """
    plan = requested_by(access, new.asked(), claim=claim)
    response.headers["Location"] = f"/api/plans/{plan.id}"
    return account_as(PlanAccount, overview_of(here.parts, plan))


@router.get("/plans/{plan_id}", operation_id="getPlan")
def get_plan(plan: ReadPlan, here: Here) -> PlanAccount:
    """Shows everything about one plan: where it stands, what it changed and did, what can be done with it."""
    return account_as(PlanAccount, overview_of(here.parts, plan))


@router.delete("/plans/{plan_id}", status_code=204, operation_id="deletePlan")
def delete_plan(
    plan: OperatedPlan,
    here: Here,
    force: Annotated[bool, Query(description="whatever is lost with it")] = False,
) -> None:
    """Removes a plan, its sub-plans, their sandboxes and records. What the audit log says of them stays.

    Where something would be lost, such as changes that were never applied, it is refused unless `force` is
    said.
    """
    delete(here.container, plan.id, force=force)
