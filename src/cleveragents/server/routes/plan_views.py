"""Routes that read a plan: calls, decisions, diff, comparison, files, graph, budget, output."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from cleveragents.api.format import printable_value
from cleveragents.api.plans.graphs import graphs_of
from cleveragents.api.plans.views import (
    EXAMPLE_PLAN,
    BudgetView,
    CallView,
    ComparisonView,
    DiffView,
    ExplainedDecisionView,
    FileView,
    OpenConflictView,
    OutputView,
    TreeNode,
)
from cleveragents.api.views import Page
from cleveragents.core.json_value import thaw
from cleveragents.server.access import PlanViewer, ReadPlan
from cleveragents.server.parameters import Limit, Paths, PlanId, Renames
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["plans"])

_PATCH = "text/x-diff"

AfterNumber = Annotated[
    str | None,
    Query(
        max_length=9, pattern=r"^[0-9]+$", description="what `next` of the last piece said", examples=["20"]
    ),
]
Number = Annotated[int, Path(ge=1, le=10**9, examples=[3])]


_Other = Annotated[
    str,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of the other plan, or of the same",
        examples=[EXAMPLE_PLAN],
    ),
]
_Before = Annotated[
    int | None,
    Query(ge=1, le=10**9, description="before that correction of the plan; else as it is now", examples=[1]),
]
_OtherBefore = Annotated[
    int | None,
    Query(ge=1, le=10**9, description="before that correction of the other; else as it is now"),
]


class GraphNode(BaseModel):
    """A node of an actor's graph."""

    name: str = Field(examples=["think"])
    type: str = Field(examples=["llm"])


class GraphEdge(BaseModel):
    """What follows what."""

    source: str = Field(serialization_alias="from", validation_alias="from", examples=["think"])
    to: str = Field(examples=["__end__"])
    when: str | None = Field(examples=[None])


class PlanGraph(BaseModel):
    """An actor of the plan, by its role in it."""

    actor: str = Field(examples=["builtin/executor"])
    role: Literal["strategize", "execute", "review"]
    entry: str | None
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    running: list[str] | None = Field(
        description="the nodes that ask a model now; null where nobody can tell", examples=[["think"]]
    )
    problem: str | None = Field(description="why it cannot be drawn", examples=[None])


class PlanGraphs(BaseModel):
    """Who works at a plan; nobody at one of plain steps."""

    actors: list[PlanGraph]


class OutputListing(BaseModel):
    """A piece of a plan's output, of which the oldest may be gone."""

    items: tuple[OutputView, ...]
    next: int | None = Field(description="where to go on, as `after`; null at the end")


@router.get("/plans/{plan_id}/calls", operation_id="listPlanCalls")
def list_plan_calls(
    plan_id: PlanId, client: PlanViewer, limit: Limit = 100, after: AfterNumber = None
) -> Page[CallView]:
    """Lists a plan's tool calls, in order: its checkpoints and results."""
    return client.plans.calls(plan_id, limit=limit, after=after)


@router.get("/plans/{plan_id}/calls/{number}", operation_id="getPlanCall")
def get_plan_call(plan_id: PlanId, number: Number, client: PlanViewer) -> CallView:
    """Shows one call, with its output."""
    return client.plans.call(plan_id, number)


@router.get("/plans/{plan_id}/decisions", operation_id="listPlanDecisions")
def list_plan_decisions(
    plan_id: PlanId, client: PlanViewer, limit: Limit = 1000, after: AfterNumber = None
) -> Page[TreeNode]:
    """Lists the decisions of a plan, superseded ones included, then corrections, then its sub-plans. `parent`
    says what follows from what; `next` counts them."""
    return client.plans.decisions(plan_id, limit=limit, after=after)


@router.get("/plans/{plan_id}/decisions/{number}", operation_id="explainPlanDecision")
def explain_plan_decision(plan_id: PlanId, number: Number, client: PlanViewer) -> ExplainedDecisionView:
    """Explains a decision: the question, the choice, the alternatives, and the steps that carry it out."""
    return client.plans.decision(plan_id, number)


@router.get("/plans/{plan_id}/conflicts", operation_id="listPlanConflicts")
def list_plan_conflicts(
    plan_id: PlanId, client: PlanViewer, limit: Limit = 100, after: AfterNumber = None
) -> Page[OpenConflictView]:
    """Lists the open conflicts between the sub-plans of a plan, each with both sides. `next` counts them."""
    return client.plans.conflicts(plan_id, limit=limit, after=after)


@router.get(
    "/plans/{plan_id}/diff",
    operation_id="diffPlan",
    response_model=DiffView,
    responses={200: {"content": {_PATCH: {"schema": {"type": "string"}}}, "description": "the difference"}},
)
def diff_plan(
    plan_id: PlanId,
    client: PlanViewer,
    form: Annotated[
        Literal["json", "patch"], Query(alias="format", description="patch: what `git apply` takes")
    ] = "json",
    paths: Paths = None,
    renames: Renames = False,
) -> DiffView | Response:
    """Shows what a plan changed: the result, and what the review left out.

    JSON is masked and bounded. The patch has the result: to the byte for operators, who may apply it; masked,
    and without binary contents and files of more than 256 KiB, for viewers.
    """
    if form == "patch":
        patch = client.plans.patch(plan_id, paths=paths or (), renames=renames)
        return Response(patch, media_type=_PATCH)
    return client.plans.diff(plan_id)


@router.get(
    "/plans/{plan_id}/comparison",
    operation_id="comparePlans",
    response_model=ComparisonView,
    responses={200: {"content": {_PATCH: {"schema": {"type": "string"}}}, "description": "the difference"}},
)
def compare_plans(
    plan_id: PlanId,
    client: PlanViewer,
    other: _Other,
    before: _Before = None,
    other_before: _OtherBefore = None,
    form: Annotated[
        Literal["json", "patch"], Query(alias="format", description="patch: what `git apply` takes")
    ] = "json",
    paths: Paths = None,
    renames: Renames = False,
) -> ComparisonView | Response:
    """Compares the result of a plan, now or before a correction, with that of another plan, or of the same
    one. The patch is to the byte for operators; masked, and without binary contents, for viewers. It has at
    most 10,000 files and 1,000,000 lines, and is of files of at most 64 MiB in all."""
    sides = {"before": before, "other_before": other_before}
    if form == "patch":
        patch = client.plans.compare_patch(plan_id, other, **sides, paths=paths or (), renames=renames)
        return Response(patch, media_type=_PATCH)
    return client.plans.compare(plan_id, other, **sides)


@router.get("/plans/{plan_id}/files", operation_id="readPlanFile")
def read_plan_file(
    plan_id: PlanId,
    client: PlanViewer,
    path: Annotated[str, Query(min_length=1, max_length=4096, examples=["src/export.py"])],
    side: Literal["before", "after"] = "after",
) -> FileView:
    """Shows one of the files that a plan changed, before or after. No other file can be read here."""
    return client.plans.file(plan_id, path, side=side)


@router.get("/plans/{plan_id}/graph", operation_id="getPlanGraph")
def get_plan_graph(plan: ReadPlan, here: Here) -> PlanGraphs:
    """Shows the graphs of the plan's actors, and which of their nodes are running, as far as known."""
    return PlanGraphs.model_validate(printable_value(thaw({"actors": graphs_of(here.parts, plan)})))


@router.get("/plans/{plan_id}/budget", operation_id="getPlanBudget")
def get_plan_budget(plan_id: PlanId, client: PlanViewer) -> BudgetView:
    """Shows the limits of the plan's whole tree, its spending, and the reservations of running calls."""
    return client.plans.budget(plan_id)


@router.get("/plans/{plan_id}/output", operation_id="getPlanOutput")
def read_output(
    plan_id: PlanId,
    client: PlanViewer,
    limit: Limit = 500,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="only pieces after this number")] = 0,
) -> OutputListing:
    """What the plan printed after a number, masked; `/events/stream?output=…` has it live."""
    items = client.plans.output(plan_id, after=after, limit=limit)
    return OutputListing(items=items, next=items[-1].number if len(items) == limit else None)
