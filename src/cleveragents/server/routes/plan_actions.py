"""Routes of the actions on a plan: resume, cancel, approve, answer, review, comment, correct, apply …"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter
from pydantic import Field, model_validator

from cleveragents.api.jobs import JobView
from cleveragents.api.plans.client import ApprovalScope
from cleveragents.api.plans.detail_views import BudgetView, CommentState, CommentView, CorrectionPreview
from cleveragents.api.plans.views import PlanView
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import RequestRefused
from cleveragents.server.access import PlanOperator
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.parameters import PlanId, StrictBody
from cleveragents.server.routes.plan_views import Number
from cleveragents.server.routes.plans import NewLimits, ToBranch

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["plans"])

_Message = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=10_000,
        pattern=r"\S",
        description="commit with this message; null: change files only",
        examples=["Add a --json flag"],
    ),
]


_Version = Annotated[
    int | None, Field(ge=0, description="refuse unless the plan is still at this version", examples=[7])
]
_Tree = Annotated[
    str | None,
    Field(
        max_length=64,
        description="refuse unless the result is still this one, as in `tree` of the plan or diff",
        examples=["4b825dc642cb6eb9a060e54bf8d69288fbee4904"],
    ),
]
_File = Annotated[str, Field(min_length=1, max_length=4096, examples=["src/generated.py"])]
_Files = Annotated[list[_File], Field(max_length=10_000)]
_Changesets = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Z]+$")]], Field(max_length=10_000)
]


_Hunks = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9a-f]+$")]], Field(max_length=10_000)
]


class CancelBody(StrictBody):
    """The reason of a cancel."""

    reason: str = Field(
        default="cancelled by the user", min_length=1, max_length=500, examples=["wrong branch"]
    )
    discard: bool = Field(
        default=False, description="also drop the result of a finished plan", examples=[False]
    )


class ResumeBody(StrictBody):
    """Options of a resume."""

    model: str | None = Field(
        default=None, max_length=200, pattern=r"\S", description="the model to continue with"
    )
    limits: NewLimits | None = Field(default=None, description="new total limits, above the current ones")


class CallResponseBody(StrictBody):
    """The call to approve or deny."""

    call: int | None = Field(
        default=None,
        ge=1,
        le=10**9,
        description="the pending call; required after an earlier call of the plan was answered",
        examples=[3],
    )


class ApprovalBody(CallResponseBody):
    """The call to approve, and how long the approval lasts."""

    scope: ApprovalScope = Field(
        default="once",
        description=(
            "`plan`: also approve later matching commands of the plan; `project`: also those of its project"
        ),
        examples=["once"],
    )
    pattern: str | None = Field(
        default=None,
        min_length=1,
        max_length=4_000,
        description="the rule for later commands; default: `approval.pattern` of the plan",
        examples=[None],
    )


class DenialBody(CallResponseBody):
    """The call to deny, and why."""

    reason: str | None = Field(
        default=None,
        max_length=2_000,
        description="the reason, for the agent",
        examples=["use `make test` instead"],
    )


class ReplyBody(StrictBody):
    """The answer to a question."""

    text: str = Field(
        min_length=1, max_length=20_000, pattern=r"\S", examples=["keep the old flag as an alias"]
    )
    question: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="`waiting_for.question` of the plan; refused if another question is pending now",
        examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"],
    )
    first: bool = Field(
        default=False,
        description="instead of `question`: answer the pending question if it is the first one of the plan",
    )

    @model_validator(mode="after")
    def _names_a_question(self) -> Self:
        if self.question is None and not self.first:  # guard: an answer names the question that was read
            raise ValueError("missing `question`: name the question, or set `first`")
        return self


class CommitBody(StrictBody):
    """Options of an undo: the commit."""

    commit: _Message = None


class ApplyBody(CommitBody):
    """Options of an apply: the commit and the branch to push to."""

    to_branch: ToBranch = None
    unattended: bool = Field(
        default=False,
        description="refuse if only a person may apply it: the plan is for review, its profile requires "
        "approval, or its reviewer rejected the result",
    )
    version: _Version = None
    tree: _Tree = None


class DiscardBody(StrictBody):
    """The version of the plan to discard."""

    version: _Version = None


class ReviewBody(StrictBody):
    """Files, directories, changesets and hunks to accept or leave out. Others keep their verdict."""

    accept: _Files = Field(default=[])
    reject: _Files = Field(default=[])
    accept_changesets: _Changesets = Field(default=[])
    reject_changesets: _Changesets = Field(default=[])
    accept_hunks: _Hunks = Field(default=[], description="`id` of hunks in the diff")
    reject_hunks: _Hunks = Field(default=[])


class RollbackBody(StrictBody):
    """The checkpoint to roll back to: the number of the first call to undo; or `withdraw`, to withdraw a
    revision.
    """

    checkpoint: int | None = Field(default=None, ge=1, le=10**9, examples=[3])
    withdraw: bool = Field(default=False, description="return to the result from before a revision")
    discard: bool = Field(default=False, description="discard edits made by hand instead of refusing")
    version: _Version = None

    @model_validator(mode="after")
    def _names_a_target(self) -> Self:
        if (self.checkpoint is None) is not self.withdraw:  # guard: an empty request reverts nothing
            raise ValueError("name either `checkpoint` or `withdraw`")
        return self


class ResolveBody(StrictBody):
    """The side to take for a path."""

    path: _File
    take: Take = Field(
        description=(
            "ours: the plan's side; theirs: the side of the sub-plan or the repository; edited: the "
            "file in the sandbox"
        )
    )
    version: _Version = None
    tree: _Tree = None


class CorrectBody(StrictBody):
    """The decision to correct, and the guidance."""

    decision: int | None = Field(
        default=None, ge=1, le=10**9, description="null: add the guidance without undoing anything"
    )
    guidance: str = Field(default="", max_length=20_000, examples=["Keep the old name as an alias"])
    dry_run: bool = Field(default=False, description="only return what would be superseded and undone")
    model: str | None = Field(
        default=None, max_length=200, pattern=r"\S", description="the model to continue with"
    )


class CommentBody(StrictBody):
    """A comment on a plan, or on lines of its result."""

    text: str = Field(
        min_length=1, max_length=10_000, pattern=r"\S", examples=["Keep the old name as an alias."]
    )
    path: _File | None = Field(default=None, description="null for a comment on the whole plan")
    line: int | None = Field(
        default=None, ge=1, le=10**9, description="the first line; required with a path", examples=[3]
    )
    end_line: int | None = Field(
        default=None, ge=1, le=10**9, description="the last line; default: `line`", examples=[5]
    )
    side: Literal["before", "after"] = Field(
        default="after", description="the file that has the lines: before the plan changed it, or the result"
    )
    blob: str | None = Field(
        default=None,
        max_length=64,
        description="refuse unless the file is still `blob_before` or `blob_after` of the diff that you saw",
        examples=["9daeafb9864cf43055ae93beb0afd6c7d144bfa4"],
    )


class CommentAnswerBody(StrictBody):
    """The new state of a comment."""

    state: CommentState
    reason: str = Field(default="", max_length=10_000, examples=["Out of scope."])


class ReviseBody(StrictBody):
    """A message for the executor besides the comments, and the model."""

    message: str = Field(default="", max_length=20_000, examples=["Keep the public API as it is."])
    model: str | None = Field(
        default=None, max_length=200, pattern=r"\S", description="the model to continue with"
    )


@router.post("/plans/{plan_id}/pause", operation_id="pausePlan")
def pause_plan(plan_id: PlanId, client: PlanOperator) -> PlanView:
    """Stop a running plan, its sub-plans and all their processes, so that it can be resumed or corrected.

    While a worker runs the plan, `state` does not change until its processes have ended. Then `status` is
    `paused`. Only the plan at the top of a tree can be paused (409).
    """
    return client.plans.pause(plan_id)


@router.post("/plans/{plan_id}/cancel", operation_id="cancelPlan")
def cancel_plan(plan_id: PlanId, client: PlanOperator, body: CancelBody | None = None) -> PlanView:
    """Cancel a plan, its sub-plans and all their processes, on any machine.

    While a worker runs the plan, `state` does not change until its processes have ended. A plan with a result
    is not cancelled (409) unless `discard` is true.
    """
    asked = body or CancelBody()
    return client.plans.cancel(plan_id, reason=asked.reason, discard=asked.discard)


@router.delete("/plans/{plan_id}/sandbox", status_code=204, operation_id="removePlanSandbox")
def remove_plan_sandbox(plan_id: PlanId, client: PlanOperator) -> None:
    """Remove the sandboxes of a cancelled plan and its sub-plans. A sandbox on another machine is not removed
    (409).
    """
    client.plans.remove_sandbox(plan_id)


@router.post("/plans/{plan_id}/resume", operation_id="resumePlan")
def resume_plan(plan_id: PlanId, client: PlanOperator, body: ResumeBody | None = None) -> PlanView:
    """Resume a plan that failed or was interrupted. Finished calls are not repeated."""
    asked = body or ResumeBody()
    return client.plans.resume(plan_id, model=asked.model, limits=(asked.limits or NewLimits()).limits())


@router.post("/plans/{plan_id}/approve", operation_id="approvePlan")
def approve_plan(plan_id: PlanId, client: PlanOperator, body: ApprovalBody | None = None) -> PlanView:
    """Approve the pending request and continue the plan.

    With the scope `plan` or `project`, later commands that match the pattern run without approval, if they
    are isolated. `approval` of the plan lists the possible scopes and the pattern.
    """
    asked = body or ApprovalBody()
    return client.plans.approve(plan_id, call=asked.call, scope=asked.scope, pattern=asked.pattern)


@router.post("/plans/{plan_id}/deny", operation_id="denyPlan")
def deny_plan(plan_id: PlanId, client: PlanOperator, body: DenialBody | None = None) -> PlanView:
    """Deny the pending request. An agent reads the reason and looks for another way; a plan of fixed steps
    fails.
    """
    asked = body or DenialBody()
    return client.plans.deny(plan_id, call=asked.call, reason=asked.reason)


@router.post("/plans/{plan_id}/answer", operation_id="answerPlan")
def answer_plan(plan_id: PlanId, body: ReplyBody, client: PlanOperator) -> PlanView:
    """Answer the pending question and continue the plan. If the body names another question than the pending
    one, nothing is answered (409).
    """
    return client.plans.answer(plan_id, body.text, question=body.question, first=body.first)


@router.post("/plans/{plan_id}/review", operation_id="reviewPlan")
def review_plan(plan_id: PlanId, body: ReviewBody, client: PlanOperator) -> PlanView:
    """Leave files, changesets and hunks out of the result, or accept them again.

    A directory stands for all changed files below it. A hunk is named by its `id` in the diff, and its
    verdict lapses when its file changes. If the hunk was left out, the result cannot be applied until there
    is a new verdict on its lines or its file. If a name matches nothing now, nothing is reviewed.
    """
    return client.plans.review(
        plan_id,
        accept=body.accept,
        reject=body.reject,
        accept_changesets=body.accept_changesets,
        reject_changesets=body.reject_changesets,
        accept_hunks=body.accept_hunks,
        reject_hunks=body.reject_hunks,
    )


@router.post("/plans/{plan_id}/rollback", operation_id="rollBackPlan")
def roll_back_plan(plan_id: PlanId, body: RollbackBody, client: PlanOperator) -> PlanView:
    """Roll the sandbox of a plan back to a checkpoint: undo the call of that number and all later calls.

    With `withdraw`, withdraw a revision that failed or did not pass the required checks: the result from
    before it is ready again.
    """
    return client.plans.rollback(plan_id, body.checkpoint, discard=body.discard, version=body.version)


@router.post("/plans/{plan_id}/reread", operation_id="rereadPlan")
def reread_plan(plan_id: PlanId, client: PlanOperator) -> PlanView:
    """Record edits made by hand in a plan's sandbox, on the server's machine, as one more call."""
    return client.plans.capture(plan_id)


@router.post("/plans/{plan_id}/resolve", operation_id="resolvePlanConflict")
def resolve_plan_conflict(plan_id: PlanId, body: ResolveBody, client: PlanOperator) -> PlanView:
    """Resolve a conflict between sub-plans, or with the repository. Once all are resolved, resume the plan;
    if its status is `blocked`, apply it.
    """
    return client.plans.resolve(plan_id, body.path, body.take, version=body.version, tree=body.tree)


@router.post("/plans/{plan_id}/rebase", operation_id="rebasePlan")
def rebase_plan(plan_id: PlanId, client: PlanOperator) -> PlanView:
    """Merge the result of a plan with the current files of the repository, in the plan's sandbox.

    The plan continues: its agent resolves conflicts, and its checks run again. The repository is not touched.
    If the repository has not changed since, the plan stays as it is, with the same `version`.
    """
    return client.plans.rebase(plan_id)


@router.post("/plans/{plan_id}/correct", operation_id="correctPlan")
def correct_plan(
    plan_id: PlanId, body: CorrectBody, client: PlanOperator, claim: Claimed
) -> PlanView | CorrectionPreview:
    """Correct a decision and continue the plan with the guidance.

    The decision and all that followed from it are superseded, and their work is undone. A running plan is
    stopped first. With `dry_run`, only return the effects of the correction.
    """
    if not body.dry_run:
        return client.plans.correct(
            plan_id, body.guidance, decision=body.decision, model=body.model, claim=claim
        )
    if body.decision is None:
        raise RequestRefused("dry_run needs a decision: guidance alone undoes nothing", "decision")
    return client.plans.preview_correction(plan_id, body.decision)


@router.post("/plans/{plan_id}/comments", status_code=201, operation_id="commentOnPlan")
def comment_on_plan(plan_id: PlanId, body: CommentBody, client: PlanOperator, claim: Claimed) -> CommentView:
    """Comment on a plan, or on lines of a file that it changed.

    Line numbers refer to the result, or to the file before the change. The comment stores the text of its
    lines. If the file changes, the comment follows its lines, or becomes outdated. A comment with the
    `blob` of a file that has changed since is refused (409).
    """
    return client.plans.comment(
        plan_id,
        body.text,
        path=body.path,
        line=body.line,
        end_line=body.end_line,
        side=body.side,
        blob=body.blob,
        claim=claim,
    )


@router.post("/plans/{plan_id}/comments/{number}", operation_id="answerPlanComment")
def answer_plan_comment(
    plan_id: PlanId, number: Number, body: CommentAnswerBody, client: PlanOperator
) -> CommentView:
    """Resolve, decline or reopen a comment."""
    return client.plans.answer_comment(plan_id, number, body.state, reason=body.reason)


@router.post("/plans/{plan_id}/revise", operation_id="revisePlan")
def revise_plan(
    plan_id: PlanId, client: PlanOperator, claim: Claimed, body: ReviseBody | None = None
) -> PlanView:
    """Request changes: send all open comments to the executor and continue the plan in the same sandbox.

    The executor answers each comment. A comment without an answer stays open.
    """
    asked = body or ReviseBody()
    return client.plans.revise(plan_id, asked.message, model=asked.model, claim=claim)


@router.post("/plans/{plan_id}/apply", status_code=202, operation_id="applyPlan")
def apply_plan(plan_id: PlanId, client: PlanOperator, body: ApplyBody | None = None) -> JobView:
    """Apply the result of a plan to the repository: all changes or none.

    A worker applies the result, and the response is its job. The result is merged into the current files, and
    required checks run on the merged result first. If the result cannot be applied, `state` and `error` of
    the plan have the reason.
    """
    asked = body or ApplyBody()
    return client.plans.submit_apply(
        plan_id,
        commit=asked.commit,
        to_branch=asked.to_branch,
        unattended=asked.unattended,
        version=asked.version,
        tree=asked.tree,
    )


@router.post("/plans/{plan_id}/undo", status_code=202, operation_id="undoPlan")
def undo_plan(plan_id: PlanId, client: PlanOperator, body: CommitBody | None = None) -> JobView:
    """Undo an applied plan in the repository. Later edits stay.

    A worker undoes the plan, and the response is its job. If the plan cannot be undone, it stays applied, and
    the job has the reason.
    """
    return client.plans.submit_undo(plan_id, commit=(body or CommitBody()).commit)


@router.post("/plans/{plan_id}/reject", operation_id="rejectPlan")
def reject_plan(plan_id: PlanId, client: PlanOperator, body: DiscardBody | None = None) -> PlanView:
    """Discard the result of a plan. The repository is not touched."""
    return client.plans.discard(plan_id, version=(body or DiscardBody()).version)


@router.post("/plans/{plan_id}/budget", operation_id="raisePlanBudget")
def raise_plan_budget(plan_id: PlanId, body: NewLimits, client: PlanOperator) -> BudgetView:
    """Raise the limits of a plan and of all plans that share its budget.

    A plan that waits for budget continues; a running plan uses the new limits from its next model call. A
    limit is a total; one below the current limit is refused. Omitted limits stay.
    """
    return client.plans.raise_budget(plan_id, body.limits())
