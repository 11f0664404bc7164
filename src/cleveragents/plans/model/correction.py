"""Corrections: a person, or the plan itself, says that something was decided wrongly, or is to be heeded too.

Nothing is erased by one: what it supersedes stays, and so does the outcome that the plan had come to.

What of a plan's work belongs to which decision: where a correction goes back to, and what stays done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

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
"""How often a plan may go back to Strategize by itself; a person may always send it."""

ROLLBACK = "rollback"
RETRY = "retry"

MERGE = "merge-"
"""What the step is called by which a sub-plan's result comes in: this, and the name of its part."""
_TASK = "task-"  # and the name of its part: the step that says that a task is done


@dataclass(frozen=True, slots=True)
class NewCorrection:
    """`decision` is the number of the one that was wrong; None where guidance is merely added. `superseded`
    are the numbers that no longer hold because of it; `checkpoint` is the call before which the plan goes on
    (None: nothing is undone), `outcome` the name of the tree that it had come to before."""

    guidance: str
    decision: int | None = None
    superseded: tuple[int, ...] = ()
    checkpoint: int | None = None
    outcome: str | None = None
    by_itself: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction as the store holds it; `number` counts from 1 within its plan."""

    plan_id: str
    number: int
    made: NewCorrection
    created_at: datetime


def descendants(decisions: Sequence[Decision], number: int) -> tuple[int, ...]:
    """The decision of that number and all that followed from it, by number."""
    found = {number}
    # A parent has a lower number than what follows from it.
    for decision in sorted(decisions, key=lambda one: one.number):
        if decision.made.parent in found:
            found.add(decision.number)
    return tuple(sorted(found))


def part_of(call: ToolCall) -> str | None:
    """The run that the call was made in, or whose sub-plan it brought in; whatever name it has by now."""
    step = call.strategy_step
    return None if step is None else step.removeprefix(MERGE).removeprefix(_TASK).partition("+")[0]


def begun_parts(calls: Sequence[ToolCall]) -> frozenset[str]:
    """The runs of which something counts."""
    parts = (part_of(call) for call in calls if call.state is not CallState.REVERTED)
    return frozenset(part for part in parts if part is not None)


def checkpoint_for(
    strategy: Strategy, calls: Sequence[ToolCall], superseded: Sequence[Decision]
) -> int | None:
    """The first call that was made because of one of these decisions; None if none was.

    A decision that was made while a task was done has its own place. The others were carried out by the tasks
    that name them, and by those that name none; where no task names any of them, by all tasks.
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
    """The parts that carry these decisions out, other than those that were made at work; of none, all."""
    thought = {d.number for d in superseded if d.made.checkpoint is None}
    return _carried_out_by(strategy, thought) if thought or not superseded else frozenset()


def undone_with(
    strategy: Strategy, calls: Sequence[ToolCall], every: Sequence[Decision], number: int
) -> tuple[tuple[Decision, ...], int | None]:
    """What no longer holds when that decision does not, and the checkpoint that belongs to it: all that
    followed from it, and whatever was decided by a call that is taken back."""
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
    """The tasks of which something was done from that call on."""
    later = begun_parts([call for call in calls if call.number >= checkpoint])
    return tuple(task for n, task in enumerate(strategy.tasks, start=1) if task.part(n) in later)


def kept_tasks(
    tasks: Sequence[Task], calls: Sequence[ToolCall], going_on: Collection[str] = ()
) -> Mapping[int, Task]:
    """The tasks, by their numbers, that are done or under way and were not taken back.

    An actor does its own tasks of a round one after the other, so one before another that left a trace needs
    none itself; of a sub-plan, the trace is that its result came in, or that it is `going_on`.
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
    """Where a rollback leads back to, or which call is to be made again."""
    return int(str(call.arguments["checkpoint"]))


def taken_back_of(numbers: Iterable[int], rewrites: Sequence[ToolCall]) -> frozenset[int]:
    """Which of these calls are reverted, from what rewrote their plan: its calls that belong to no step."""
    ranges = _taken_back(reversed(rewrites))
    return frozenset(number for number in numbers if _is_in(ranges, number))


def _taken_back(latest_first: Iterable[ToolCall]) -> list[range]:
    """The numbers of the calls that rollbacks and retries took back, among them rollbacks and retries."""
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
