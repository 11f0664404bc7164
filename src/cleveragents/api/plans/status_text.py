"""The status of a plan with its explanation, as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cleveragents.api.format import clock_time, on_one_line
from cleveragents.api.reachability import is_unreachable
from cleveragents.api.workers import missing_worker, waits_for_worker
from cleveragents.changes.model.merge_conflict import has_rebased_since
from cleveragents.core.cancellation import is_resumable_stop
from cleveragents.core.text.redaction import redact_known_text, redact_text
from cleveragents.plans.apply_policy import IN_THE_WAY, is_unknown
from cleveragents.plans.family import (
    below,
    conflicts_of,
    count_of_parts,
    is_merged,
    left_out_of,
    left_out_text,
    plans_needing_action,
    short_of,
    wanted_parts,
)
from cleveragents.plans.jobs.names import should_run
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus, status_of
from cleveragents.plans.model.sub_plan import CONFLICT, asked_below, waits_for_sub_plans
from cleveragents.plans.model.usage_wait import parked_until

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "DONE",
    "goal_of",
    "has_active_sub_plans",
    "has_open_conflicts",
    "is_done",
    "is_stopped",
    "is_unblocked",
    "obstacle_of",
    "pending_request_of",
    "plan_status",
    "short_status_of",
    "status_text_of",
    "waiting_for",
]

DONE = (Phase.EXECUTE, PlanState.COMPLETE)
"""Phase and state of a plan with a result that is not applied."""

_LATE = timedelta(minutes=1)
"""How late a process may continue a plan after the reset of its usage limit."""
_ASKING = 5

_CONFLICT = "conflict between its sub-plans"
_REBASE_CONFLICT = "conflict with the repository"

_MEANINGS = {
    (Phase.APPLY, PlanState.CONSTRAINED): "the result could not be applied",
    (Phase.APPLY, PlanState.ERRORED): "the apply failed",
}

_RESULTS = (PlanState.COMPLETE, PlanState.APPLIED, PlanState.CONSTRAINED)
"""The states with a result, from which sub-plans may be left out."""

_WAITS = {
    "leave": "needs your approval",
    "question": "needs your answer",
    "budget": "a limit is reached",
    "correction": "a correction is in progress",
}


def goal_of(plan: Plan) -> str:
    """Return the goal on one line, masked."""
    return on_one_line(redact_text(plan.goal))


def waiting_for(plan: Plan) -> str:
    """Return the kind of the pending request: `leave` (an approval), `question`, `budget`, …"""
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(waiting.get("for") or "leave")


def pending_request_of(plan: Plan) -> str:
    """Return the text of the pending request.

    Only known secrets are masked, because a person needs the exact text to decide.
    """
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return redact_known_text(str(waiting.get("what")))


def plan_status(parts: PlanParts, plan: Plan) -> PlanStatus:
    """Return the status of the plan."""
    done = is_done(parts, plan)
    return status_of(
        plan.phase,
        plan.state,
        stopped=is_stopped(plan),
        sub_plans_run=waits_for_sub_plans(plan) and not asked_below(plan),
        in_conflict=has_open_conflicts(parts, plan),
        merged=plan.parent_id is not None and is_merged(parts, plan),
        changed=not done or parts.history.changes_files(plan.id),
        rolled_back=done,
    )


def is_done(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the plan has a result that is not applied. A result that could not be applied counts
    only if it was rolled back since: the reason may no longer exist.
    """
    if plan.state is PlanState.CONSTRAINED:
        return parts.history.is_rolled_back(plan, since=plan.updated_at)
    return plan.phase_state == DONE


def status_text_of(parts: PlanParts, plan: Plan, status: PlanStatus | None = None) -> str:
    """Return the status of the plan with its explanation: `ready: the result is ready for review`.

    A caller that already knows the status passes it, which saves reading the records of the plan.
    """
    status, why = status or plan_status(parts, plan), _explanation(parts, plan)
    without = left_out_text(parts, plan) if plan.state in _RESULTS else ""
    return status.value + (f": {why}" if why else "") + (f"; {without}" if without else "")


def _explanation(parts: PlanParts, plan: Plan) -> str:
    if should_run(plan) and parts.lifecycle.should_cancel(plan):
        return "a cancel was requested, but the worker is gone"
    if plan.state.running and plan.phase is not Phase.APPLY and not parts.lifecycle.has_worker(plan):
        return _of_idle(parts, plan)
    if plan.state is PlanState.WAITING:
        return _of_waiting(parts, plan)
    if has_open_conflicts(parts, plan):
        return _conflict_text(parts, plan)
    if is_done(parts, plan):
        return _of_result(parts, plan)
    if plan.state.running and is_unreachable(parts, plan):
        return f"{plan.resource} is out of reach"
    if is_stopped(plan):
        return f"{(plan.error or '').replace(', because', ' because', 1)}; can be resumed"
    if is_unknown(plan):
        return "the outcome is unknown because the remote does not respond"
    if is_unblocked(parts, plan):
        return "all conflicts are resolved; can be applied again"
    return _MEANINGS.get(plan.phase_state, "")


def _of_result(parts: PlanParts, plan: Plan) -> str:
    if plan.parent_id is not None:
        merged = is_merged(parts, plan)
        return f"the result is in {short_of(plan.parent_id)}" if merged else "the result is not merged yet"
    if parts.history.changes_files(plan.id):
        return "the result is ready for review"
    return "all changes were rolled back" if parts.history.is_rolled_back(plan) else "no file was changed"


def _of_idle(parts: PlanParts, plan: Plan) -> str:
    """Explain a plan that no worker runs at present."""
    if not waits_for_worker(parts, plan):
        return "no worker is running the plan"
    return "waiting for a worker" + (", but none is running" if missing_worker(parts, plan) else "")


def short_status_of(parts: PlanParts, plan: Plan, status: PlanStatus | None = None) -> str:
    """Return the status with counts of sub-plans: `running (2/3 sub-plans)` or `ready (1 left out)`; for a
    plan that waits for a usage limit, with the time of its reset; `running (no worker)` if its process died.

    A caller that knows the status passes it, as to `status_text_of`.
    """
    told = (status or plan_status(parts, plan)).value
    until = parked_until(plan)
    if until is not None:
        return f"{told}: usage limit until {clock_time(until)}{_of_missing(parts, plan, until)}"
    if _is_abandoned(parts, plan):
        return f"{told} (no worker)"
    if waits_for_sub_plans(plan) or (plan.state.running and wanted_parts(plan)):
        count = count_of_parts(parts, plan)
        return f"{told} ({count} sub-plans)" if count else told
    lacks = len(left_out_of(parts, plan)) if plan.state in _RESULTS else 0
    return f"{told} ({lacks} left out)" if lacks else told


def _is_abandoned(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the process that ran the plan died, and no worker continues the plan."""
    if plan.state is not PlanState.PROCESSING or plan.phase is Phase.APPLY:
        return False
    return not (parts.lifecycle.has_worker(plan) or waits_for_worker(parts, plan))


def _of_waiting(parts: PlanParts, plan: Plan) -> str:
    if waits_for_sub_plans(plan):
        return _of_sub_plans(parts, plan)
    if waiting_for(plan) == CONFLICT:
        is_open = has_open_conflicts(parts, plan)
        return _conflict_text(parts, plan) if is_open else "all conflicts are resolved; can be resumed"
    until = parked_until(plan)
    if until is not None:
        return f"usage limit until {clock_time(until)}{_of_missing(parts, plan, until)}"
    return _WAITS.get(waiting_for(plan), _WAITS["leave"])


def _of_missing(parts: PlanParts, plan: Plan, until: datetime) -> str:
    """Explain why a parked plan does not continue at its reset; empty if a process continues it."""
    if missing_worker(parts, plan):
        return ", but no worker is running"
    late = parts.lifecycle.clock.now() - until > _LATE or parts.lifecycle.is_abandoned(plan)
    if late and not waits_for_worker(parts, plan) and not parts.lifecycle.has_worker(plan):
        return ", but no process continues it; resume it"
    return ""


def _of_sub_plans(parts: PlanParts, plan: Plan) -> str:
    """Explain the progress of the sub-plans, and name those that need a person."""
    needing = [short_of(one.id) for one in plans_needing_action(parts, plan)]
    said = f"{count_of_parts(parts, plan)} sub-plans done"
    parked = [until for one in below(parts, plan) if (until := parked_until(one)) is not None]
    if parked:
        said = f"{said}; usage limit until {clock_time(min(parked))}"
    left = not parked or any(one.state.running for one in below(parts, plan))
    if left and not needing and not has_active_sub_plans(parts, plan):
        said = f"{said}; no worker is running the others"
    if len(needing) > _ASKING:
        return f"{said}; {len(needing)} need you"
    asks = f"; {' and '.join(needing)} {'needs' if len(needing) == 1 else 'need'} you" if needing else ""
    return said + asks


def has_active_sub_plans(parts: PlanParts, plan: Plan) -> bool:
    """Return whether a worker runs a plan below this one."""
    return any(one.state.running and parts.lifecycle.has_worker(one) for one in below(parts, plan))


def is_stopped(plan: Plan) -> bool:
    """Return whether the plan was stopped, by a person or because another sub-plan failed, and can be
    resumed.
    """
    return plan.state is PlanState.ERRORED and is_resumable_stop(plan.error)


def has_open_conflicts(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the sub-plans have an open conflict, or a rebase left one.

    A conflict is open if the plan reported it, or if its resolution was rolled back.
    """
    asked = plan.state is PlanState.WAITING and waiting_for(plan) == CONFLICT
    asked = asked or plan.phase_state == DONE or plan.state is PlanState.CONSTRAINED
    return asked and bool(conflicts_of(parts, plan))


def obstacle_of(parts: PlanParts, plan: Plan) -> JsonValue:
    """Return the files that blocked the last apply, with details; None if a rebase has merged the files
    since, or the result was rolled back.
    """
    kept = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    if plan.state is not PlanState.CONSTRAINED or IN_THE_WAY not in kept or is_done(parts, plan):
        return None
    is_merged = has_rebased_since(parts.history.merge_calls(plan.id), plan.updated_at)
    return None if is_merged else kept[IN_THE_WAY]


def is_unblocked(parts: PlanParts, plan: Plan) -> bool:
    """Return whether a conflict blocked the last apply, and the result has since been merged with the files
    without open conflicts.
    """
    kept = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    blocked = plan.state is PlanState.CONSTRAINED and IN_THE_WAY in kept and not is_done(parts, plan)
    return blocked and obstacle_of(parts, plan) is None and not has_open_conflicts(parts, plan)


def _conflict_text(parts: PlanParts, plan: Plan) -> str:
    return _CONFLICT if conflicts_of(parts, plan)[0].plan_id else _REBASE_CONFLICT
