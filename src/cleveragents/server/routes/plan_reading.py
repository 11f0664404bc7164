"""What a plan did, decided, changed and spent."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Path, Query, Response
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role
from cleveragents.api.plans.calls import call_fields
from cleveragents.api.plans.decisions import decision_rows, explained
from cleveragents.api.plans.diffs import diff_of, patch_of
from cleveragents.api.plans.files import file_of
from cleveragents.api.plans.graphs import graphs_of
from cleveragents.api.plans.remains import ensure_diffable
from cleveragents.api.plans.spending import budget_of
from cleveragents.api.reach import ensure_reachable
from cleveragents.core.errors import UnknownCheckpoint
from cleveragents.server.access import AnyUser, ReadPlan
from cleveragents.server.accounts import account_as
from cleveragents.server.listing import Limit, Listing
from cleveragents.server.plan_models import Call, Change, Limits
from cleveragents.server.service import Here

__all__ = ["BudgetAccount", "router"]

router = APIRouter(tags=["plans"])

_MOMENT = "2026-11-15T12:00:00Z"
_PATCH = "text/x-diff"

AfterNumber = Annotated[
    str | None,
    Query(
        max_length=9, pattern=r"^[0-9]+$", description="what `next` of the last piece said", examples=["20"]
    ),
]
Number = Annotated[int, Path(ge=1, le=10**9, examples=[3])]


class Alternative(BaseModel):
    """What else there was."""

    choice: str
    reason: str


class SupersededBy(BaseModel):
    """The correction that ended a decision."""

    correction: int
    decision: int | None
    guidance: str
    by_itself: bool


class Decision(BaseModel):
    """A question, and what was chosen."""

    number: int = Field(examples=[3])
    parent: int | None = Field(description="the decision that it follows from")
    question: str = Field(examples=["Where is the flag parsed?"])
    choice: str = Field(examples=["In the export command itself"])
    rationale: str
    alternatives: list[Alternative]
    confidence: float | None = Field(examples=[0.8])
    made_by: str = Field(examples=["builtin/strategist"])
    checkpoint: int | None = Field(description="the call before which it was made")
    state: str = Field(description="active or superseded", examples=["active"])
    superseded_by: SupersededBy | None
    created_at: str = Field(examples=[_MOMENT])


class ExplainedDecision(Decision):
    """A decision, and what carries it out."""

    steps: list[str]


class InTree(BaseModel):
    """Something in the tree of decisions; its `kind` says what: a decision, a correction in addition, a
    sub-plan."""

    kind: Literal["decision", "correction", "sub-plan"]
    number: int | None = Field(default=None, description="of a decision or a correction")
    parent: int | None = None
    question: str | None = None
    choice: str | None = None
    rationale: str | None = None
    alternatives: list[Alternative] | None = None
    confidence: float | None = None
    made_by: str | None = None
    checkpoint: int | None = None
    state: str | None = None
    superseded_by: SupersededBy | None = None
    created_at: str | None = None
    decision: int | None = None
    superseded: list[int] | None = None
    guidance: str | None = None
    by_itself: bool | None = None
    outcome: str | None = None
    created: str | None = None
    id: str | None = Field(default=None, description="of a sub-plan that is begun")
    parent_plan: str | None = None
    key: str | None = None
    goal: str | None = None
    name: str | None = None
    part: str | None = None
    phase: str | None = None
    needs: list[str] | None = None
    merged: bool | None = None
    why: str | None = None
    waits_for: str | None = None
    error: str | None = None
    status: str | None = None


class DiffLine(BaseModel):
    """A line, with its number before and after; masked, and cut where it is very long."""

    kind: Literal["context", "add", "remove"]
    old: int | None = Field(examples=[12])
    new: int | None = Field(examples=[12])
    text: str


class DiffHunk(BaseModel):
    """Lines that belong together."""

    header: str = Field(examples=["@@ -12,3 +12,5 @@ def export():"])
    old_start: int
    new_start: int
    lines: list[DiffLine]


class DiffFile(Change):
    """A file that the plan changed."""

    accepted: bool = Field(description="false: the review left it out")
    binary: bool
    hunks: list[DiffHunk]
    truncated: bool = Field(description="it is too large to be shown; the patch has it")


class Diff(BaseModel):
    """What a plan changed."""

    files: list[DiffFile]
    truncated: bool = Field(description="there is more than is shown; the patch has all of it")


class PlanFile(BaseModel):
    """One file that the plan changed, as it is on one side."""

    path: str = Field(examples=["src/export.py"])
    side: Literal["before", "after"]
    exists: bool
    mode: str | None = Field(examples=["100644"])
    size: int = Field(description="bytes")
    binary: bool
    encoding: Literal["utf-8", "base64"]
    content: str = Field(description="masked, if it is text")
    truncated: bool


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


class Spent(BaseModel):
    """What was taken; of money null where a price is not known."""

    usd: float | None = Field(examples=[0.0123])
    tokens: int = Field(examples=[34_567])
    steps: int = Field(description="calls of models", examples=[12])


class BudgetAccount(BaseModel):
    """What the whole tree of a plan may spend, and has spent."""

    plan: str = Field(description="the root of the tree")
    limits: Limits
    spent: Spent
    reserved: Spent = Field(description="held back for calls under way, at their worst case")
    models: list[str]


@router.get("/plans/{plan_id}/calls", operation_id="listPlanCalls")
def list_plan_calls(
    plan: ReadPlan, here: Here, limit: Limit = 100, after: AfterNumber = None
) -> Listing[Call]:
    """Lists a plan's tool calls, in order: its checkpoints and results."""
    parts = here.parts
    left = [call for call in parts.history.calls(plan.id) if call.number > int(after or 0)]
    items = [account_as(Call, call_fields(parts, call)) for call in left[:limit]]
    return Listing[Call](items=items, next=str(items[-1].number) if len(left) > limit else None)


@router.get("/plans/{plan_id}/calls/{number}", operation_id="getPlanCall")
def get_plan_call(plan: ReadPlan, number: Number, here: Here) -> Call:
    """Shows one call, and what it printed."""
    parts = here.parts
    call = next((one for one in parts.history.calls(plan.id) if one.number == number), None)
    if call is None:
        raise UnknownCheckpoint(plan.id, str(number))
    return account_as(Call, call_fields(parts, call))


@router.get("/plans/{plan_id}/decisions", operation_id="listPlanDecisions", response_model_exclude_unset=True)
def list_plan_decisions(
    plan: ReadPlan, here: Here, limit: Limit = 1000, after: AfterNumber = None
) -> Listing[InTree]:
    """Lists what was decided in a plan, superseded decisions included, then what was added to it, then its
    sub-plans. `parent` says what follows from what; `next` counts them."""
    parts = here.parts
    rows = decision_rows(parts, plan, superseded_too=True)
    begins = int(after or 0)
    items = [account_as(InTree, row) for row in rows[begins : begins + limit]]
    more = len(rows) > begins + limit
    return Listing[InTree](items=items, next=str(begins + limit) if more else None)


@router.get("/plans/{plan_id}/decisions/{number}", operation_id="explainPlanDecision")
def explain_plan_decision(plan: ReadPlan, number: Number, here: Here) -> ExplainedDecision:
    """Says why a plan decided as it did: the question, the choice, what else there was, what carries it
    out."""
    parts = here.parts
    if all(one.number != number for one in parts.thinking.decisions.of_plan(plan.id)):
        raise HTTPException(404, f"plan {plan.id} has no decision {number}")
    return account_as(ExplainedDecision, explained(parts, plan, number))


@router.get(
    "/plans/{plan_id}/diff",
    operation_id="diffPlan",
    response_model=Diff,
    responses={200: {"content": {_PATCH: {"schema": {"type": "string"}}}, "description": "the difference"}},
)
def diff_plan(
    plan: ReadPlan,
    here: Here,
    access: AnyUser,
    form: Annotated[
        Literal["json", "patch"], Query(alias="format", description="patch: what `git apply` takes")
    ] = "json",
) -> Diff | Response:
    """Shows what a plan changed: as it would be applied, and what the review left out.

    As JSON it is masked and bounded. The patch has what would be applied: to the byte for those who may apply
    it, operators; masked, and without binary contents and files of more than 256 KiB, for viewers.
    """
    parts = here.parts
    ensure_diffable(parts, plan)
    ensure_reachable(parts, plan)
    if form == "patch":
        # guard: who may not apply it needs no secret of it
        masked = not access.user.may(Role.OPERATOR, plan.project)
        return Response(patch_of(parts, plan, masked=masked), media_type=_PATCH)
    return account_as(Diff, diff_of(parts, plan))


@router.get("/plans/{plan_id}/files", operation_id="readPlanFile")
def read_plan_file(
    plan: ReadPlan,
    here: Here,
    path: Annotated[str, Query(min_length=1, max_length=4096, examples=["src/export.py"])],
    side: Literal["before", "after"] = "after",
) -> PlanFile:
    """Shows one of the files that a plan changed, before or after. No other file can be read here."""
    parts = here.parts
    ensure_diffable(parts, plan)
    ensure_reachable(parts, plan)
    found = file_of(parts, plan, path, after=side == "after")
    if found is None:
        raise HTTPException(404, f"plan {plan.id} changed no such file; its diff shows which")
    return account_as(PlanFile, found)


@router.get("/plans/{plan_id}/graph", operation_id="getPlanGraph")
def get_plan_graph(plan: ReadPlan, here: Here) -> PlanGraphs:
    """Shows the graphs of the plan's actors, and which of their nodes are at work, as far as that is
    known."""
    parts = here.parts
    return account_as(PlanGraphs, {"actors": graphs_of(parts, plan)})


@router.get("/plans/{plan_id}/budget", operation_id="getPlanBudget")
def get_plan_budget(plan: ReadPlan, here: Here) -> BudgetAccount:
    """Shows what the whole tree of the plan may spend, has spent, and holds back for calls under way."""
    parts = here.parts
    return account_as(BudgetAccount, budget_of(parts, plan))
