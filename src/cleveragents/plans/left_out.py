"""Parts that a plan goes on without: those that were cancelled, once the plan has said so and failed.

Both are recorded as calls of the plan, so that a rollback takes them back: first that a part was named as
cancelled, by the plan's own job; then that it is left out, when a person resumes the plan all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.sub_plan import Fate, TreeView
from cleveragents.plans.ports.plans import CallStore

__all__ = ["LEAVE_OUT", "NAMED_CANCELLED", "leave_out_named", "name_cancelled", "parts_left_out"]

LEAVE_OUT = "leave_out"
"""The tool of the calls that say which sub-plans a plan goes on without."""

NAMED_CANCELLED = "named_cancelled"
"""The tool of the calls that say which cancelled sub-plans a plan named when it failed."""


def parts_left_out(calls: Iterable[ToolCall]) -> frozenset[str]:
    """The parts of a plan that it goes on without, because a person said so."""
    return frozenset(part for part, _ in _told(calls, LEAVE_OUT))


def name_cancelled(
    plan: Plan, view: TreeView, past: Sequence[ToolCall], to: CallStore, now: datetime
) -> None:
    """For the job of a plan that is about to fail, and to say which of its parts were cancelled."""
    known = _told(past, NAMED_CANCELLED)
    for number, fate in view.fates().items():
        child = view.child(number)
        if fate is Fate.CANCELLED and child is not None and (str(child.key), child.id) not in known:
            _tell(to, plan, NAMED_CANCELLED, child, f"named-{child.key}", now)


def leave_out_named(
    plan: Plan, children: Iterable[Plan], past: Sequence[ToolCall], to: CallStore, now: datetime
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


def _tell(to: CallStore, plan: Plan, tool: str, child: Plan, step: str, now: datetime) -> None:
    facts = FrozenObject({"part": str(child.key), "plan": child.id})
    to.add(plan.id, tool, facts, step=step, state=CallState.ENDED, now=now)
