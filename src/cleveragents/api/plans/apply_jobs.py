"""Apply and undo as jobs: requested by a person, done by a worker.

If the job fails, the plan stores the reason in its state and error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.access.model.project import TO_BRANCH, remote_of
from cleveragents.api.plans.available_actions import is_asked_for
from cleveragents.api.plans.create import ensure_apply_request
from cleveragents.api.plans.details import find_plan
from cleveragents.api.plans.responses import ensure_decidable
from cleveragents.api.plans.sandbox_state import ensure_undoable
from cleveragents.api.plans.status_text import has_open_conflicts, waiting_for
from cleveragents.api.reachability import ensure_reachable
from cleveragents.core.errors import DuplicateKey, NeedsHuman, PlanError, Remedy, ResultChanged, StalePlan
from cleveragents.jobs.model.job import Job, NewJob
from cleveragents.plans.apply_policy import held_back, is_apply_allowed
from cleveragents.plans.jobs.names import SHARED_QUEUE, home_queue, queue_of
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.sub_plan import CONFLICT

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = ["apply_later", "ensure_applicable", "ensure_undoable_now", "ensure_unmoved", "undo_later"]

_ATTEMPTS = 3
_MOST_TRIES = 100


def ensure_applicable(
    container: Container, plan_id: str, *, message: str | None, to_branch: str | None = None
) -> Plan:
    """Return the plan if its result can be applied with these options. Errors as in `apply_later`."""
    parts = container.plan_parts
    parts.apply.settle()
    plan = find_plan(parts, plan_id)
    if not plan.state.ended:
        ensure_reachable(parts, plan)
    _ensure_continued(parts, plan)
    ensure_decidable(plan)
    sandbox = parts.sandboxes.open(plan.id)
    parts.result.ensure_decided(plan, sandbox)
    if not parts.result.states(plan, sandbox):
        if any(not review.accepted for review in parts.reviews.of_plan(plan.id)):
            accept = Remedy("plan.review", plan.id, {"accept": "."}, "Accept the changes again")
            raise PlanError(plan.id, "nothing to apply: you rejected all changes", (accept,))
        resume = Remedy("plan.resume", plan.id, text="Repeat the calls that were rolled back")
        rolled_back = parts.history.is_rolled_back(plan)
        raise PlanError(plan.id, "nothing to apply: no file was changed", (resume,) if rolled_back else ())
    ensure_apply_request(plan, message, to_branch)
    return plan


def _ensure_continued(parts: PlanParts, plan: Plan) -> None:
    """Raise `PlanError` if the conflicts of the plan are resolved, but the plan has not continued since."""
    waits = plan.state is PlanState.WAITING and waiting_for(plan) == CONFLICT
    if waits and plan.parent_id is None and not has_open_conflicts(parts, plan):
        resume = Remedy("plan.resume", plan.id, text="Continue the plan, then apply it")
        problem = "waiting: all conflicts are resolved, but the plan must continue first"
        raise PlanError(plan.id, problem, (resume,))


def ensure_undoable_now(container: Container, plan_id: str, *, message: str | None) -> Plan:
    """Return the plan if it can be undone with these options. Errors as in `undo_later`."""
    parts = container.plan_parts
    parts.apply.settle()
    plan = find_plan(parts, plan_id)
    if plan.parent_id is not None:
        raise PlanError(plan.id, f"this is a sub-plan of {plan.root} and is undone with it")
    if not plan.state.ended or plan.state is PlanState.APPLIED:
        ensure_reachable(parts, plan)
    if plan.phase_state != (Phase.APPLY, PlanState.APPLIED):
        raise PlanError(plan.id, f"{status_word(plan)}; only an applied plan can be undone")
    ensure_undoable(parts, plan)
    ensure_apply_request(plan, message, None)
    return plan


def apply_later(
    container: Container,
    plan_id: str,
    *,
    message: str | None,
    by: str | None,
    to_branch: str | None = None,
    unattended: bool = False,
    version: int | None = None,
    tree: str | None = None,
) -> Job:
    """Submit a job that applies the plan; with `to_branch`, to this new branch of its remote.

    Raises `PlanError` if there is nothing to apply or an apply is in progress; `ConfigurationError` if the
    commit is impossible; `RequestRefused` and `InvalidName` for the branch; `NeedsHuman`, also for an
    `unattended` request if the plan's profile allows only a person to apply it, or if a person should look at
    the result first; `StalePlan` unless the plan is at this `version`; `ResultChanged` unless its result is
    this `tree`; `QueueFull`.
    """
    plan = ensure_applicable(container, plan_id, message=message, to_branch=to_branch)
    ensure_unmoved(plan, version)
    # The job applies the result of this moment: a capture, rollback or review keeps the version of the plan.
    parts = container.plan_parts
    result = parts.result.tree(plan, parts.sandboxes.open(plan.id))
    if tree not in (None, result):
        raise ResultChanged(plan.id)
    if unattended:
        _ensure_no_person_needed(parts, plan)
    return _submitted(container, plan, "apply", _Deed(message, by, to_branch, result))


def _ensure_no_person_needed(parts: PlanParts, plan: Plan) -> None:
    """Raise `NeedsHuman` if an automatic apply would leave the result to a person."""
    if plan.request.get("apply") == "review":  # guard: the user reviews the result first
        reasons = ["the plan is for review: only a person applies the result"]
    elif not is_apply_allowed(plan):  # guard: another agent may do only what the policy allows
        reasons = ["the profile allows only a person to apply the result"]
    else:
        reasons = held_back(parts, plan)
    if reasons:
        raise NeedsHuman(plan.id, "; ".join(reasons), (Remedy("plan.apply", plan.id, text="Apply it"),))


def undo_later(container: Container, plan_id: str, *, message: str | None, by: str | None) -> Job:
    """Submit a job that undoes the plan.

    Raises `PlanError` unless the plan is applied and can be undone; other errors as in `apply_later`.
    """
    plan = ensure_undoable_now(container, plan_id, message=message)
    return _submitted(container, plan, "undo", _Deed(message, by))


def ensure_unmoved(plan: Plan, version: int | None) -> None:
    """Raise `StalePlan` if the plan is no longer at the version that the caller saw."""
    if version is not None and plan.version != version:  # guard: an action needs a result that was seen
        raise StalePlan(plan.id, version)


class _Deed(Struct, frozen=True):
    """The options of an apply or undo, and the user who requested it."""

    message: str | None
    by: str | None
    to_branch: str | None = None
    tree: str | None = None


def _submitted(container: Container, plan: Plan, what: str, deed: _Deed) -> Job:
    """Submit the job. Each version of the plan has at most one job, plus one more after each failed job."""
    lanes = container.plan_parts.lifecycle.queueing.lanes.of_project(plan.request)
    # A unique value per request: of two equal requests, the slower one gets an error.
    asked = container.identifiers.new()
    payload: dict[str, JsonValue] = {
        "plan_id": plan.id,
        "version": plan.version,
        "commit": deed.message,
        "by": deed.by,
        "asked": asked,
        **({} if deed.to_branch is None else {TO_BRANCH: deed.to_branch}),
        **({} if deed.tree is None else {"tree": deed.tree}),
    }
    for attempt in range(_MOST_TRIES):
        new = NewJob(
            f"{what}:{plan.id}",
            payload,
            # A person waits for it, and it is shorter than a plan.
            priority=1,
            max_attempts=_ATTEMPTS,
            key=f"{what}:{plan.id}@{plan.version}#{attempt}",
            at_most=1,
            queue=_queue_for(container, plan),
            lanes=lanes,
        )
        try:
            return container.engine.submit(new)
        except DuplicateKey:
            if is_asked_for(container.plan_parts, new.kind):  # guard: only one apply or undo at a time
                break
    done = {"apply": "applied", "undo": "undone"}[what]
    raise PlanError(plan.id, f"the plan is already being {done}; its page shows the outcome")


def _queue_for(container: Container, plan: Plan) -> str:
    """Return the queue for the plan's job. For a plan without a queue, this is the queue of the machine that
    has its sandbox.
    """
    asked = queue_of(plan.request)
    if asked or remote_of(plan.resource) is not None:
        return asked or SHARED_QUEUE
    row = container.plan_parts.sandboxes.row(plan.id)
    return home_queue(container.home if row is None or row.home is None else row.home)
