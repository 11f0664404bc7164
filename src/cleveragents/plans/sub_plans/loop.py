"""A parent's loop: takes in what is finished, starts what is ready, does its own tasks, waits for the rest.

The parent's own job alone touches the parent. It never stays while it has nothing to do but wait, so plans
that wait take nobody's place; a sub-plan that comes to rest has it look again (`PlanQueue.wake`). What it
knows is read from records, so a parent that was killed anywhere is simply run again.

Merges what sub-plans did into their parent's sandbox, as recorded calls of the parent.

A merge goes through the states of every call, so that it may be killed anywhere:

    started ─▶ (taken in, merged, put into the files) ─▶ ending, with its result ─▶ (recorded) ─▶ ended

Found *started*, `ToolExecution.settle` has put the files back, and the merge is made again. Found *ending*,
its result names the tree, and the recording is finished from that. Whether a sub-plan is merged is told by
that call alone: one that was taken back is none, so a parent that is resumed merges again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from cleveragents.changes.model.merge_conflict import (
    MERGE,
    MergeConflict,
    MergeOutcome,
    merge_step,
    open_conflicts,
    part_of_merge,
    tree_left_by,
)
from cleveragents.core.errors import PlanError, PlanFailed, SandboxMissing, StalePlan
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.actors.actor_stage import ActorPhase
from cleveragents.plans.calls.tool_execution import DONE, ToolExecution
from cleveragents.plans.history import PlanHistory, PlanResult, bring_to
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.sub_plan import ParentAction, TreeStep, TreeView
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.plans.sub_plans.messages import (
    failure_message,
    left_out_message,
    name_cancelled,
    parts_left_out,
    place_of,
    waiting_for_children,
    waiting_for_resolution,
)
from cleveragents.plans.sub_plans.spawn import SubPlanSpawn
from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["TASK", "SubPlanMerge", "SubPlans", "TaskExecutor"]


TASK = "task"
"""The tool of the calls that say that a parent did a task of its own."""

_TITLE_CHARACTERS = 200


class TaskExecutor(Protocol):
    """Who does what the parent does itself; a plan without actors has none."""

    def do(self, number: int, task: Task) -> None:
        """Does the task, once for all times it is asked."""
        ...

    def resolve(self, conflicts: Sequence[MergeConflict]) -> None:
        """Resolves what it can of them."""
        ...


@dataclass(frozen=True, slots=True)
class SubPlanMerge:
    """Takes results of sub-plans into their parent. Stateless but for its parts, so any thread may share
    it; a merge holds the parent's sandbox."""

    sandboxes: Sandboxes
    history: PlanHistory
    result: PlanResult
    faults: FaultPoints = field(default_factory=NoFaults)

    def merged_parts(self, plan_id: str) -> frozenset[str]:
        """The parts of the plan whose sub-plans are merged, and were not taken back since."""
        done = (call for call in self.history.calls(plan_id) if call.state is CallState.ENDED)
        return frozenset(part for part in map(part_of_merge, done) if part is not None)

    def outcomes(self, plan_id: str) -> Sequence[MergeOutcome]:
        """What came of every merge that counts, in order."""
        calls = (call for call in self.history.calls(plan_id) if call.state is CallState.ENDED)
        return [MergeOutcome.of_call(call) for call in calls if part_of_merge(call) is not None]

    def open_conflicts(self, plan_id: str) -> Sequence[MergeConflict]:
        """The conflicts that nobody has resolved yet, in the order in which they came up."""
        return open_conflicts(self.history.calls(plan_id))

    def merge(
        self,
        parent: Plan,
        child: Plan,
        part: str,
        execution: ToolExecution,
        ensure_wanted: Callable[[], None] = lambda: None,
    ) -> MergeOutcome:
        """Brings what the child did, less what a reviewer left out of it, into the parent's sandbox, once:
        a second time it tells what came of it.

        `execution` is the parent's. Just before it begins, and nobody can decide about the child any more
        (`SandboxEdits.unmerged`), `ensure_wanted` is called, and may raise. Conflicts are no error: they
        are told, and kept. `SandboxMissing` if the child's sandbox is gone and it was never merged here,
        `SandboxBusy`, `Cancelled`, `StaleFence`; then nothing is merged.
        """
        earlier = execution.earlier(merge_step(part))
        if earlier is not None and earlier.state is CallState.ENDED:  # guard: a merge is not made twice
            return MergeOutcome.of_call(earlier)
        execution.stop.raise_if_cancelled()
        with execution.sandbox.writing(timeout_seconds=execution.busy_seconds):
            ensure_wanted()
            call = earlier
            if call is None or call.state is CallState.FAILED:
                arguments = FrozenObject({"plan": child.id, "title": child.goal[:_TITLE_CHARACTERS]})
                now = execution.clock.now()
                step = merge_step(part)
                call = execution.calls.add(
                    parent.id, MERGE, arguments, step=step, state=CallState.STARTED, now=now
                )
            if call.state is CallState.STARTED:
                call = self._done(parent, child, call, execution)
            return MergeOutcome.of_call(execution.finish(call))

    def _done(self, parent: Plan, child: Plan, call: ToolCall, execution: ToolExecution) -> ToolCall:
        """The call with its result, at *ending*; the files are merged, and that is not recorded yet."""
        sandbox = execution.sandbox
        changeset = execution.context.start_changeset()
        call = execution.calls.move(
            call, CallState.STARTED, now=execution.clock.now(), changeset_id=changeset
        )
        self.faults.reach("merge.started.after")
        base, wanted = self._taken_in(child, call, execution)
        ours = sandbox.tree(self.history.states(parent.id))
        labels = (f"plan {parent.id}", f"sub-plan {child.id}")
        merged = sandbox.merge(base, ours, wanted, labels=labels)
        execution.stop.raise_if_cancelled()
        steps = self.history.leading_to(parent.id, sandbox, merged.tree)
        bring_to(sandbox, {path: step.after for path, step in sandbox.changes_of(merged.tree).items()})
        self.faults.reach("merge.files.after")
        outcome = MergeOutcome(
            child.id, "", child.goal, base, merged.tree, len(steps), wanted, merged.conflicts
        )
        call = execution.calls.move(
            call, CallState.ENDING, now=execution.clock.now(), result=outcome.to_json()
        )
        self.faults.reach("merge.ending.after")
        return call

    def _taken_in(self, child: Plan, call: ToolCall, execution: ToolExecution) -> tuple[str, str]:
        """The tree with which the child began and the one it came to; the parent's sandbox keeps both."""
        sandbox = execution.sandbox
        try:
            theirs = self.sandboxes.open(child.id)
        except SandboxMissing:
            # Freed when it was merged, and that was taken back since: what was merged then is still here.
            for kept in _made_before(execution.calls.of_step(call.plan_id, call.step)):
                trees = kept.base, kept.theirs
                if kept.plan_id == child.id and all(map(sandbox.keeps, trees)):
                    return trees
            raise
        wanted = self.result.tree(child, theirs)
        sandbox.take_in(theirs, wanted)
        self.faults.reach("merge.taken_in.after")
        return theirs.base, wanted


@dataclass(frozen=True, slots=True)
class SubPlans:
    """Stateless but for its stores: any number of parents may be at it at once, each in its own job."""

    plans: SqlPlanStore
    lifecycle: PlanLifecycle
    spawning: SubPlanSpawn
    sub_plan_merge: SubPlanMerge
    faults: FaultPoints

    def advance(
        self, ground: ActorPhase, hands: TaskExecutor | None, say: Callable[[str], None]
    ) -> JsonValue | None:
        """Takes the plan's tasks as far as they go now. None when all are done; else what it is to wait for.

        `PlanFailed` when nothing more can be done and some of it failed. `NeedsHuman`, `Cancelled`.
        """
        if not any(task.sub_plan for task in ground.strategy.tasks):
            return self._alone(ground, hands)
        return _Advance(self, ground, hands, say).run()

    def view_of(self, plan: Plan, strategy: Strategy) -> TreeView:
        """How the plan's tasks stand, from its records."""
        calls = self.lifecycle.sandbox_edits.history.calls(plan.id)
        done = {call.arguments["part"] for call in calls if call.tool == TASK and call.state in DONE}
        children = {str(child.key): child for child in self.plans.children(plan.id)}
        return TreeView(
            strategy,
            {part: children[part] for part in _parts_of(strategy.tasks) if part in children},
            self.sub_plan_merge.merged_parts(plan.id),
            parts_left_out(calls),
            {number for number, task in enumerate(strategy.tasks, start=1) if task.part(number) in done},
        )

    def left_out_of(self, plan: Plan) -> Mapping[int, str]:
        """Why the tasks of the plan are left out that are, by number."""
        strategy = Strategy.from_json(plan.strategy) if plan.strategy is not None else None
        if strategy is None or not parts_left_out(self.lifecycle.sandbox_edits.history.calls(plan.id)):
            return {}
        return self.view_of(plan, strategy).left_out_why()

    def has_open_conflict(self, plan: Plan) -> JsonValue | None:
        """What it would have to wait for, if nobody has said what is to become of a conflict."""
        conflicts = self.sub_plan_merge.open_conflicts(plan.id)
        return waiting_for_resolution(plan, conflicts) if conflicts else None

    def _alone(self, ground: ActorPhase, hands: TaskExecutor | None) -> JsonValue | None:
        if hands is not None:  # else it did its steps, and there is nothing else
            for number, task in ground.strategy.ordered_tasks:
                hands.do(number, task)
        return None


@dataclass(slots=True)
class _Advance:
    """One job's way through a parent's tasks. Not thread-safe: the job's own."""

    parts: SubPlans
    ground: ActorPhase
    hands: TaskExecutor | None
    say: Callable[[str], None]
    told: set[int] = field(default_factory=set)

    def run(self) -> JsonValue | None:
        while True:
            self.ground.job.token.raise_if_cancelled()
            unsettled = self._settle_conflicts()
            if unsettled is not None:  # guard: nothing is built on a file that holds both sides
                return unsettled
            view = self._view()
            step = view.step()
            if step.act is ParentAction.END:
                self._tell_left_out(view)
                return None
            if step.act is ParentAction.FAIL:
                self._name_cancelled(view)
                raise failure_message(self._plan, view)
            if step.act is ParentAction.WAIT:
                if self._reconciled(view):
                    continue
                return waiting_for_children(self._plan, view)
            self._take(step, view)

    @property
    def _plan(self) -> Plan:
        return self.ground.plan

    @property
    def _execution(self) -> ToolExecution:
        assert self.ground.execution is not None  # who executes has one
        return self.ground.execution

    def _take(self, step: TreeStep, view: TreeView) -> None:
        first = step.numbers[0]
        if step.act is ParentAction.MERGE:
            self._merge(first, view)
        elif step.act is ParentAction.STOP:
            self._stop(step.numbers, view)
        elif step.act is ParentAction.START:
            for number in step.numbers:
                self._start(number, view)
        else:
            self._do(first, view)

    def _view(self) -> TreeView:
        return replace(self.parts.view_of(self._plan, self.ground.strategy), told=self.told)

    def _merge(self, number: int, view: TreeView) -> None:
        child, task = view.child(number), view.task(number)
        assert child is not None  # it is finished
        self.parts.faults.reach("sub_plan.merge.before")
        try:
            outcome = self.parts.sub_plan_merge.merge(
                self._plan, child, task.part(number), self._execution, lambda: self._ensure_unchanged(child)
            )
        except StalePlan as stale:
            if stale.plan_id != child.id:
                raise
            return  # somebody decided about the sub-plan first; it is looked at again
        self.parts.faults.reach("sub_plan.merge.after")
        files = "1 file" if outcome.files == 1 else f"{outcome.files} files"
        self.say(redact_text(f"merged: {task.name} ({files})"))
        for conflict in (one for one in outcome.conflicts if one.is_choice):
            told = f"conflict in {conflict.shown_path}: {task.name} disagrees with what is there"
            self.say(redact_text(told))

    def _ensure_unchanged(self, child: Plan) -> None:
        if self.parts.plans.get(child.id).version != child.version:  # guard: what was rejected is not merged
            raise StalePlan(child.id, child.version)

    def _tell_left_out(self, view: TreeView) -> None:
        left = [(view.task(number).name, why) for number, why in view.left_out_why().items()]
        if left:
            self.say(left_out_message(left))

    def _name_cancelled(self, view: TreeView) -> None:
        execution, plan = self._execution, self._plan
        past = execution.history.calls(plan.id)
        name_cancelled(plan, view, past, execution.calls, execution.clock.now())

    def _start(self, number: int, view: TreeView) -> None:
        try:
            self.parts.spawning.start(self.ground, self._execution, view, number)
        except StalePlan as stale:
            if stale.plan_id == self._plan.id:
                raise
            return  # somebody decided about the sub-plan before it was queued; it is looked at again
        self.say(redact_text(f"{place_of(view, number)} begins: {view.task(number).name}"))

    def _stop(self, numbers: Sequence[int], view: TreeView) -> None:
        """The first failure ends the others."""
        self.told.update(numbers)
        for number in numbers:
            child = view.child(number)
            assert child is not None  # it is unfinished
            with suppress(PlanError):  # it was rejected meanwhile
                self.parts.lifecycle.stop(child)
            self.say(redact_text(f"{place_of(view, number)} is stopped, because another failed"))

    def _do(self, number: int, view: TreeView) -> None:
        task = view.task(number)
        if self.hands is None:
            raise PlanFailed(self._plan.id, f"step {number} ({task.name}) needs an actor, and it has none")
        self.hands.do(number, task)
        # So that nobody sets the stage for it again whenever the plan goes on.
        part, now = task.part(number), self._execution.clock.now()
        facts = FrozenObject({"part": part, "name": redact_text(task.name)})
        self._execution.calls.add(
            self._plan.id, TASK, facts, step=f"{TASK}-{part}", state=CallState.ENDED, now=now
        )

    def _settle_conflicts(self) -> JsonValue | None:
        conflicts = self.parts.sub_plan_merge.open_conflicts(self._plan.id)
        if conflicts and self.hands is not None:
            self.hands.resolve(conflicts)
        return self.parts.has_open_conflict(self._plan) if conflicts else None

    def _reconciled(self, view: TreeView) -> bool:
        """Whether a sub-plan's job had ended without a word: then it is at rest since now."""
        running = [child for child in view.children.values() if child.state.running]
        return any(self.parts.lifecycle.reconciled(child).version != child.version for child in running)


def _parts_of(tasks: Sequence[Task]) -> list[str]:
    return [task.part(number) for number, task in enumerate(tasks, start=1) if task.sub_plan]


def _made_before(calls: Sequence[ToolCall]) -> Iterator[MergeOutcome]:
    """What came of those of the merges that were made, the last one first."""
    return (MergeOutcome.of_call(call) for call in reversed(calls) if tree_left_by(call) is not None)
