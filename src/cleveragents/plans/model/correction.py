"""Corrections: a person, or the plan itself, supersedes wrong decisions or adds guidance.

A correction erases nothing: superseded decisions stay recorded, and so does the outcome before the
correction. This module also assigns work to decisions, to find the checkpoint of a correction and the tasks
that stay done. A *part* is the run of one task, or its sub-plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from cleveragents.core.decision import Decision, DecisionState
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.strategy import Strategy, Task

__all__ = [
    "MERGE",
    "MOST_RETURNS",
    "RETRY",
    "ROLLBACK",
    "Correction",
    "NewCorrection",
    "begun_parts",
    "carrying_out",
    "checkpoint_for",
    "checkpoint_of",
    "descendants",
    "kept_tasks",
    "part_of",
    "taken_back_of",
    "tasks_since",
    "undone_with",
]


MOST_RETURNS = 3
"""How often a plan may go back to Strategize by itself; a person may always send it back."""

ROLLBACK = "rollback"
RETRY = "retry"

MERGE = "merge-"
"""The prefix of the step that merges a sub-plan, followed by the name of its part."""
_TASK = "task-"  # prefix of the step that records a finished task, followed by the name of its part


class NewCorrection(Struct, frozen=True):
    """A new correction. `decision` is the number of the wrong decision; None if guidance is only added.
    `superseded` are the decisions that no longer hold; `checkpoint` is the call to roll back to (None reverts
    nothing); `outcome` is the name of the tree before the correction.
    """

    guidance: str
    decision: int | None = None
    superseded: tuple[int, ...] = ()
    checkpoint: int | None = None
    outcome: str | None = None
    by_itself: bool = False


class Correction(Struct, frozen=True):
    """A correction as the store holds it; `number` counts from 1 within its plan."""

    plan_id: str
    number: int
    made: NewCorrection
    created_at: datetime


def descendants(decisions: Sequence[Decision], number: int) -> tuple[int, ...]:
    """Return the number of the decision and the numbers of all decisions that followed from it."""
    found = {number}
    # A parent has a lower number than its children.
    for decision in sorted(decisions, key=lambda one: one.number):
        if decision.made.parent in found:
            found.add(decision.number)
    return tuple(sorted(found))


def part_of(call: ToolCall) -> str | None:
    """Return the part that the call belongs to or, for a merge, the part whose sub-plan it merged. The suffix
    of a repeated run is removed.
    """
    step = call.strategy_step
    return None if step is None else step.removeprefix(MERGE).removeprefix(_TASK).partition("+")[0]


def begun_parts(calls: Sequence[ToolCall]) -> frozenset[str]:
    """Return the parts with at least one call that is not reverted."""
    parts = (part_of(call) for call in calls if call.state is not CallState.REVERTED)
    return frozenset(part for part in parts if part is not None)


def checkpoint_for(
    strategy: Strategy, calls: Sequence[ToolCall], superseded: Sequence[Decision]
) -> int | None:
    """Return the first call that was made because of one of these decisions; None if there is none.

    A decision made during a task has its own checkpoint. Any other decision was carried out by the tasks that
    name it, and by tasks that name no decision. If no task names any of these decisions, all tasks carried
    them out.
    """
    places = [d.made.checkpoint for d in superseded if d.made.checkpoint is not None]
    parts = carrying_out(strategy, superseded)
    first = [
        call.number
        for call in calls
        if call.state is not CallState.REVERTED and (call.number in places or part_of(call) in parts)
    ]
    return min(first, default=None)


def carrying_out(strategy: Strategy, superseded: Sequence[Decision]) -> frozenset[str]:
    """Return the parts that carry out these decisions, not counting decisions made during a task. Without
    decisions, return all parts.
    """
    thought = {d.number for d in superseded if d.made.checkpoint is None}
    return _carried_out_by(strategy, thought) if thought or not superseded else frozenset()


def undone_with(
    strategy: Strategy, calls: Sequence[ToolCall], every: Sequence[Decision], number: int
) -> tuple[tuple[Decision, ...], int | None]:
    """Return the decisions that a correction of decision `number` supersedes, and its checkpoint. The
    superseded decisions are the decision itself, all that followed from it, and all that a reverted call
    made.
    """
    gone = set(descendants(every, number))
    while True:
        superseded = tuple(d for d in every if d.number in gone and d.state is DecisionState.ACTIVE)
        checkpoint = checkpoint_for(strategy, calls, superseded)
        made_since = [
            d.number
            for d in every
            if checkpoint is not None and d.made.checkpoint is not None and d.made.checkpoint >= checkpoint
        ]
        more = {one for since in made_since for one in descendants(every, since)}
        if more <= gone:
            return superseded, checkpoint
        gone |= more


def tasks_since(strategy: Strategy, calls: Sequence[ToolCall], checkpoint: int) -> tuple[Task, ...]:
    """Return the tasks that have calls with the number `checkpoint` or higher."""
    later = begun_parts([call for call in calls if call.number >= checkpoint])
    return tuple(task for n, task in enumerate(strategy.tasks, start=1) if task.part(n) in later)


def kept_tasks(
    tasks: Sequence[Task], calls: Sequence[ToolCall], going_on: Collection[str] = ()
) -> Mapping[int, Task]:
    """Return the tasks, by number, that are done or running and were not reverted.

    An actor does the tasks of a round in order, so a task without calls counts as done if a later task of the
    round has calls. A sub-plan counts if it is merged or in `going_on`.
    """
    begun = begun_parts(calls) | frozenset(going_on)
    last: dict[int, int] = {}
    for number, task in enumerate(tasks, start=1):
        if not task.sub_plan and task.part(number) in begun:
            last[task.round] = number
    return {
        number: task
        for number, task in enumerate(tasks, start=1)
        if task.part(number) in begun or (not task.sub_plan and number < last.get(task.round, 0))
    }


def _carried_out_by(strategy: Strategy, numbers: Collection[int]) -> frozenset[str]:
    numbered = tuple(enumerate(strategy.tasks, start=1))
    naming = {task.part(n) for n, task in numbered if set(numbers) & set(task.decisions)}
    silent = {task.part(n) for n, task in numbered if not task.decisions}
    return frozenset(naming | silent) if naming else frozenset(task.part(n) for n, task in numbered)


def checkpoint_of(call: ToolCall) -> int:
    """Return the number of the call that a rollback reverts to, or that a retry makes again."""
    return int(str(call.arguments["checkpoint"]))


def taken_back_of(numbers: Iterable[int], rewrites: Sequence[ToolCall]) -> frozenset[int]:
    """Return the reverted calls among these calls. `rewrites` are the rollbacks and retries of their plan,
    which belong to no step.
    """
    ranges = _taken_back(reversed(rewrites))
    return frozenset(number for number in numbers if _is_in(ranges, number))


def _taken_back(latest_first: Iterable[ToolCall]) -> list[range]:
    """Return the numbers of reverted calls, including rollbacks and retries, as ranges."""
    ranges: list[range] = []
    for call in latest_first:
        if call.state is not CallState.ENDED or _is_in(ranges, call.number):
            continue
        if call.tool == ROLLBACK:
            ranges.append(range(checkpoint_of(call), call.number))
        elif call.tool == RETRY:
            ranges.append(range(checkpoint_of(call), checkpoint_of(call) + 1))
    return ranges


def _is_in(ranges: Sequence[range], number: int) -> bool:
    return any(number in one for one in ranges)
