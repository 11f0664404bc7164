"""The status of a plan, in a word, in a label of lists, and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleveragents.api.format import on_one_line
from cleveragents.api.reachability import is_unreachable
from cleveragents.api.workers import missing_worker, waits_for_worker
from cleveragents.core.cancellation import is_mere_stop
from cleveragents.core.text.redaction import redact_known_text, redact_text
from cleveragents.plans.apply_policy import is_unknown
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

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "DONE",
    "goal_of",
    "has_active_sub_plans",
    "has_open_conflicts",
    "is_stopped",
    "pending_request_of",
    "plan_status",
    "short_status_of",
    "status_text_of",
    "waited",
]

DONE = (Phase.EXECUTE, PlanState.COMPLETE)
"""Where a plan stands that has a result and is not applied."""

_ASKING = 5

_DISAGREE = "its sub-plans disagree, and you are to decide"

_MEANINGS = {
    (Phase.EXECUTE, PlanState.COMPLETE): "done, not applied",
    (Phase.APPLY, PlanState.CONSTRAINED): "not applied; something stands in the way",
    (Phase.APPLY, PlanState.ERRORED): "not applied",
}

_RESULTS = (PlanState.COMPLETE, PlanState.APPLIED, PlanState.CONSTRAINED)
"""The states in which a plan has a result, which may lack something."""

_WAITS = {
    "leave": "it needs your leave to go on",
    "question": "it asks you something",
    "budget": "it may not spend more",
    CONFLICT: _DISAGREE,
    "correction": "it is being corrected",
}


def goal_of(plan: Plan) -> str:
    """As a line or a cell has room for it."""
    return on_one_line(redact_text(plan.goal))


def waited(plan: Plan) -> str:
    """What a waiting plan waits for: `leave` for a call, the answer to a `question`, more `budget`."""
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(waiting.get("for") or "leave")


def pending_request_of(plan: Plan) -> str:
    """The question, in full: only known secrets are masked in what a person decides by."""
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return redact_known_text(str(waiting.get("what")))


def plan_status(parts: PlanParts, plan: Plan) -> PlanStatus:
    """Return the status of the plan, in the one list of words that all interfaces use."""
    return status_of(
        plan.phase,
        plan.state,
        stopped=is_stopped(plan),
        sub_plans_run=waits_for_sub_plans(plan) and not asked_below(plan),
        in_conflict=has_open_conflicts(parts, plan),
        merged=plan.parent_id is not None and is_merged(parts, plan),
        changed=plan.phase_state != DONE or bool(parts.history.changes(plan.id)),
    )


def status_text_of(parts: PlanParts, plan: Plan) -> str:
    """Return the status of the plan, and the reason for it."""
    status = plan_status(parts, plan).value
    if should_run(plan) and parts.lifecycle.should_cancel(plan):
        return f"{status}: it was to be cancelled, and whoever worked on it is gone"
    if plan.state.running and plan.phase is not Phase.APPLY and not parts.lifecycle.has_worker(plan):
        return f"{status}: {_of_idle(parts, plan)}"
    meaning = _MEANINGS.get(plan.phase_state)
    if is_unknown(plan):
        meaning = "it may be applied or not, and its remote cannot be asked"
    if is_stopped(plan):
        meaning = "it was stopped, because another part failed, and can go on"
    if plan.state.running and is_unreachable(parts, plan):
        meaning = f"{plan.resource} is out of reach"
    if plan.state is PlanState.WAITING:
        meaning = _of_waiting(parts, plan)
    elif has_open_conflicts(parts, plan):
        meaning = _DISAGREE
    elif plan.state is PlanState.COMPLETE and plan.parent_id is not None:
        into = f"merged into {short_of(plan.parent_id)}" if is_merged(parts, plan) else "to be merged"
        meaning = f"done, {into}"
    elif plan.state is PlanState.COMPLETE and not parts.history.changes(plan.id):
        meaning = "done, nothing was changed"
    without = left_out_text(parts, plan) if plan.state in _RESULTS else ""
    return status + (f": {meaning}" if meaning else "") + (f"; {without}" if without else "")


def _of_idle(parts: PlanParts, plan: Plan) -> str:
    """Of one that is to be run, by whoever that will be."""
    if not waits_for_worker(parts, plan):
        return "nobody works on it at present"
    return "it waits for a worker" + (", and none is there" if missing_worker(parts, plan) else "")


def short_status_of(parts: PlanParts, plan: Plan) -> str:
    """Return the status for a list: with the number of completed sub-plans while they run, and the number
    of parts that the result lacks."""
    status = plan_status(parts, plan).value
    if waits_for_sub_plans(plan) or (plan.state.running and wanted_parts(plan)):
        count = count_of_parts(parts, plan)
        return f"{status} ({count} sub-plans)" if count else status
    lacks = len(left_out_of(parts, plan)) if plan.state in _RESULTS else 0
    return f"{status} ({lacks} left out)" if lacks else status


def _of_waiting(parts: PlanParts, plan: Plan) -> str:
    if waits_for_sub_plans(plan):
        return _of_sub_plans(parts, plan)
    if waited(plan) == CONFLICT and not has_open_conflicts(parts, plan):
        return "all that its sub-plans disagreed about is decided; it can go on"
    return _WAITS.get(waited(plan), _WAITS["leave"])


def _of_sub_plans(parts: PlanParts, plan: Plan) -> str:
    """How far they are, and which of them cannot go on without a person."""
    needing = [short_of(one.id) for one in plans_needing_action(parts, plan)]
    said = f"{count_of_parts(parts, plan)} of its sub-plans are done"
    if has_active_sub_plans(parts, plan):
        said = f"at work; {said}"
    elif not needing:
        said = f"{said}, and nobody works on the others at present"
    if len(needing) > _ASKING:
        return f"{said}; {len(needing)} of them need you"
    asks = f"; {' and '.join(needing)} {'needs' if len(needing) == 1 else 'need'} you" if needing else ""
    return said + asks


def has_active_sub_plans(parts: PlanParts, plan: Plan) -> bool:
    """Whether somebody works on a plan below it."""
    return any(one.state.running and parts.lifecycle.has_worker(one) for one in below(parts, plan))


def is_stopped(plan: Plan) -> bool:
    """Whether it is not done because another part of the same plan failed."""
    return plan.state is PlanState.ERRORED and is_mere_stop(plan.error)


def has_open_conflicts(parts: PlanParts, plan: Plan) -> bool:
    """Whether its sub-plans disagree about something, said by itself or found by whoever took back what was
    decided."""
    asked = plan.phase_state == DONE or (plan.state is PlanState.WAITING and waited(plan) == CONFLICT)
    return asked and bool(wanted_parts(plan)) and bool(conflicts_of(parts, plan))
