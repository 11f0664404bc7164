"""Routes of decisions about a plan: approve, resume, cancel, apply, undo, reject."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import Field, model_validator

from cleveragents.api.jobs import JobView
from cleveragents.api.plans.views import BudgetView, PlanView
from cleveragents.server.access import PlanOperator
from cleveragents.server.plan_models import PlanId, Strict
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


class Cancelling(Strict):
    """Why a plan is stopped."""

    reason: str = Field(
        default="cancelled by the user", min_length=1, max_length=500, examples=["wrong branch"]
    )
    discard: bool = Field(
        default=False, description="drop the result of a plan that is done", examples=[False]
    )


class Resuming(Strict):
    """How a plan goes on."""

    model: str | None = Field(default=None, max_length=200, pattern=r"\S", description="from now on")
    limits: NewLimits | None = Field(default=None, description="more than it may spend by now, in all")


class Answering(Strict):
    """Which call is meant."""

    call: int | None = Field(
        default=None,
        ge=1,
        le=10**9,
        description="only if that call asks; needed once another call of the plan was answered",
        examples=[3],
    )


class Replying(Strict):
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


class Committing(Strict):
    """Whether it is committed, too."""

    commit: _Message = None


class Applying(Committing):
    """Whether it is committed, too, and where it is pushed to."""

    to_branch: ToBranch = None
    unattended: bool = Field(
        default=False, description="refuse it if the plan's profile leaves applying to a person"
    )


@router.post("/plans/{plan_id}/cancel", operation_id="cancelPlan")
def cancel_plan(plan_id: PlanId, client: PlanOperator, body: Cancelling | None = None) -> PlanView:
    """Stops a plan, its sub-plans and all their processes, wherever they run.

    While a worker runs it, `state` stays that of a running plan until its processes are gone. A plan with a
    result is not cancelled (409), unless `discard` says to drop that.
    """
    asked = body or Cancelling()
    return client.plans.cancel(plan_id, reason=asked.reason, discard=asked.discard)


@router.delete("/plans/{plan_id}/sandbox", status_code=204, operation_id="removePlanSandbox")
def remove_plan_sandbox(plan_id: PlanId, client: PlanOperator) -> None:
    """Removes the sandboxes of a cancelled plan and its sub-plans. A sandbox on another machine is not
    removed (409)."""
    client.plans.remove_sandbox(plan_id)


@router.post("/plans/{plan_id}/resume", operation_id="resumePlan")
def resume_plan(plan_id: PlanId, client: PlanOperator, body: Resuming | None = None) -> PlanView:
    """Continues a plan that failed or was interrupted; finished calls are not repeated."""
    asked = body or Resuming()
    return client.plans.resume(plan_id, model=asked.model, limits=(asked.limits or NewLimits()).limits())


@router.post("/plans/{plan_id}/approve", operation_id="approvePlan")
def approve_plan(plan_id: PlanId, client: PlanOperator, body: Answering | None = None) -> PlanView:
    """Approves the pending request and continues the plan."""
    return client.plans.approve(plan_id, call=(body or Answering()).call)


@router.post("/plans/{plan_id}/deny", operation_id="denyPlan")
def deny_plan(plan_id: PlanId, client: PlanOperator, body: Answering | None = None) -> PlanView:
    """Denies the pending request. An actor tries something else; a plan of plain steps fails."""
    return client.plans.deny(plan_id, call=(body or Answering()).call)


@router.post("/plans/{plan_id}/answer", operation_id="answerPlan")
def answer_plan(plan_id: PlanId, body: Replying, client: PlanOperator) -> PlanView:
    """Answers an actor's question and continues the plan. If another question is pending by now, nothing is
    answered (409)."""
    return client.plans.answer(plan_id, body.text, question=body.question, first=body.first)


@router.post("/plans/{plan_id}/apply", status_code=202, operation_id="applyPlan")
def apply_plan(plan_id: PlanId, client: PlanOperator, body: Applying | None = None) -> JobView:
    """Applies a plan's result to the repository: merged with the present files, all of it or nothing.

    A worker does it; the answer is its job. Required checks run first, on the merged result. The plan's
    `state` and `error` say what prevented it.
    """
    asked = body or Applying()
    return client.plans.submit_apply(
        plan_id, commit=asked.commit, to_branch=asked.to_branch, unattended=asked.unattended
    )


@router.post("/plans/{plan_id}/undo", status_code=202, operation_id="undoPlan")
def undo_plan(plan_id: PlanId, client: PlanOperator, body: Committing | None = None) -> JobView:
    """Takes an applied plan out of the repository again; later edits stay.

    A worker does it; the answer is its job. A plan that could not be undone stays applied, and the job says
    why.
    """
    return client.plans.submit_undo(plan_id, commit=(body or Committing()).commit)


@router.post("/plans/{plan_id}/reject", operation_id="rejectPlan")
def reject_plan(plan_id: PlanId, client: PlanOperator) -> PlanView:
    """Discards a plan's result. The repository is not touched."""
    return client.plans.discard(plan_id)


@router.post("/plans/{plan_id}/budget", operation_id="raisePlanBudget")
def raise_plan_budget(plan_id: PlanId, body: NewLimits, client: PlanOperator) -> BudgetView:
    """Raises the limits of a plan and all that shares its budget. A plan that waits for budget continues; a
    running plan uses the new limits from its next model call.

    A limit is a total: one below the present limit is refused. What is left out stays.
    """
    return client.plans.raise_budget(plan_id, body.limits())
