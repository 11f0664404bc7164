"""What a plan changed, and which of it counts: reviewed, rolled back, resolved, corrected."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents.api.model_choice import ensure_model_fits
from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.corrections import undoing_fields
from cleveragents.api.plans.deciding import ensure_shared
from cleveragents.api.plans.overview import overview_of
from cleveragents.api.plans.reviewing import ensure_reviewable, review_files
from cleveragents.api.reach import ensure_reachable
from cleveragents.app.merge_parts import conflicts_by_hand
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import RequestRefused
from cleveragents.models.model.budget import Limits
from cleveragents.plans.model.plan import Plan
from cleveragents.server.access import OperatedPlan
from cleveragents.server.accounts import account_as
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.plan_models import PlanAccount, Strict
from cleveragents.server.routes.plan_deciding import TURNS
from cleveragents.server.service import Here, Service
from cleveragents.storage.answers import Claim

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


class DecisionInShort(BaseModel):
    """A decision that would no longer hold."""

    number: int
    question: str
    choice: str


class CorrectionPreview(BaseModel):
    """What a correction would supersede and undo."""

    plan: str
    decision: int
    superseded: list[DecisionInShort]
    checkpoint: int | None = Field(description="null: nothing was done for it yet")
    calls: int
    steps: list[str]
    files: list[str]
    edits_lost: list[str] = Field(description="files edited by hand that are undone with it")
    edits_kept: list[str]
    sub_plans: list[str] = Field(description="those that are cancelled")
    sub_plans_kept: list[str]


@router.post("/plans/{plan_id}/review", operation_id="reviewPlan")
def review_plan(plan: OperatedPlan, body: Reviewing, here: Here) -> PlanAccount:
    """Leaves files and changesets of a plan out before it is applied, or takes them in again.

    A directory stands for all that was changed below it. If one of the names is none of a changed file, or of
    a changeset, nothing is reviewed.
    """
    verdicts = [(path, False) for path in body.reject] + [(path, True) for path in body.accept]
    changesets = [(one, False) for one in body.reject_changesets]
    changesets += [(one, True) for one in body.accept_changesets]
    if not verdicts and not changesets:
        raise RequestRefused("name files or changesets to accept or to reject")
    parts = here.parts
    with TURNS.of(plan.id):
        plan = found_plan(parts, plan.id)
        ensure_reviewable(parts, plan)
        review_files(parts, plan, verdicts, changesets)
        return _account(here, plan)


@router.post("/plans/{plan_id}/rollback", operation_id="rollBackPlan")
def roll_back_plan(plan: OperatedPlan, body: RollingBack, here: Here) -> PlanAccount:
    """Takes a plan's sandbox back to a checkpoint; the repository is not touched. A resume makes the calls
    from there on again."""
    parts = here.parts
    with TURNS.of(plan.id):
        plan = found_plan(parts, plan.id)
        ensure_reachable(parts, plan)
        parts.rewriting.rollback(plan, body.checkpoint, discard=body.discard)
        return _account(here, plan)


@router.post("/plans/{plan_id}/reread", operation_id="rereadPlan")
def reread_plan(plan: OperatedPlan, here: Here) -> PlanAccount:
    """Takes in what somebody edited in a plan's sandbox, on the machine of the server, as one more call.
    Where nothing was edited, nothing is changed."""
    parts = here.parts
    with TURNS.of(plan.id):
        plan = found_plan(parts, plan.id)
        ensure_reachable(parts, plan)
        parts.rewriting.reread(plan)
        return _account(here, plan)


@router.post("/plans/{plan_id}/resolve", operation_id="resolvePlanConflict")
def resolve_plan_conflict(plan: OperatedPlan, body: Resolving, here: Here) -> PlanAccount:
    """Says what is to become of a conflict in a plan whose sub-plans disagree. When none is left, a resume
    goes on."""
    parts = here.parts
    with TURNS.of(plan.id):
        plan = found_plan(parts, plan.id)
        ensure_reachable(parts, plan)
        conflicts_by_hand(here.container).resolve(plan, body.path, body.take)
        return _account(here, plan)


@router.post("/plans/{plan_id}/correct", operation_id="correctPlan")
def correct_plan(
    plan: OperatedPlan, body: Correcting, here: Here, claim: Claimed
) -> PlanAccount | CorrectionPreview:
    """Corrects a decision: it and all that followed from it no longer hold, what was done for them is undone,
    and the plan is thought through again from there, with that guidance. A plan that runs is stopped first.

    With `dry_run` it only says what would be undone.
    """
    parts = here.parts
    if not body.guidance.strip() and not body.dry_run:
        raise RequestRefused("say as guidance what is wanted instead", "guidance")
    if body.dry_run and body.decision is None:
        raise RequestRefused(
            "guidance that corrects no decision undoes nothing; there is nothing to try", "decision"
        )
    with TURNS.of(plan.id):
        parts.apply.settle()
        plan = found_plan(parts, plan.id)
        if claim is not None and claim.made is not None:  # guard: what was corrected is not corrected again
            return _account(here, parts.correction.gone_on_with(plan, body.model))
        parts.correction.ensure_correctable(plan)
        ensure_reachable(parts, plan)
        if body.dry_run and body.decision is not None:
            undoing = parts.correction.preview(plan, body.decision)
            return account_as(CorrectionPreview, undoing_fields(plan, undoing))
        ensure_shared(parts, plan)
        if body.model is not None:
            ensure_model_fits(parts, plan, body.model, Limits())
        return _account(here, _corrected(here, plan, body, claim))


def _corrected(here: Service, plan: Plan, body: Correcting, claim: Claim | None) -> Plan:
    correction = here.parts.correction
    if body.decision is None:
        return correction.append(plan, body.guidance, model=body.model, claim=claim)[1]
    return correction.correct(plan, body.decision, body.guidance, model=body.model, claim=claim)[1]


def _account(here: Service, plan: Plan) -> PlanAccount:
    parts = here.parts
    return account_as(PlanAccount, overview_of(parts, found_plan(parts, plan.id)))
