"""Routes that read a plan: calls, decisions, comments, diff, comparison, files, graph, budget, output."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from cleveragents.api.actors import graphs_of
from cleveragents.api.format import printable_value
from cleveragents.api.plans.client import FileSide
from cleveragents.api.plans.detail_views import (
    BudgetView,
    CallView,
    CommentView,
    ComparisonView,
    DiffView,
    ExplainedDecisionView,
    FileView,
    OpenConflictView,
    OutputView,
    TreeNode,
)
from cleveragents.api.plans.summary import EXAMPLE_PLAN
from cleveragents.api.views import Page
from cleveragents.core.json_value import thaw
from cleveragents.server.access import PlanViewer, ReadPlan
from cleveragents.server.parameters import Limit, Paths, PlanId, Renames
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["plans"])

_PATCH = "text/x-diff"

AfterNumber = Annotated[
    str | None,
    Query(max_length=9, pattern=r"^[0-9]+$", description="`next` of the previous page", examples=["20"]),
]
Number = Annotated[int, Path(ge=1, le=10**9, examples=[3])]


_Other = Annotated[
    str,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of the other plan, or of the same plan",
        examples=[EXAMPLE_PLAN],
    ),
]
_Before = Annotated[
    int | None,
    Query(
        ge=1,
        le=10**9,
        description="the result before this correction; default: the current result",
        examples=[1],
    ),
]
_OtherBefore = Annotated[
    int | None,
    Query(
        ge=1,
        le=10**9,
        description="the other plan's result before this correction; default: its current result",
    ),
]


class GraphNode(BaseModel):
    """A node of an actor's graph."""

    name: str = Field(examples=["think"])
    type: str = Field(examples=["llm"])


class GraphEdge(BaseModel):
    """An edge of an actor's graph."""

    source: str = Field(serialization_alias="from", validation_alias="from", examples=["think"])
    to: str = Field(examples=["__end__"])
    when: str | None = Field(examples=[None])


class PlanGraph(BaseModel):
    """The graph of an actor, with its role in the plan."""

    actor: str = Field(examples=["builtin/executor"])
    role: Literal["strategize", "execute", "review"]
    entry: str | None
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    running: list[str] | None = Field(
        description="the nodes that call a model now; null if unknown", examples=[["think"]]
    )
    problem: str | None = Field(description="why the graph is not available", examples=[None])


class PlanGraphs(BaseModel):
    """The actors of a plan; empty for a plan of fixed steps."""

    actors: list[PlanGraph]


class OutputListing(BaseModel):
    """A page of a plan's output. The oldest output may be gone."""

    items: tuple[OutputView, ...]
    next: int | None = Field(description="`after` of the next page; null at the end")


@router.get("/plans/{plan_id}/calls", operation_id="listPlanCalls")
def list_plan_calls(
    plan_id: PlanId, client: PlanViewer, limit: Limit = 100, after: AfterNumber = None
) -> Page[CallView]:
    """List the tool calls of a plan, in order. Each is a checkpoint."""
    return client.plans.calls(plan_id, limit=limit, after=after)


@router.get("/plans/{plan_id}/calls/{number}", operation_id="getPlanCall")
def get_plan_call(plan_id: PlanId, number: Number, client: PlanViewer) -> CallView:
    """Show a call with its output."""
    return client.plans.call(plan_id, number)


@router.get("/plans/{plan_id}/decisions", operation_id="listPlanDecisions")
def list_plan_decisions(
    plan_id: PlanId, client: PlanViewer, limit: Limit = 1000, after: AfterNumber = None
) -> Page[TreeNode]:
    """List the decisions of a plan, including superseded ones, then its corrections and sub-plans.

    `parent` is the decision that led to an entry; `next` is a position in this list.
    """
    return client.plans.decisions(plan_id, limit=limit, after=after)


@router.get("/plans/{plan_id}/decisions/{number}", operation_id="explainPlanDecision")
def explain_plan_decision(plan_id: PlanId, number: Number, client: PlanViewer) -> ExplainedDecisionView:
    """Explain a decision: the question, the choice, the alternatives and the steps that carry it out."""
    return client.plans.decision(plan_id, number)


@router.get("/plans/{plan_id}/comments", operation_id="listPlanComments")
def list_plan_comments(
    plan_id: PlanId, client: PlanViewer, limit: Limit = 1000, after: AfterNumber = None
) -> Page[CommentView]:
    """List the comments of people and reviewers on a plan and on lines of its result, with their answers."""
    return client.plans.comments(plan_id, limit=limit, after=after)


@router.get("/plans/{plan_id}/conflicts", operation_id="listPlanConflicts")
def list_plan_conflicts(
    plan_id: PlanId, client: PlanViewer, limit: Limit = 100, after: AfterNumber = None
) -> Page[OpenConflictView]:
    """List the open conflicts between the sub-plans of a plan, or with the repository, each with both sides.
    `next` is a position in this list.
    """
    return client.plans.conflicts(plan_id, limit=limit, after=after)


@router.get(
    "/plans/{plan_id}/diff",
    operation_id="diffPlan",
    response_model=DiffView,
    responses={200: {"content": {_PATCH: {"schema": {"type": "string"}}}, "description": "the diff"}},
)
def diff_plan(
    plan_id: PlanId,
    client: PlanViewer,
    form: Annotated[
        Literal["json", "patch"], Query(alias="format", description="patch: for `git apply`")
    ] = "json",
    paths: Paths = None,
    renames: Renames = False,
) -> DiffView | Response:
    """Show the diff of a plan: the result, and the files left out.

    JSON is masked and bounded. The patch contains the result: byte for byte for operators, who may apply it;
    masked, without binary files and files over 256 KiB, for viewers.
    """
    if form == "patch":
        patch = client.plans.patch(plan_id, paths=paths or (), renames=renames)
        return Response(patch, media_type=_PATCH)
    return client.plans.diff(plan_id)


@router.get(
    "/plans/{plan_id}/comparison",
    operation_id="comparePlans",
    response_model=ComparisonView,
    responses={200: {"content": {_PATCH: {"schema": {"type": "string"}}}, "description": "the diff"}},
)
def compare_plans(
    plan_id: PlanId,
    client: PlanViewer,
    other: _Other,
    before: _Before = None,
    other_before: _OtherBefore = None,
    form: Annotated[
        Literal["json", "patch"], Query(alias="format", description="patch: for `git apply`")
    ] = "json",
    paths: Paths = None,
    renames: Renames = False,
) -> ComparisonView | Response:
    """Compare the result of a plan, now or before a correction, with another result of the same plan or of
    another plan.

    The patch is byte for byte for operators; masked and without binary files for viewers. Limits: 10,000
    files, 1,000,000 lines, 64 MiB of files.
    """
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
    side: FileSide = "after",
) -> FileView:
    """Show a file that a plan changed: before, after, or with the accepted changes only, which an apply would
    take. No other file can be read.
    """
    return client.plans.file(plan_id, path, side=side)


@router.get("/plans/{plan_id}/graph", operation_id="getPlanGraph")
def get_plan_graph(plan: ReadPlan, here: Here) -> PlanGraphs:
    """Show the graphs of the plan's actors and the running nodes, as far as known."""
    return PlanGraphs.model_validate(printable_value(thaw({"actors": graphs_of(here.parts, plan)})))


@router.get("/plans/{plan_id}/budget", operation_id="getPlanBudget")
def get_plan_budget(plan_id: PlanId, client: PlanViewer) -> BudgetView:
    """Show the limits, spending and reservations of the plan and all plans that share its budget."""
    return client.plans.budget(plan_id)


@router.get("/plans/{plan_id}/output", operation_id="getPlanOutput")
def read_output(
    plan_id: PlanId,
    client: PlanViewer,
    limit: Limit = 500,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="only output after this number")] = 0,
) -> OutputListing:
    """Return the output of a plan after a number, masked. `/events/stream?output=…` streams it live."""
    items = client.plans.output(plan_id, after=after, limit=limit)
    return OutputListing(items=items, next=items[-1].number if len(items) == limit else None)
