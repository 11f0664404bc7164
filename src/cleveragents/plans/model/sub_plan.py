"""Sub-plans as their parent sees them: the outcome of each, and the next step. Also lists of goals, which
become sub-plans.

All functions are pure, so a parent that was killed at any point can call them again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

from msgspec import Struct, field

from cleveragents.changes.model.merge_conflict import part_of_merge
from cleveragents.core.cancellation import is_resumable_stop, resumable_stop
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze
from cleveragents.core.records import facts_of
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.usage_wait import is_parked

__all__ = [
    "CONFLICT",
    "GOALS_ACTION",
    "PAUSED",
    "STOPPED",
    "SUB_PLANS",
    "Goals",
    "ParentAction",
    "SubGoal",
    "TaskStatus",
    "TreeStep",
    "TreeView",
    "asked_below",
    "can_continue",
    "child_versions",
    "circle_in",
    "ended_by",
    "failed_below",
    "has_news",
    "is_at_rest",
    "is_merged",
    "waits_for_sub_plans",
]


SUB_PLANS = "sub-plans"
"""The reason of a parent that waits for its sub-plans."""

CONFLICT = "conflict"
"""The reason of a parent that waits for a conflict to be resolved."""

STOPPED = resumable_stop("another sub-plan failed")
"""The reason of a stop after which the sub-plan can be resumed with its parent."""

PAUSED = resumable_stop("a person paused it")
"""The reason of a pause: a person stopped the plan and can resume it."""

GOALS_ACTION = "builtin/goals"
"""The action of a plan whose sub-plans the user listed."""


class TaskStatus(Enum):
    """The status of one task of a parent plan."""

    DONE = "done"
    FINISHED = "finished"  # and ready to merge
    RUNNING = "running"
    WAITING = "waiting"  # for a person
    READY = "ready"
    PENDING = "pending"  # for its dependencies
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"  # a dependency failed
    LEFT_OUT = "left out"


class ParentAction(Enum):
    """The next step of a parent."""

    MERGE = "merge"
    STOP = "stop"
    START = "start"
    DO = "do"
    WAIT = "wait"
    FAIL = "fail"
    END = "end"


_BROKEN = (TaskStatus.FAILED, TaskStatus.CANCELLED)
_UNFINISHED = (TaskStatus.RUNNING, TaskStatus.WAITING)


class TreeStep(Struct, frozen=True):
    """The next action of a parent plan, and the numbers of the tasks it concerns."""

    act: ParentAction
    numbers: tuple[int, ...] = ()


class TreeView(Struct, frozen=True):
    """The tasks of a parent and their facts. `children` are its sub-plans by part; `merged` are the merged
    parts, and `left_out` the parts that a person left out; `done` are the numbers of the parent's own
    finished tasks; `told` are the numbers of tasks whose sub-plans were asked to stop.
    """

    strategy: Strategy
    children: Mapping[str, Plan]
    merged: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    done: Collection[int] = ()
    told: Collection[int] = ()

    def task_statuses(self) -> Mapping[int, TaskStatus]:
        """Return the status of every task, by number, each after its dependencies."""
        known: dict[int, TaskStatus] = {}
        for number, task in self.strategy.ordered_tasks:
            # In a cycle, a later dependency is not waited for.
            needed = [known[need] for need in task.needs if need in known]
            known[number] = self._own(number, needed) if not task.sub_plan else self._theirs(number, needed)
        return known

    def left_out_why(self) -> Mapping[int, str]:
        """Return why tasks are left out, by number: the state of the sub-plan, or the missing dependency."""
        task_statuses = self.task_statuses()
        left = [number for number, task_status in task_statuses.items() if task_status is TaskStatus.LEFT_OUT]
        why: dict[int, str] = {}
        for number in left:
            child, task = self.child(number), self.task(number)
            if child is not None and task.part(number) in self.left_out:
                why[number] = status_word(child)
            else:
                needed = [self.task(need).name for need in task.needs if need in left]
                why[number] = f"needs {', '.join(needed)}"
        return why

    def step(self) -> TreeStep:
        """Return the next step: finished results are merged before new work starts on top of them."""
        task_statuses = self.task_statuses()
        for act, numbers in self._possible(task_statuses):
            if numbers:
                return TreeStep(act, tuple(numbers))
        return TreeStep(ParentAction.END)

    def child(self, number: int) -> Plan | None:
        return self.children.get(self.task(number).part(number))

    def task(self, number: int) -> Task:
        return self.strategy.tasks[number - 1]

    def _possible(self, task_statuses: Mapping[int, TaskStatus]) -> Iterable[tuple[ParentAction, list[int]]]:
        def of(*wanted: TaskStatus) -> list[int]:
            return [number for number, task_status in task_statuses.items() if task_status in wanted]

        yield ParentAction.MERGE, of(TaskStatus.FINISHED)
        broken = of(*_BROKEN)
        if not (broken and self.strategy.fail_fast):
            ready = of(TaskStatus.READY)
            yield ParentAction.START, [number for number in ready if self.task(number).sub_plan]
            yield ParentAction.DO, ready
        else:
            yield ParentAction.STOP, [number for number in of(*_UNFINISHED) if number not in self.told]
        yield ParentAction.WAIT, of(*_UNFINISHED)
        yield ParentAction.FAIL, broken

    def _own(self, number: int, needed: Iterable[TaskStatus]) -> TaskStatus:
        return TaskStatus.DONE if number in self.done else _before(needed)

    def _theirs(self, number: int, needed: Iterable[TaskStatus]) -> TaskStatus:
        part = self.task(number).part(number)
        if part in self.merged:  # guard: nothing is merged twice
            return TaskStatus.DONE
        if part in self.left_out:
            return TaskStatus.LEFT_OUT
        child = self.children.get(part)
        # Created but never queued: its creator was killed.
        if child is None or (child.phase is Phase.ACTION and child.state is PlanState.QUEUED):
            return _before(needed)
        return _fate_of(child)


def _before(needed: Iterable[TaskStatus]) -> TaskStatus:
    """Return the status of a task that has not started, given its dependencies."""
    needed = list(needed)
    if any(
        task_status in (*_BROKEN, TaskStatus.BLOCKED) for task_status in needed
    ):  # guard: nothing is built on failed work
        return TaskStatus.BLOCKED
    if TaskStatus.LEFT_OUT in needed:
        return TaskStatus.LEFT_OUT
    return (
        TaskStatus.READY
        if all(task_status is TaskStatus.DONE for task_status in needed)
        else TaskStatus.PENDING
    )


def _fate_of(child: Plan) -> TaskStatus:
    if child.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
        return TaskStatus.FINISHED
    if child.state is PlanState.ERRORED:
        return TaskStatus.FAILED
    if child.state.ended:
        return TaskStatus.CANCELLED
    if child.state is PlanState.WAITING and not is_parked(child):
        return TaskStatus.WAITING
    return TaskStatus.RUNNING


def is_merged(calls: Iterable[ToolCall], part: str | None) -> bool:
    """Return whether these calls of a parent merged the part. An incompletely recorded merge counts as
    well.
    """
    taken = (CallState.ENDING, CallState.ENDED)
    return any(call.state in taken and part_of_merge(call) == part for call in calls if part is not None)


def can_continue(child: Plan) -> bool:
    """Return whether the sub-plan can still deliver a result: it has started and has not failed or ended."""
    return not (child.state.ended or child.state is PlanState.ERRORED or child.phase is Phase.ACTION)


def ended_by(reason: str) -> tuple[PlanState, str]:
    """Return the state and error of a plan that is ended for `reason`: failed after a stop or a pause, which
    allow a resume; otherwise cancelled.
    """
    if is_resumable_stop(reason):
        return PlanState.ERRORED, reason
    return PlanState.CANCELLED, f"cancelled: {reason}"


def is_at_rest(plan: Plan) -> bool:
    """Return whether the plan cannot continue by itself: neither it nor a plan below it is running, or waits
    for the reset of a usage limit.
    """
    if plan.state.running or plan.phase_state == (Phase.STRATEGIZE, PlanState.COMPLETE) or is_parked(plan):
        return False
    return not waits_for_sub_plans(plan) or bool(asked_below(plan))


def asked_below(plan: Plan) -> tuple[JsonValue, ...]:
    """Return the pending requests of the plans below, as stored in this plan."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    asked = waited.get("asks")
    return tuple(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else ()


def failed_below(plan: Plan) -> tuple[JsonValue, ...]:
    """Return the failures of the plans below, as stored in this plan."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    failed = waited.get("failed")
    return tuple(failed) if isinstance(failed, Sequence) and not isinstance(failed, str) else ()


def waits_for_sub_plans(plan: Plan) -> bool:
    """Return whether the plan waits until one of its sub-plans is at rest (see `is_at_rest`)."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return plan.state is PlanState.WAITING and waited.get("for") == SUB_PLANS


def child_versions(children: Iterable[Plan]) -> dict[str, JsonValue]:
    """Return the versions of the sub-plans that a parent saw when it began to wait."""
    return {child.id: child.version for child in children}


def has_news(parent: Plan, children: Iterable[Plan]) -> bool:
    """Return whether a sub-plan came to rest after the parent began to wait. A sub-plan that the parent did
    not see at that time belongs to a corrected decision and is ignored.
    """
    waited = parent.waiting_for if isinstance(parent.waiting_for, Mapping) else {}
    known = waited.get("seen")
    known = known if isinstance(known, Mapping) else {}
    return any(
        is_at_rest(child) and known.get(child.id, child.version) != child.version for child in children
    )


class SubGoal(Struct, frozen=True):
    """One goal: in words, or an action with arguments. `needs` are the names of the goals it depends on."""

    name: str
    goal: str = ""
    action: str | None = None
    arguments: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    needs: tuple[str, ...] = ()
    actor: str | None = None
    model: str | None = None
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()

    def to_json(self) -> JsonValue:
        """Return the goal as the request of the parent stores it."""
        return freeze(facts_of(self))


class Goals(Struct, frozen=True):
    """A list of goals, its purpose, and the checks and invariants of the merged result."""

    goals: tuple[SubGoal, ...]
    goal: str = ""
    max_parallel: int | None = None
    fail_fast: bool = False
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The purpose in the user's words, or the names of the goals."""
        noun = "goal" if len(self.goals) == 1 else "goals"
        return self.goal or f"{len(self.goals)} {noun}: {', '.join(one.name for one in self.goals)}"


def circle_in(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a cycle of names, each of which needs the next, ending with the first; empty if there is none.

    Unknown names need nothing.
    """
    left = {name: [need for need in named if need in needs] for name, named in needs.items()}
    while True:
        ready = [name for name, named in left.items() if not any(need in left for need in named)]
        if not ready:
            break
        for name in ready:
            del left[name]
    if not left:
        return ()
    # Each remaining name needs another remaining one, so following them ends in a cycle.
    walked = [min(left)]
    while walked.count(walked[-1]) == 1:
        walked.append(next(need for need in left[walked[-1]] if need in left))
    return tuple(walked[walked.index(walked[-1]) :])
