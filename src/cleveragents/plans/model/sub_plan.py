"""Sub-plans, as their parent sees them: what became of each, and what is to be done next.

Pure: whoever asks again with the same facts gets the same answer, so a parent that was killed anywhere simply
asks again.

Goals that are reached together: parts of one plan, each a plan of its own, some after others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from cleveragents.changes.model.merge_conflict import part_of_merge
from cleveragents.core.cancellation import is_mere_stop, mere_stop
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze
from cleveragents.core.records import facts_of
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy, Task

__all__ = [
    "CONFLICT",
    "GOALS_ACTION",
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
    "circle_in",
    "ended_by",
    "failed_below",
    "has_news",
    "is_at_rest",
    "is_merged",
    "seen",
    "waits_for_sub_plans",
]


SUB_PLANS = "sub-plans"
"""What a parent waits for while it has nothing to do itself."""

CONFLICT = "conflict"
"""What a parent waits for while nobody has said what is to become of a conflict."""

STOPPED = mere_stop("another part of the same plan failed")
"""The reason for which a plan is stopped that can go on when the other does."""

GOALS_ACTION = "builtin/goals"
"""The action of a plan whose parts were named by its user."""


class TaskStatus(Enum):
    """How it stands with one task of a parent."""

    DONE = "done"
    FINISHED = "finished"  # and to be merged
    RUNNING = "running"
    WAITING = "waiting"  # for a person
    READY = "ready"
    PENDING = "pending"  # for what it needs
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"  # what it needs failed
    LEFT_OUT = "left out"


class ParentAction(Enum):
    """What a parent does next."""

    MERGE = "merge"
    STOP = "stop"
    START = "start"
    DO = "do"
    WAIT = "wait"
    FAIL = "fail"
    END = "end"


_BROKEN = (TaskStatus.FAILED, TaskStatus.CANCELLED)
_UNFINISHED = (TaskStatus.RUNNING, TaskStatus.WAITING)


@dataclass(frozen=True, slots=True)
class TreeStep:
    """What to do, and to which tasks, by number."""

    act: ParentAction
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeView:
    """A parent's tasks and what is known of them: its sub-plans by part, the parts that are merged, those it
    goes on without because a person said so, and the numbers of its own tasks that are `done` and of those
    whose sub-plans were `told` to stop."""

    strategy: Strategy
    children: Mapping[str, Plan]
    merged: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    done: Collection[int] = ()
    told: Collection[int] = ()

    def task_statuses(self) -> Mapping[int, TaskStatus]:
        """Of every task, by number, in an order in which each comes after what it needs."""
        known: dict[int, TaskStatus] = {}
        for number, task in self.strategy.ordered_tasks:
            # What is needed in a circle comes later in the order, and is not waited for.
            needed = [known[need] for need in task.needs if need in known]
            known[number] = self._own(number, needed) if not task.sub_plan else self._theirs(number, needed)
        return known

    def left_out_why(self) -> Mapping[int, str]:
        """Why the tasks are left out that are, by number: what became of a sub-plan, or what it needs."""
        task_statuses = self.task_statuses()
        left = [number for number, fate in task_statuses.items() if fate is TaskStatus.LEFT_OUT]
        why: dict[int, str] = {}
        for number in left:
            child, task = self.child(number), self.task(number)
            if child is not None and task.part(number) in self.left_out:
                why[number] = child.state.value
            else:
                needed = [self.task(need).name for need in task.needs if need in left]
                why[number] = f"needs {', '.join(needed)}"
        return why

    def step(self) -> TreeStep:
        """What comes next: what is finished is taken in before anything else is begun on top of it."""
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
            return [number for number, fate in task_statuses.items() if fate in wanted]

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
        # One that was made and never queued: whoever made it was killed.
        if child is None or (child.phase is Phase.ACTION and child.state is PlanState.QUEUED):
            return _before(needed)
        return _fate_of(child)


def _before(needed: Iterable[TaskStatus]) -> TaskStatus:
    """What has not begun, by what it needs."""
    needed = list(needed)
    if any(
        fate in (*_BROKEN, TaskStatus.BLOCKED) for fate in needed
    ):  # guard: nothing is built on what failed
        return TaskStatus.BLOCKED
    if TaskStatus.LEFT_OUT in needed:
        return TaskStatus.LEFT_OUT
    return TaskStatus.READY if all(fate is TaskStatus.DONE for fate in needed) else TaskStatus.PENDING


def _fate_of(child: Plan) -> TaskStatus:
    if child.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
        return TaskStatus.FINISHED
    if child.state is PlanState.ERRORED:
        return TaskStatus.FAILED
    if child.state.ended:
        return TaskStatus.CANCELLED
    if child.state is PlanState.WAITING:
        return TaskStatus.WAITING
    return TaskStatus.RUNNING


def is_merged(calls: Iterable[ToolCall], part: str | None) -> bool:
    """Whether these calls of a parent, as its history tells them, say that it has the part's result. One
    whose result is about to be recorded is."""
    taken = (CallState.ENDING, CallState.ENDED)
    return any(call.state in taken and part_of_merge(call) == part for call in calls if part is not None)


def can_continue(child: Plan) -> bool:
    """Whether something comes of it that its parent can take in: not of one that failed, has ended, or was
    never begun."""
    return not (child.state.ended or child.state is PlanState.ERRORED or child.phase is Phase.ACTION)


def ended_by(reason: str) -> tuple[PlanState, str]:
    """Where a plan stands that was told to stop, and what it says of that: one that is merely stopped can be
    resumed with the plan that it is a part of."""
    if is_mere_stop(reason):
        return PlanState.ERRORED, reason
    return PlanState.CANCELLED, f"cancelled: {reason}"


def is_at_rest(plan: Plan) -> bool:
    """Whether nothing comes of it without somebody else: not while it, or a plan below it, is at work."""
    if plan.state.running or plan.phase_state == (Phase.STRATEGIZE, PlanState.COMPLETE):
        return False
    return not waits_for_sub_plans(plan) or bool(asked_below(plan))


def asked_below(plan: Plan) -> tuple[JsonValue, ...]:
    """What the plans below it wait for a person to say, as far as it knows."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    asked = waited.get("asks")
    return tuple(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else ()


def failed_below(plan: Plan) -> tuple[JsonValue, ...]:
    """What failed below it while it waits for others, as far as it knows."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    failed = waited.get("failed")
    return tuple(failed) if isinstance(failed, Sequence) and not isinstance(failed, str) else ()


def waits_for_sub_plans(plan: Plan) -> bool:
    """Whether it goes on when one of its sub-plans comes to rest, and not before."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return plan.state is PlanState.WAITING and waited.get("for") == SUB_PLANS


def seen(children: Iterable[Plan]) -> dict[str, JsonValue]:
    """What a parent knew when it began to wait: which version of which sub-plan."""
    return {child.id: child.version for child in children}


def has_news(parent: Plan, children: Iterable[Plan]) -> bool:
    """Whether a sub-plan that its parent waits for came to rest since the parent looked at it. One that it
    did not look at belongs to what was corrected, and is waited for by nobody."""
    waited = parent.waiting_for if isinstance(parent.waiting_for, Mapping) else {}
    known = waited.get("seen")
    known = known if isinstance(known, Mapping) else {}
    return any(
        is_at_rest(child) and known.get(child.id, child.version) != child.version for child in children
    )


@dataclass(frozen=True, slots=True)
class SubGoal:
    """One of them: in words, or an action with its arguments. `needs` are the names of those before it."""

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
        """As the request of the whole keeps it."""
        return freeze(facts_of(self))


@dataclass(frozen=True, slots=True)
class Goals:
    """All of them, what they are for, and what must hold of the merged result."""

    goals: tuple[SubGoal, ...]
    goal: str = ""
    max_parallel: int | None = None
    fail_fast: bool = False
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it is for, in the user's words or else by the names of its parts."""
        noun = "goal" if len(self.goals) == 1 else "goals"
        return self.goal or f"{len(self.goals)} {noun}: {', '.join(one.name for one in self.goals)}"


def circle_in(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Names of which each needs the next, the last one the first again; none, if there is no circle.

    Names that nobody explains need nothing.
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
    # Each of those left needs another of them, so whoever follows that comes round.
    walked = [min(left)]
    while walked.count(walked[-1]) == 1:
        walked.append(next(need for need in left[walked[-1]] if need in left))
    return tuple(walked[walked.index(walked[-1]) :])
