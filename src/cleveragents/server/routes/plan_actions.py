"""Routes that act on a plan: resume, cancel, approve, answer, review, correct, apply, undo, discard."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import Field, model_validator

from cleveragents.api.jobs import JobView
from cleveragents.api.plans.views import BudgetView, CorrectionPreview, PlanView
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import RequestRefused
from cleveragents.server.access import PlanOperator
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.parameters import PlanId, StrictBody
from cleveragents.server.routes.plans import NewLimits, ToBranch

__all__ = ["router"]

router = APIRouter(tags=["plans"])

_Message = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=10_000,
        pattern=r"\S",
        description="commits it with this message; null changes files only",
        examples=["Add a --json flag"],
    ),
]


_Version = Annotated[
    int | None, Field(ge=0, description="refuse it unless the plan is still at this version", examples=[7])
]
_File = Annotated[str, Field(min_length=1, max_length=4096, examples=["src/generated.py"])]
_Files = Annotated[list[_File], Field(max_length=10_000)]
_Changesets = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Z]+$")]], Field(max_length=10_000)
]


class CancelBody(StrictBody):
    """Why a plan is stopped."""

    reason: str = Field(
        default="cancelled by the user", min_length=1, max_length=500, examples=["wrong branch"]
    )
    discard: bool = Field(
        default=False, description="drop the result of a plan that is done", examples=[False]
    )


class ResumeBody(StrictBody):
    """How a plan goes on."""

    model: str | None = Field(default=None, max_length=200, pattern=r"\S", description="from now on")
    limits: NewLimits | None = Field(default=None, description="more than it may spend by now, in all")


class CallResponseBody(StrictBody):
    """Which call is meant."""

    call: int | None = Field(
        default=None,
        ge=1,
        le=10**9,
        description="only if that call asks; needed once another call of the plan was answered",
        examples=[3],
    )


class ReplyBody(StrictBody):
    """What is said to an actor that asks."""

    text: str = Field(
        min_length=1, max_length=20_000, pattern=r"\S", examples=["keep the old flag as an alias"]
    )
    question: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="which one: `waiting_for.question`; if it asks another by now, nothing is answered",
        examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"],
    )
    first: bool = Field(
        default=False,
        description="instead of `question`: answers the pending question if the plan never waited before",
    )

    @model_validator(mode="after")
    def _names_a_question(self) -> Self:
        if self.question is None and not self.first:  # guard: an answer is to the question that was read
            raise ValueError("name the `question` that is answered, or say that it is the `first`")
        return self


class CommitBody(StrictBody):
    """Whether it is committed, too."""

    commit: _Message = None


class ApplyBody(CommitBody):
    """Whether it is committed, too, and where it is pushed to."""

    to_branch: ToBranch = None
    unattended: bool = Field(
        default=False, description="refuse it if the plan's profile leaves applying to a person"
    )
    version: _Version = None


class DiscardBody(StrictBody):
    """Which version of the plan is discarded."""

    version: _Version = None


class ReviewBody(StrictBody):
    """Files or directories, as the diff shows them, and changesets, as calls name them; what is in no list
    stays as it was."""

    accept: _Files = Field(default=[])
    reject: _Files = Field(default=[])
    accept_changesets: _Changesets = Field(default=[])
    reject_changesets: _Changesets = Field(default=[])


class RollbackBody(StrictBody):
    """Where to go back to: the number of a call, which with all later ones counts as not made."""

    checkpoint: int = Field(ge=1, le=10**9, examples=[3])
    discard: bool = Field(default=False, description="files that were edited by hand, too")


class ResolveBody(StrictBody):
    """Which side is right at a path."""

    path: _File
    take: Take = Field(
        description="ours: the plan's; theirs: the sub-plan's; edited: as it is in the sandbox"
    )


class CorrectBody(StrictBody):
    """What was decided wrongly, and what is wanted instead."""

    decision: int | None = Field(
        default=None, ge=1, le=10**9, description="null: nothing is undone, and the guidance is heeded"
    )
    guidance: str = Field(default="", max_length=20_000, examples=["Keep the old name as an alias"])
    dry_run: bool = Field(default=False, description="only say what would be superseded and undone")
    model: str | None = Field(default=None, max_length=200, pattern=r"\S", description="from now on")


@router.post("/plans/{plan_id}/cancel", operation_id="cancelPlan")
def cancel_plan(plan_id: PlanId, client: PlanOperator, body: CancelBody | None = None) -> PlanView:
    """Stops a plan, its sub-plans and all their processes, wherever they run.

    While a worker runs it, `state` stays that of a running plan until its processes are gone. A plan with a
    result is not cancelled (409), unless `discard` says to drop that.
    """
    asked = body or CancelBody()
    return client.plans.cancel(plan_id, reason=asked.reason, discard=asked.discard)


@router.delete("/plans/{plan_id}/sandbox", status_code=204, operation_id="removePlanSandbox")
def remove_plan_sandbox(plan_id: PlanId, client: PlanOperator) -> None:
    """Removes the sandboxes of a cancelled plan and its sub-plans. A sandbox on another machine is not
    removed (409)."""
    client.plans.remove_sandbox(plan_id)


@router.post("/plans/{plan_id}/resume", operation_id="resumePlan")
def resume_plan(plan_id: PlanId, client: PlanOperator, body: ResumeBody | None = None) -> PlanView:
    """Continues a plan that failed or was interrupted; finished calls are not repeated."""
    asked = body or ResumeBody()
    return client.plans.resume(plan_id, model=asked.model, limits=(asked.limits or NewLimits()).limits())


@router.post("/plans/{plan_id}/approve", operation_id="approvePlan")
def approve_plan(plan_id: PlanId, client: PlanOperator, body: CallResponseBody | None = None) -> PlanView:
    """Approves the pending request and continues the plan."""
    return client.plans.approve(plan_id, call=(body or CallResponseBody()).call)


@router.post("/plans/{plan_id}/deny", operation_id="denyPlan")
def deny_plan(plan_id: PlanId, client: PlanOperator, body: CallResponseBody | None = None) -> PlanView:
    """Denies the pending request. An actor tries something else; a plan of plain steps fails."""
    return client.plans.deny(plan_id, call=(body or CallResponseBody()).call)


@router.post("/plans/{plan_id}/answer", operation_id="answerPlan")
def answer_plan(plan_id: PlanId, body: ReplyBody, client: PlanOperator) -> PlanView:
    """Answers an actor's question and continues the plan. If another question is pending by now, nothing is
    answered (409)."""
    return client.plans.answer(plan_id, body.text, question=body.question, first=body.first)


@router.post("/plans/{plan_id}/review", operation_id="reviewPlan")
def review_plan(plan_id: PlanId, body: ReviewBody, client: PlanOperator) -> PlanView:
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
def roll_back_plan(plan_id: PlanId, body: RollbackBody, client: PlanOperator) -> PlanView:
    """Rolls a plan's sandbox back to a checkpoint: the call of that number and all later ones are undone."""
    return client.plans.rollback(plan_id, body.checkpoint, discard=body.discard)


@router.post("/plans/{plan_id}/reread", operation_id="rereadPlan")
def reread_plan(plan_id: PlanId, client: PlanOperator) -> PlanView:
    """Records edits made by hand in a plan's sandbox, on the machine of the server, as one more call."""
    return client.plans.capture(plan_id)


@router.post("/plans/{plan_id}/resolve", operation_id="resolvePlanConflict")
def resolve_plan_conflict(plan_id: PlanId, body: ResolveBody, client: PlanOperator) -> PlanView:
    """Resolves a conflict between sub-plans. When none is left, a resume continues the plan."""
    return client.plans.resolve(plan_id, body.path, body.take)


@router.post("/plans/{plan_id}/correct", operation_id="correctPlan")
def correct_plan(
    plan_id: PlanId, body: CorrectBody, client: PlanOperator, claim: Claimed
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


@router.post("/plans/{plan_id}/apply", status_code=202, operation_id="applyPlan")
def apply_plan(plan_id: PlanId, client: PlanOperator, body: ApplyBody | None = None) -> JobView:
    """Applies a plan's result to the repository: merged with the present files, all of it or nothing.

    A worker does it; the answer is its job. Required checks run first, on the merged result. The plan's
    `state` and `error` say what prevented it.
    """
    asked = body or ApplyBody()
    return client.plans.submit_apply(
        plan_id,
        commit=asked.commit,
        to_branch=asked.to_branch,
        unattended=asked.unattended,
        version=asked.version,
    )


@router.post("/plans/{plan_id}/undo", status_code=202, operation_id="undoPlan")
def undo_plan(plan_id: PlanId, client: PlanOperator, body: CommitBody | None = None) -> JobView:
    """Takes an applied plan out of the repository again; later edits stay.

    A worker does it; the answer is its job. A plan that could not be undone stays applied, and the job says
    why.
    """
    return client.plans.submit_undo(plan_id, commit=(body or CommitBody()).commit)


@router.post("/plans/{plan_id}/reject", operation_id="rejectPlan")
def reject_plan(plan_id: PlanId, client: PlanOperator, body: DiscardBody | None = None) -> PlanView:
    """Discards a plan's result. The repository is not touched."""
    return client.plans.discard(plan_id, version=(body or DiscardBody()).version)


@router.post("/plans/{plan_id}/budget", operation_id="raisePlanBudget")
def raise_plan_budget(plan_id: PlanId, body: NewLimits, client: PlanOperator) -> BudgetView:
    """Raises the limits of a plan and all that shares its budget. A plan that waits for budget continues; a
    running plan uses the new limits from its next model call.

    A limit is a total: one below the present limit is refused. What is left out stays.
    """
    return client.plans.raise_budget(plan_id, body.limits())
