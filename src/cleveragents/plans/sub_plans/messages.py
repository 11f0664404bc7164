"""Messages about sub-plans, and the parts that a plan continues without.

A plan continues without a cancelled part only if it first failed with an error that names the part, and a
person then resumed it. Two facts are recorded as calls of the plan, so that a rollback undoes them. The
plan's own job records that the error named the part. The resume records that the part is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cleveragents.changes.model.merge_conflict import MergeConflict
from cleveragents.core.cancellation import is_resumable_stop
from cleveragents.core.errors import PlanError, PlanFailed, Remedy, remedies_record
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.sub_plan import (
    CONFLICT,
    SUB_PLANS,
    TaskStatus,
    TreeView,
    asked_below,
    child_versions,
    failed_below,
    waits_for_sub_plans,
)
from cleveragents.plans.model.usage_wait import is_parked

if TYPE_CHECKING:
    from cleveragents.plans.store.sql_plan_records import SqlCallStore

__all__ = [
    "LEAVE_OUT",
    "NAMED_CANCELLED",
    "already_merged_message",
    "disagreement_message",
    "failure_message",
    "leave_out_named",
    "left_out_message",
    "name_cancelled",
    "parts_left_out",
    "place_of",
    "task_label",
    "waiting_for_children",
    "waiting_for_resolution",
]


_NAMED = 5
_LONGEST = 300

LEAVE_OUT = "leave_out"
"""The tool of the calls that record which sub-plans a plan continues without."""

NAMED_CANCELLED = "named_cancelled"
"""The tool of the calls that record which cancelled sub-plans a plan named when it failed."""


def place_of(view: TreeView, number: int) -> str:
    """Return `sub-plan 2 of 3`, counted among the sub-plans of the strategy."""
    numbers = [n for n, task in enumerate(view.strategy.tasks, start=1) if task.sub_plan]
    return f"sub-plan {numbers.index(number) + 1} of {len(numbers)}"


def task_label(view: TreeView, number: int) -> str:
    """Return the place and the name of a task."""
    task = view.task(number)
    place = place_of(view, number) if task.sub_plan else f"step {number}"
    return redact_text(f"{place} ({task.name})")


def already_merged_message(plan: Plan) -> PlanError:
    """Return the error for an action on a sub-plan that is already merged."""
    parent = plan.parent_id
    instead = (
        Remedy("plan.review", parent, {"reject": None}, "Leave files out of the parent"),
        Remedy("plan.log", parent, text="List the parent's calls"),
        Remedy("plan.rollback", parent, {"checkpoint": None}, "Roll back the merge"),
        Remedy("plan.correct", parent, text="Correct the parent"),
    )
    return PlanError(plan.id, f"already merged into plan {parent}, so this has no effect", instead)


def left_out_message(left: Iterable[tuple[str, str]]) -> str:
    """Return `left out: one (cancelled), three (needs one)`; empty if nothing is left out."""
    said = ", ".join(f"{name} ({why})" for name, why in left)
    return redact_text(f"left out: {said}") if said else ""


def failure_message(parent: Plan, view: TreeView) -> PlanFailed:
    """Return the error of a plan with failed sub-plans: the failed sub-plans, their errors, and the tasks
    that did not run because of them.
    """
    said, stopped = [], []
    task_statuses = view.task_statuses()
    for number, task_status in task_statuses.items():
        child = view.child(number)
        if task_status is TaskStatus.FAILED and child is not None and is_resumable_stop(child.error):
            stopped.append(f"{task_label(view, number)} was stopped as a result [{child.id}]")
        elif task_status is TaskStatus.FAILED and child is not None:
            said.append(f"{task_label(view, number)} failed: {_brief(child.error)} [{child.id}]")
        elif task_status is TaskStatus.CANCELLED and child is not None:
            said.append(f"{task_label(view, number)} was {status_word(child)} [{child.id}]")
    said += stopped
    blocked = [
        task_label(view, number)
        for number, task_status in task_statuses.items()
        if task_status is TaskStatus.BLOCKED
    ]
    if blocked:
        said.append(f"not run as a result: {', '.join(blocked)}")
    return PlanFailed(parent.id, "; ".join(said), (_remedy_for(parent, task_statuses),))


def _brief(error: str | None) -> str:
    """Cut the error of a sub-plan, which may list the errors of its own sub-plans."""
    said = error or "no error message"
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def waiting_for_children(parent: Plan, view: TreeView) -> JsonValue:
    """Return the pending request of a parent whose sub-plans run, or wait for a person."""
    unfinished = [
        number
        for number, task_status in view.task_statuses().items()
        if task_status in (TaskStatus.RUNNING, TaskStatus.WAITING)
    ]
    asks = [ask for number in unfinished for ask in _asks(view, number)]
    running = len([number for number in unfinished if not _asks(view, number)])
    said = [f"{running} sub-plan{' is' if running == 1 else 's are'} running"] if running else []
    said += [f"{ask['who']} is waiting: {ask['what']}" for ask in asks]
    failed = _failed(view)
    if failed:  # guard: a person must know about failures before answering
        said.append(f"{len(failed)} failed: {', '.join(failed)}")
    resume = Remedy("plan.resume", parent.root, text="Resume the stopped sub-plans")
    kept = remedies_record((resume,))
    if asks:  # version 0.1.0 stored only text
        kept = {"remedy": str(asks[0]["remedy"]), "remedies": asks[0].get("remedies") or ()}
    return {
        "for": SUB_PLANS,
        "what": "; ".join(said),
        **kept,
        "asks": asks,
        "failed": list(failed),
        "seen": child_versions(view.children.values()),
    }


def waiting_for_resolution(parent: Plan, conflicts: Sequence[MergeConflict]) -> JsonValue:
    """Return the pending request of a plan with open conflicts of its sub-plans or of a rebase."""
    paths = list(dict.fromkeys(conflict.shown_path for conflict in conflicts))
    resolve = Remedy("plan.resolve", parent.id, {"take": None, "path": None}, "Resolve each conflict")
    return {
        "for": CONFLICT,
        "what": disagreement_message(paths, of_sub_plans=bool(conflicts[0].plan_id)),
        **remedies_record((resolve, Remedy("plan.resume", parent.id, text="Resume it"))),
        "paths": paths,
    }


def disagreement_message(paths: Iterable[str], *, of_sub_plans: bool = True) -> str:
    """Return a short summary of the conflicting files: of sub-plans, or of the plan and its repository."""
    sides = "sub-plans conflict" if of_sub_plans else "the plan and the repository conflict"
    several = list(dict.fromkeys(paths))
    more = f" and {len(several) - _NAMED} more" if len(several) > _NAMED else ""
    return f"{sides} in {', '.join(several[:_NAMED])}{more}"


def _asks(view: TreeView, number: int) -> list[Mapping[str, JsonValue]]:
    """Return the pending requests of a sub-plan, or of plans below it."""
    child = view.child(number)
    waited = None if child is None else child.waiting_for
    if child is None or not isinstance(waited, Mapping) or is_parked(child):
        return []
    if waits_for_sub_plans(child):
        return [ask for ask in asked_below(child) if isinstance(ask, Mapping)]
    facts = {key: waited.get(key) for key in ("for", "what", "remedy", "remedies")}
    return [{"plan": child.id, "who": task_label(view, number), **facts}]


def _failed(view: TreeView) -> list[str]:
    """Return the failed and cancelled sub-plans of the plan, at any depth, with reasons."""
    said: list[str] = []
    for number, task_status in view.task_statuses().items():
        child = view.child(number)
        if child is not None and task_status in (TaskStatus.FAILED, TaskStatus.CANCELLED):
            said.append(redact_text(f"{view.task(number).name} ({_brief(child.error)})"))
        elif child is not None and task_status is TaskStatus.WAITING:
            said += [str(one) for one in failed_below(child)]
    return said


def _remedy_for(parent: Plan, task_statuses: Mapping[int, TaskStatus]) -> Remedy:
    text = "Continue without this sub-plan and those that depend on it"
    if TaskStatus.FAILED in task_statuses.values():
        without = (
            "; continue without the cancelled ones" if TaskStatus.CANCELLED in task_statuses.values() else ""
        )
        text = f"Retry the failed sub-plans{without}"
    return Remedy("plan.resume", parent.root, text=text)


def parts_left_out(calls: Iterable[ToolCall]) -> frozenset[str]:
    """Return the parts that a person decided to continue without."""
    return frozenset(part for part, _ in _told(calls, LEAVE_OUT))


def name_cancelled(
    plan: Plan, view: TreeView, past: Sequence[ToolCall], to: SqlCallStore, now: datetime
) -> None:
    """Record the cancelled sub-plans, before the plan fails with an error that names them."""
    known = _told(past, NAMED_CANCELLED)
    for number, task_status in view.task_statuses().items():
        child = view.child(number)
        if (
            task_status is TaskStatus.CANCELLED
            and child is not None
            and (str(child.key), child.id) not in known
        ):
            _tell(to, plan, NAMED_CANCELLED, child, f"named-{child.key}", now)


def leave_out_named(
    plan: Plan, children: Iterable[Plan], past: Sequence[ToolCall], to: SqlCallStore, now: datetime
) -> None:
    """Record that a resumed plan continues without the cancelled sub-plans that its error named."""
    named = _told(past, NAMED_CANCELLED)
    for child in children:
        # guard: an unnamed sub-plan is not left out; the plan fails again and names it
        if (str(child.key), child.id) in named and child.id in str(plan.error) and child.state.ended:
            _tell(to, plan, LEAVE_OUT, child, f"without-{child.key}", now)


def _told(calls: Iterable[ToolCall], tool: str) -> frozenset[tuple[str, str]]:
    """Return the parts that calls of this tool recorded, with the ids of their sub-plans."""
    return frozenset(
        (str(call.arguments["part"]), str(call.arguments["plan"]))
        for call in calls
        if call.tool == tool and call.state is CallState.ENDED
    )


def _tell(to: SqlCallStore, plan: Plan, tool: str, child: Plan, step: str, now: datetime) -> None:
    facts = FrozenObject({"part": str(child.key), "plan": child.id})
    to.add(plan.id, tool, facts, step=step, state=CallState.ENDED, now=now)
