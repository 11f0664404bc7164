"""Routes that change a plan's result: review, rollback, capture, resolve, correct."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from cleveragents.api.plans.views import CorrectionPreview, PlanView
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import RequestRefused
from cleveragents.server.access import PlanOperator
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.plan_models import PlanId, Strict

__all__ = ["router"]

router = APIRouter(tags=["plans"])

_File = Annotated[str, Field(min_length=1, max_length=4096, examples=["src/generated.py"])]
_Files = Annotated[list[_File], Field(max_length=10_000)]
_Changesets = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Z]+$")]], Field(max_length=10_000)
]


class Reviewing(Strict):
    """Files or directories, as the diff shows them, and changesets, as calls name them; what is in no list
    stays as it was."""

    accept: _Files = Field(default=[])
    reject: _Files = Field(default=[])
    accept_changesets: _Changesets = Field(default=[])
    reject_changesets: _Changesets = Field(default=[])


class RollingBack(Strict):
    """Where to go back to: the number of a call, which with all later ones counts as not made."""

    checkpoint: int = Field(ge=1, le=10**9, examples=[3])
    discard: bool = Field(default=False, description="files that were edited by hand, too")


class Resolving(Strict):
    """Which side is right at a path."""

    path: _File
    take: Take = Field(
        description="ours: the plan's; theirs: the sub-plan's; edited: as it is in the sandbox"
    )


class Correcting(Strict):
    """What was decided wrongly, and what is wanted instead."""

    decision: int | None = Field(
        default=None, ge=1, le=10**9, description="null: nothing is undone, and the guidance is heeded"
    )
    guidance: str = Field(default="", max_length=20_000, examples=["Keep the old name as an alias"])
    dry_run: bool = Field(default=False, description="only say what would be superseded and undone")
    model: str | None = Field(default=None, max_length=200, pattern=r"\S", description="from now on")


@router.post("/plans/{plan_id}/review", operation_id="reviewPlan")
def review_plan(plan_id: PlanId, body: Reviewing, client: PlanOperator) -> PlanView:
    """Leaves files and changesets of a plan out before it is applied, or takes them in again.

    A directory stands for all changed files below it. If a name matches no changed file or changeset, nothing
    is reviewed.
    """
    return client.plans.review(
        plan_id,
        accept=body.accept,
        reject=body.reject,
        accept_changesets=body.accept_changesets,
        reject_changesets=body.reject_changesets,
    )


@router.post("/plans/{plan_id}/rollback", operation_id="rollBackPlan")
def roll_back_plan(plan_id: PlanId, body: RollingBack, client: PlanOperator) -> PlanView:
    """Rolls a plan's sandbox back to a checkpoint: the call of that number and all later ones are undone."""
    return client.plans.rollback(plan_id, body.checkpoint, discard=body.discard)


@router.post("/plans/{plan_id}/reread", operation_id="rereadPlan")
def reread_plan(plan_id: PlanId, client: PlanOperator) -> PlanView:
    """Records edits made by hand in a plan's sandbox, on the machine of the server, as one more call."""
    return client.plans.capture(plan_id)


@router.post("/plans/{plan_id}/resolve", operation_id="resolvePlanConflict")
def resolve_plan_conflict(plan_id: PlanId, body: Resolving, client: PlanOperator) -> PlanView:
    """Resolves a conflict between sub-plans. When none is left, a resume continues the plan."""
    return client.plans.resolve(plan_id, body.path, body.take)


@router.post("/plans/{plan_id}/correct", operation_id="correctPlan")
def correct_plan(
    plan_id: PlanId, body: Correcting, client: PlanOperator, claim: Claimed
) -> PlanView | CorrectionPreview:
    """Corrects a decision: it and all that followed from it are superseded, their work is undone, and the
    plan continues from there with the guidance. A running plan is stopped first.

    With `dry_run` the answer is what would be undone.
    """
    if not body.dry_run:
        return client.plans.correct(
            plan_id, body.guidance, decision=body.decision, model=body.model, claim=claim
        )
    if body.decision is None:
        raise RequestRefused(
            "guidance that corrects no decision undoes nothing; there is nothing to try", "decision"
        )
    return client.plans.preview_correction(plan_id, body.decision)
