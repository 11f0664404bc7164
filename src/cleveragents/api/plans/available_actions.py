"""The pending request of a plan and its possible actions, for display. The services check every action
again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleveragents.api.plans.sandbox_state import is_kept
from cleveragents.api.plans.status_text import (
    DONE,
    has_active_sub_plans,
    has_open_conflicts,
    is_done,
    is_stopped,
    obstacle_of,
    waiting_for,
)
from cleveragents.core.errors import PlanError
from cleveragents.core.policy import Capability, Verdict
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.apply_policy import ensure_rebasable, is_unknown
from cleveragents.plans.family import below, is_merged
from cleveragents.plans.jobs.names import should_run
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.strategy import Strategy, earlier_result
from cleveragents.plans.model.sub_plan import CONFLICT, asked_below, waits_for_sub_plans
from cleveragents.plans.model.usage_wait import is_parked

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "NEEDS",
    "is_asked_for",
    "is_at_rest",
    "is_pausable",
    "is_resumable",
    "is_revisable",
    "is_settled",
    "is_withdrawable",
    "needs_of",
    "possible_actions",
]

NEEDS = ("approval", "question", "budget", "conflict", "error", "review")
"""Kinds of requests, most urgent first."""

_ASKED = {"leave": "approval", "question": "question", "budget": "budget", CONFLICT: "conflict"}
_JOBS = {"apply", "undo"}
_UNFINISHED = (JobState.QUEUED, JobState.RUNNING)
_APPLIED_AGAIN = (PlanState.CONSTRAINED, PlanState.ERRORED)


def needs_of(parts: PlanParts, plan: Plan) -> str | None:
    """Return one of `NEEDS` if the plan or a plan below needs a person to continue or finish; else None."""
    if waits_for_sub_plans(plan):
        asks = [_ASKED.get(_for(ask)) for ask in asked_below(plan)]
        return min((ask for ask in asks if ask is not None), key=NEEDS.index, default=None)
    if plan.state is PlanState.WAITING:
        return _ASKED.get(waiting_for(plan))
    if is_unknown(plan):
        return "error"
    if plan.state is PlanState.ERRORED:
        return None if is_stopped(plan) else "error"
    done = is_done(parts, plan)
    if plan.state is PlanState.CONSTRAINED and not done:
        return "conflict"
    if not done or plan.parent_id is not None:
        return None
    if has_open_conflicts(parts, plan):
        return "conflict"
    return "review" if parts.history.has_changes(plan.id) else None


def is_at_rest(plan: Plan) -> bool:
    """Return whether no worker runs the plan, or will run it before a person acts."""
    has_active_sub_plans = waits_for_sub_plans(plan) and not asked_below(plan)
    return not (plan.state.running or should_run(plan) or has_active_sub_plans)


def is_settled(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the plan is at rest, without a pending apply or undo job; for a cancelled plan, also
    without running sub-plans.
    """
    if not is_at_rest(plan) or _is_to_be_decided(parts, plan):
        return False
    if plan.state is not PlanState.CANCELLED:
        return True
    # Its worker may have started them before it saw the cancel.
    return not any(parts.lifecycle.reconciled(one).state.running for one in below(parts, plan))


def _is_to_be_decided(parts: PlanParts, plan: Plan) -> bool:
    """Return whether a job that applies or undoes the plan is queued or running."""
    return any(is_asked_for(parts, f"{what}:{plan.id}") for what in _JOBS)


def possible_actions(parts: PlanParts, plan: Plan) -> list[str]:
    """Return the names of the possible actions, as in the API.

    Each action is checked again where it is done: by `responses.ensure_decidable`,
    `apply_jobs.ensure_applicable`, `plans.lifecycle` and `plans.apply_policy`, and every move of a plan by
    `plans.model.plan.ensure_plan_move`.
    """
    found = {"apply"} if is_unknown(plan) else _steps_of_running(parts, plan)
    if not plan.state.running and not is_merged(parts, plan):
        found |= _steps_of_resting(parts, plan)
    if plan.state is PlanState.APPLIED and plan.parent_id is None and is_kept(parts, plan):
        found.add("undo")
    for done_by_a_job in _JOBS & found:
        if is_asked_for(parts, f"{done_by_a_job}:{plan.id}"):
            found.remove(done_by_a_job)
    if _is_correctable(parts, plan):
        found.add("correct")
    if is_revisable(parts, plan):
        found.add("revise")
    tree = [plan, *below(parts, plan)] if waits_for_sub_plans(plan) else [plan]
    runs = plan.state.running or any(map(is_parked, tree))
    if not runs and plan.parent_id is None and not has_active_sub_plans(parts, plan):
        found.add("delete")
    return sorted(found)


def _steps_of_running(parts: PlanParts, plan: Plan) -> set[str]:
    found: set[str] = set()
    begun = plan.state.running or plan.state in (PlanState.WAITING, PlanState.ERRORED)
    if begun and plan.phase is not Phase.APPLY:
        found.add("cancel")
    if is_pausable(parts, plan):
        found.add("pause")
    if is_resumable(parts, plan):
        found.add("resume")
    if begun and plan.phase is not Phase.APPLY and plan.request.get("limits") is not None:
        found.add("budget")
    if plan.state is PlanState.WAITING and parts.lifecycle.asking(plan) is not None:
        found |= {"approve", "deny"}
    elif plan.state is PlanState.WAITING and waiting_for(plan) == "question":
        found.add("answer")
    return found


def _steps_of_resting(parts: PlanParts, plan: Plan) -> set[str]:
    """Return the possible actions on a plan that no worker runs and that is not merged."""
    if plan.state.ended:
        return set()
    found: set[str] = set()
    changed = parts.history.changes_files(plan.id)
    undecided = has_open_conflicts(parts, plan)
    rebasable = changed and is_kept(parts, plan) and _is_rebasable(plan)
    if undecided or (rebasable and obstacle_of(parts, plan) is not None):
        found.add("resolve")
    if changed and is_kept(parts, plan):
        found.add("review")
    if parts.history.calls(plan.id) and is_kept(parts, plan):
        found.add("rollback")
    has_result = plan.phase_state == DONE or (plan.phase is Phase.APPLY and plan.state in _APPLIED_AGAIN)
    if has_result and changed and not undecided and plan.parent_id is None and _may_apply(plan):
        found.add("apply")
    if has_result or plan.state is PlanState.ERRORED:
        found.add("reject")
    if rebasable:
        found.add("rebase")
    return found


def is_pausable(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the plan or a plan below it runs. A sub-plan pauses with its root plan."""
    if plan.parent_id is not None or parts.lifecycle.should_cancel(plan):
        return False
    if plan.phase is Phase.APPLY:
        return False
    return not is_at_rest(plan) or any(should_run(one) for one in below(parts, plan))


def _is_rebasable(plan: Plan) -> bool:
    try:
        ensure_rebasable(plan)
    except PlanError:
        return False
    return True


def is_resumable(parts: PlanParts, plan: Plan) -> bool:
    """Return whether a resume would continue the plan. False if the plan waits for a worker or
    is finished.
    """
    if should_run(plan):
        job = parts.lifecycle.queueing.job_of(plan)
        waits = job is not None and job.state is JobState.QUEUED and not is_parked(plan)
        return not (waits or parts.lifecycle.has_worker(plan) or parts.lifecycle.should_cancel(plan))
    if parts.history.is_rolled_back(plan):
        return not is_merged(parts, plan)
    if plan.phase is Phase.APPLY:
        return False
    if waits_for_sub_plans(plan):
        return not has_active_sub_plans(parts, plan)
    if plan.state is PlanState.WAITING:
        return parts.lifecycle.asking(plan) is None and waiting_for(plan) != "question"
    return plan.state is PlanState.ERRORED


def _is_correctable(parts: PlanParts, plan: Plan) -> bool:
    try:
        parts.correction.ensure_correctable(plan)
    except PlanError:
        return False
    return bool(parts.actor_parts.decisions.of_plan(plan.id))


def is_revisable(parts: PlanParts, plan: Plan) -> bool:
    """Return whether an executor could revise the result of the plan."""
    try:
        parts.correction.ensure_revisable(plan)
    except PlanError:
        return False
    return not is_merged(parts, plan)


def is_withdrawable(parts: PlanParts, plan: Plan) -> bool:
    """Return whether a revision can be withdrawn, so that the result from before it is ready again."""
    return earlier_result(plan) is not None and is_kept(parts, plan) and not is_merged(parts, plan)


def is_asked_for(parts: PlanParts, kind: str) -> bool:
    """Return whether a job of this kind is queued or running."""
    return bool(parts.lifecycle.jobs.list(states=_UNFINISHED, kind=kind, limit=1))


def _may_apply(plan: Plan) -> bool:
    policy = Strategy.from_json(plan.strategy).policy
    return policy.verdict(Capability.APPLY) is not Verdict.DENY


def _for(ask: JsonValue) -> str:
    return str(ask.get("for") or "leave") if isinstance(ask, Mapping) else ""
