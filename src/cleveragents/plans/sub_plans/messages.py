"""What is said of sub-plans: to the user who watches, to whoever finds their parent waiting or failed.

Parts that a plan goes on without: those that were cancelled, once the plan has said so and failed.

Both are recorded as calls of the plan, so that a rollback takes them back: first that a part was named as
cancelled, by the plan's own job; then that it is left out, when a person resumes the plan all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cleveragents.changes.model.merge_conflict import MergeConflict
from cleveragents.core.cancellation import is_mere_stop
from cleveragents.core.errors import PlanError, PlanFailed, Remedy, offered
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.sub_plan import (
    CONFLICT,
    SUB_PLANS,
    TaskStatus,
    TreeView,
    asked_below,
    failed_below,
    seen,
    waits_for_sub_plans,
)

if TYPE_CHECKING:
    from cleveragents.plans.store.sql_plan_records import SqlCallStore

__all__ = [
    "LEAVE_OUT",
    "NAMED_CANCELLED",
    "already_merged_message",
    "called",
    "disagreement_message",
    "failure_message",
    "leave_out_named",
    "left_out_message",
    "name_cancelled",
    "parts_left_out",
    "place_of",
    "waiting_for_children",
    "waiting_for_resolution",
]


_NAMED = 5
_LONGEST = 300

LEAVE_OUT = "leave_out"
"""The tool of the calls that say which sub-plans a plan goes on without."""

NAMED_CANCELLED = "named_cancelled"
"""The tool of the calls that say which cancelled sub-plans a plan named when it failed."""


def place_of(view: TreeView, number: int) -> str:
    """`sub-plan 2 of 3`, counted among those that the strategy has."""
    numbers = [n for n, task in enumerate(view.strategy.tasks, start=1) if task.sub_plan]
    return f"sub-plan {numbers.index(number) + 1} of {len(numbers)}"


def called(view: TreeView, number: int) -> str:
    """A task by its place and name."""
    task = view.task(number)
    place = place_of(view, number) if task.sub_plan else f"step {number}"
    return redact_text(f"{place} ({task.name})")


def already_merged_message(plan: Plan) -> PlanError:
    """Why nothing is decided about a part any more whose result the plan above it has."""
    parent = plan.parent_id
    instead = (
        Remedy("plan.review", parent, {"reject": None}, "Leave files out there"),
        Remedy("plan.log", parent, text="List its calls"),
        Remedy("plan.rollback", parent, {"checkpoint": None}, "Roll the merge back"),
        Remedy("plan.correct", parent, text="Correct that plan"),
    )
    return PlanError(plan.id, f"it is merged into plan {parent}, so this would change nothing", instead)


def left_out_message(left: Iterable[tuple[str, str]]) -> str:
    """`left out: one (cancelled), three (needs one)`, of names and why; empty if none is."""
    said = ", ".join(f"{name} ({why})" for name, why in left)
    return redact_text(f"left out: {said}") if said else ""


def failure_message(parent: Plan, view: TreeView) -> PlanFailed:
    """Why a plan failed whose sub-plans did: which, why, and what was not run because of it."""
    said, stopped = [], []
    task_statuses = view.task_statuses()
    for number, fate in task_statuses.items():
        child = view.child(number)
        if fate is TaskStatus.FAILED and child is not None and is_mere_stop(child.error):
            stopped.append(f"{called(view, number)} was stopped for that [{child.id}]")
        elif fate is TaskStatus.FAILED and child is not None:
            said.append(f"{called(view, number)} failed: {_brief(child.error)} [{child.id}]")
        elif fate is TaskStatus.CANCELLED and child is not None:
            said.append(f"{called(view, number)} was {child.state.value} [{child.id}]")
    said += stopped
    blocked = [called(view, number) for number, fate in task_statuses.items() if fate is TaskStatus.BLOCKED]
    if blocked:
        said.append(f"not run, because it needs that: {', '.join(blocked)}")
    return PlanFailed(parent.id, "; ".join(said), (_remedy_for(parent, task_statuses),))


def _brief(error: str | None) -> str:
    """A part's error may tell of all of its own parts; whoever wants to read that looks at the part."""
    said = error or "it says no more"
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def waiting_for_children(parent: Plan, view: TreeView) -> JsonValue:
    """What a parent is put down for that has nothing to do while its sub-plans work, or wait for a person."""
    unfinished = [
        number
        for number, fate in view.task_statuses().items()
        if fate in (TaskStatus.RUNNING, TaskStatus.WAITING)
    ]
    asks = [ask for number in unfinished for ask in _asks(view, number)]
    running = len([number for number in unfinished if not _asks(view, number)])
    said = [f"{running} of its sub-plans {'is' if running == 1 else 'are'} at work"] if running else []
    said += [f"{ask['who']} waits for you: {ask['what']}" for ask in asks]
    failed = _failed(view)
    if failed:  # guard: nobody answers without knowing what failed
        said.append(f"{len(failed)} failed: {', '.join(failed)}")
    resume = Remedy("plan.resume", parent.root, text="Resume what is not running")
    kept = offered((resume,))
    if asks:  # what version 0.1.0 stored has only words
        kept = {"remedy": str(asks[0]["remedy"]), "remedies": asks[0].get("remedies") or ()}
    return {
        "for": SUB_PLANS,
        "what": "; ".join(said),
        **kept,
        "asks": asks,
        "failed": list(failed),
        "seen": seen(view.children.values()),
    }


def waiting_for_resolution(parent: Plan, conflicts: Sequence[MergeConflict]) -> JsonValue:
    """What a parent is put down for that cannot say which side is right."""
    paths = list(dict.fromkeys(conflict.shown_path for conflict in conflicts))
    resolve = Remedy("plan.resolve", parent.id, {"take": None, "path": None}, "Resolve each conflict")
    return {
        "for": CONFLICT,
        "what": disagreement_message(paths),
        **offered((resolve, Remedy("plan.resume", parent.id, text="Resume it"))),
        "paths": paths,
    }


def disagreement_message(paths: Iterable[str]) -> str:
    """What it is about, in short."""
    several = list(dict.fromkeys(paths))
    more = f" and {len(several) - _NAMED} more" if len(several) > _NAMED else ""
    return f"sub-plans disagree about {', '.join(several[:_NAMED])}{more}"


def _asks(view: TreeView, number: int) -> list[Mapping[str, JsonValue]]:
    """What a sub-plan, or one below it, wants to hear from a person."""
    child = view.child(number)
    waited = None if child is None else child.waiting_for
    if child is None or not isinstance(waited, Mapping):
        return []
    if waits_for_sub_plans(child):
        return [ask for ask in asked_below(child) if isinstance(ask, Mapping)]
    facts = {key: waited.get(key) for key in ("for", "what", "remedy", "remedies")}
    return [{"plan": child.id, "who": called(view, number), **facts}]


def _failed(view: TreeView) -> list[str]:
    """Those that failed or were cancelled while others go on, here and below, each with why."""
    said: list[str] = []
    for number, fate in view.task_statuses().items():
        child = view.child(number)
        if child is not None and fate in (TaskStatus.FAILED, TaskStatus.CANCELLED):
            said.append(redact_text(f"{view.task(number).name} ({_brief(child.error)})"))
        elif child is not None and fate is TaskStatus.WAITING:
            said += [str(one) for one in failed_below(child)]
    return said


def _remedy_for(parent: Plan, task_statuses: Mapping[int, TaskStatus]) -> Remedy:
    text = "Go on without it, and without what needs it"
    if TaskStatus.FAILED in task_statuses.values():
        without = (
            ", and go on without what was cancelled" if TaskStatus.CANCELLED in task_statuses.values() else ""
        )
        text = f"Try again what failed{without}"
    return Remedy("plan.resume", parent.root, text=text)


def parts_left_out(calls: Iterable[ToolCall]) -> frozenset[str]:
    """The parts of a plan that it goes on without, because a person said so."""
    return frozenset(part for part, _ in _told(calls, LEAVE_OUT))


def name_cancelled(
    plan: Plan, view: TreeView, past: Sequence[ToolCall], to: SqlCallStore, now: datetime
) -> None:
    """For the job of a plan that is about to fail, and to say which of its parts were cancelled."""
    known = _told(past, NAMED_CANCELLED)
    for number, fate in view.task_statuses().items():
        child = view.child(number)
        if fate is TaskStatus.CANCELLED and child is not None and (str(child.key), child.id) not in known:
            _tell(to, plan, NAMED_CANCELLED, child, f"named-{child.key}", now)


def leave_out_named(
    plan: Plan, children: Iterable[Plan], past: Sequence[ToolCall], to: SqlCallStore, now: datetime
) -> None:
    """For a person who resumes a plan that failed because of them: it goes on without those that it named."""
    named = _told(past, NAMED_CANCELLED)
    for child in children:
        # guard: what nobody was told of is not left out; it fails once more, and then says so
        if (str(child.key), child.id) in named and child.id in str(plan.error) and child.state.ended:
            _tell(to, plan, LEAVE_OUT, child, f"without-{child.key}", now)


def _told(calls: Iterable[ToolCall], tool: str) -> frozenset[tuple[str, str]]:
    """Of which parts, and which sub-plans for them, such calls tell."""
    return frozenset(
        (str(call.arguments["part"]), str(call.arguments["plan"]))
        for call in calls
        if call.tool == tool and call.state is CallState.ENDED
    )


def _tell(to: SqlCallStore, plan: Plan, tool: str, child: Plan, step: str, now: datetime) -> None:
    facts = FrozenObject({"part": str(child.key), "plan": child.id})
    to.add(plan.id, tool, facts, step=step, state=CallState.ENDED, now=now)
