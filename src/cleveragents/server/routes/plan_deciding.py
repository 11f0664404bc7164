"""What becomes of a plan: answered, gone on with, stopped, applied, undone, rejected."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from cleveragents.api.jobs import JobView, job_view
from cleveragents.api.plans import deciding, ending
from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.applying import apply_later, undo_later
from cleveragents.api.plans.overview import overview_of
from cleveragents.api.plans.spending import budget_of, limits_of
from cleveragents.models.model.budget import Limits
from cleveragents.plans.model.plan import Plan
from cleveragents.server.access import AnyUser, OperatedPlan
from cleveragents.server.accounts import account_as
from cleveragents.server.plan_models import PlanAccount, Strict
from cleveragents.server.routes.plan_reading import BudgetAccount
from cleveragents.server.routes.plans import NewLimits, ToBranch
from cleveragents.server.service import Here, Service
from cleveragents.server.turns import Turns

__all__ = ["TURNS", "router"]

router = APIRouter(tags=["plans"])

TURNS = Turns()
"""Decisions about one plan are made one after the other, whoever makes them here."""

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
    question: str = Field(
        min_length=1,
        max_length=200,
        description="which one: `waiting_for.question`; if it asks another by now, nothing is answered",
        examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"],
    )


class Committing(Strict):
    """Whether it is committed, too."""

    commit: _Message = None


class Applying(Committing):
    """Whether it is committed, too, and where it is pushed to."""

    to_branch: ToBranch = None


@router.post("/plans/{plan_id}/cancel", operation_id="cancelPlan")
def cancel_plan(
    plan: OperatedPlan, here: Here, access: AnyUser, body: Cancelling | None = None
) -> PlanAccount:
    """Stops a plan, its sub-plans and all their processes, wherever they run.

    Where somebody runs it, `state` is still that of a running plan until its processes are gone. One that is
    done is not cancelled (409): reject it if what it did is not wanted.
    """
    reason = (body or Cancelling()).reason
    with TURNS.of(plan.id):
        return _account(here, ending.cancel(here.container, plan.id, f"{reason} ({access.user.name})"))


@router.delete("/plans/{plan_id}/sandbox", status_code=204, operation_id="removePlanSandbox")
def remove_plan_sandbox(plan: OperatedPlan, here: Here, access: AnyUser) -> None:
    """Removes the sandboxes of a plan that is cancelled, and of its sub-plans: nothing of what they did can
    be looked at any more. One that another machine has is not removed (409)."""
    with TURNS.of(plan.id):
        ending.remove_sandboxes(here.container, plan.id)


@router.post("/plans/{plan_id}/resume", operation_id="resumePlan")
def resume_plan(plan: OperatedPlan, here: Here, access: AnyUser, body: Resuming | None = None) -> PlanAccount:
    """Goes on with a plan that failed or was interrupted, where it stands; finished calls are not
    repeated."""
    asked = body or Resuming()
    limits = _limits(asked.limits or NewLimits())
    with TURNS.of(plan.id):
        plan = deciding.resumed(here.parts, plan.id, model=asked.model, limits=limits)
        return _account(here, plan)


@router.post("/plans/{plan_id}/approve", operation_id="approvePlan")
def approve_plan(
    plan: OperatedPlan, here: Here, access: AnyUser, body: Answering | None = None
) -> PlanAccount:
    """Gives leave to the call that a plan waits for, and goes on with it."""
    return _answered(here, plan, body, access.user.name, granted=True)


@router.post("/plans/{plan_id}/deny", operation_id="denyPlan")
def deny_plan(plan: OperatedPlan, here: Here, access: AnyUser, body: Answering | None = None) -> PlanAccount:
    """Refuses leave to the call that a plan waits for. Actors are told, and try something else; a plan of
    plain steps fails."""
    return _answered(here, plan, body, access.user.name, granted=False)


@router.post("/plans/{plan_id}/answer", operation_id="answerPlan")
def answer_plan(plan: OperatedPlan, body: Replying, here: Here, access: AnyUser) -> PlanAccount:
    """Answers what an actor asks, and goes on with the plan. Where it asks something else by now, because
    somebody was faster, nothing is answered (409)."""
    with TURNS.of(plan.id):
        return _account(here, deciding.replied(here.parts, plan.id, body.text, body.question))


@router.post("/plans/{plan_id}/apply", status_code=202, operation_id="applyPlan")
def apply_plan(plan: OperatedPlan, here: Here, access: AnyUser, body: Applying | None = None) -> JobView:
    """Brings a plan's result into the repository: merged with what is there now, all of it or nothing.

    A worker does it; the answer is its job. Required checks run first, on the merged result. What stands in
    the way shows in the plan's `state` and `error` afterwards.
    """
    with TURNS.of(plan.id):
        asked = body or Applying()
        job = apply_later(
            here.container, plan.id, message=asked.commit, by=access.user.name, to_branch=asked.to_branch
        )
    return job_view(job)


@router.post("/plans/{plan_id}/undo", status_code=202, operation_id="undoPlan")
def undo_plan(plan: OperatedPlan, here: Here, access: AnyUser, body: Committing | None = None) -> JobView:
    """Takes an applied plan out of the repository again; what was changed since stays.

    A worker does it; the answer is its job. A plan that could not be undone stays applied, and the job says
    why.
    """
    with TURNS.of(plan.id):
        message = (body or Committing()).commit
        job = undo_later(here.container, plan.id, message=message, by=access.user.name)
    return job_view(job)


@router.post("/plans/{plan_id}/reject", operation_id="rejectPlan")
def reject_plan(plan: OperatedPlan, here: Here, access: AnyUser) -> PlanAccount:
    """Says that a plan's result is not wanted. The repository was not touched, and will not be."""
    with TURNS.of(plan.id):
        return _account(here, deciding.rejected(here.parts, plan.id))


@router.post("/plans/{plan_id}/budget", operation_id="raisePlanBudget")
def raise_plan_budget(plan: OperatedPlan, body: NewLimits, here: Here, access: AnyUser) -> BudgetAccount:
    """Allows a plan, and all that shares its budget, so much in all. One that had stopped goes on; one that
    runs finds it with its next call of a model, and more time with its next step.

    A limit is a total: one below what the plan may spend already is refused. What is left out stays.
    """
    with TURNS.of(plan.id):
        plan = deciding.allowed_more(here.parts, plan.id, _limits(body))
        return account_as(BudgetAccount, budget_of(here.parts, plan))


def _answered(here: Service, plan: Plan, body: Answering | None, by: str, *, granted: bool) -> PlanAccount:
    number = None if body is None else body.call
    with TURNS.of(plan.id):
        plan, _ = deciding.answered_call(here.parts, plan.id, number, granted=granted, shared=True, by=by)
        return _account(here, plan)


def _account(here: Service, plan: Plan) -> PlanAccount:
    parts = here.parts
    return account_as(PlanAccount, overview_of(parts, found_plan(parts, plan.id)))


def _limits(given: NewLimits) -> Limits:
    return limits_of(given.usd, given.tokens, given.steps, given.seconds)
