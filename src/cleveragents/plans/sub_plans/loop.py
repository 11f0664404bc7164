"""The loop of a parent plan: merge finished sub-plans, start ready ones, do its own tasks, wait for the rest.

Only the parent's own job touches the parent. The job ends when only waiting is left, so a waiting plan
occupies no worker. A sub-plan that ends or needs a person queues the parent again (`PlanQueue.wake`). All
facts are read from records, so a parent that was killed at any point runs again.

A merge is a recorded call of the parent and goes through the states of every call, so it may be killed
anywhere:

    started ─▶ (fetched, merged, written to the files) ─▶ ending, with its result ─▶ (recorded) ─▶ ended

For a *started* merge, `ToolExecution.settle` has restored the files, and the merge is made again. For an
*ending* merge, the result names the merged tree, and the recording is completed from that tree. Only this
call determines whether a sub-plan is merged. A rolled-back merge does not count, so a resumed parent merges
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

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
from cleveragents.plans.history import PlanHistory, PlanResult, restore_states
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.sub_plan import ParentAction, TreeStep, TreeView
from cleveragents.plans.sub_plans.messages import (
    failure_message,
    left_out_message,
    name_cancelled,
    parts_left_out,
    place_of,
    waiting_for_children,
    waiting_for_resolution,
)

if TYPE_CHECKING:
    from cleveragents.plans.actors.actor_stage import ActorPhase
    from cleveragents.plans.calls.tool_execution import ToolExecution
    from cleveragents.plans.lifecycle import PlanLifecycle
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore
    from cleveragents.plans.sub_plans.spawn import SubPlanSpawn
    from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["TASK", "SubPlanMerge", "SubPlans", "TaskExecutor"]


TASK = "task"
"""The tool of the calls that record a finished task of the parent itself."""

_TITLE_CHARACTERS = 200


class TaskExecutor(Protocol):
    """Does the tasks of the parent itself. A plan without actors has no executor."""

    def do(self, number: int, task: Task) -> None:
        """Do the task; a repeated call does nothing."""
        ...

    def resolve(self, conflicts: Sequence[MergeConflict]) -> None:
        """Resolve as many of the conflicts as possible."""
        ...


@dataclass(frozen=True, slots=True)
class SubPlanMerge:
    """Merges the results of sub-plans into their parent. Stateless, so any thread may share it; a merge locks
    the parent's sandbox.
    """

    sandboxes: Sandboxes
    history: PlanHistory
    result: PlanResult
    faults: FaultPoints = field(default_factory=NoFaults)

    def merged_parts(self, plan_id: str) -> frozenset[str]:
        """Return the parts whose sub-plans are merged and not rolled back."""
        done = (call for call in self.history.calls(plan_id) if call.state is CallState.ENDED)
        return frozenset(part for part in map(part_of_merge, done) if part is not None)

    def open_conflicts(self, plan_id: str) -> Sequence[MergeConflict]:
        """Return the open conflicts, in the order in which they arose."""
        return open_conflicts(self.history.merge_calls(plan_id))

    def merge(
        self,
        parent: Plan,
        child: Plan,
        part: str,
        execution: ToolExecution,
        ensure_wanted: Callable[[], None] = lambda: None,
    ) -> MergeOutcome:
        """Merge the result of the child, without the changes that a reviewer left out, into the parent's
        sandbox. A repeated call returns the first outcome.

        `execution` is the parent's. `ensure_wanted` is called just before the merge, when a person can no
        longer act on the child (`SandboxEdits.unmerged`), and may raise. Conflicts are part of the outcome,
        not an error. Raises `SandboxMissing` if the child's sandbox is gone before it was merged,
        `NeedsHuman` if a hunk of the child needs a new verdict, and `SandboxBusy`, `Cancelled`, `StaleFence`.
        If an error is raised, nothing is merged.
        """
        earlier = execution.earlier(merge_step(part))
        if earlier is not None and earlier.state is CallState.ENDED:  # guard: a merge is not made twice
            return MergeOutcome.of_call(earlier)
        execution.stop.raise_if_cancelled()
        with execution.sandbox.writing(timeout_seconds=execution.busy_seconds):
            ensure_wanted()
            with suppress(SandboxMissing):  # the trees of an earlier merge may still be here
                self.result.ensure_decided(child, self.sandboxes.open(child.id))
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
        """Merge the files and return the call in the state *ending*; its changes are not recorded yet."""
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
        restore_states(sandbox, {path: step.after for path, step in sandbox.changes_of(merged.tree).items()})
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
        """Copy the tree that the child started from and its result into the parent's sandbox; return both."""
        sandbox = execution.sandbox
        try:
            theirs = self.sandboxes.open(child.id)
        except SandboxMissing:
            # Its sandbox was removed after the merge, and the merge was rolled back: the trees are still
            # here.
            for kept in _made_before(execution.calls.of_step(call.plan_id, call.step)):
                trees = kept.base, kept.theirs
                if kept.plan_id == child.id and all(map(sandbox.keeps, trees)):
                    return trees
            raise
        wanted = self.result.tree(child, theirs)
        sandbox.take_in(theirs, wanted)
        self.faults.reach("merge.taken_in.after")
        return theirs.base, wanted


class SubPlans(Struct, frozen=True):
    """Advances parents. Stateless: any number may run at the same time, each in its own job."""

    plans: SqlPlanStore
    lifecycle: PlanLifecycle
    spawning: SubPlanSpawn
    sub_plan_merge: SubPlanMerge
    faults: FaultPoints

    def advance(
        self, ground: ActorPhase, executor: TaskExecutor | None, say: Callable[[str], None]
    ) -> JsonValue | None:
        """Advance the plan's tasks as far as possible. Returns None if all are done, otherwise the pending
        request.

        Raises `PlanFailed` if nothing more can be done and something failed; `NeedsHuman`, `Cancelled`.
        """
        if not any(task.sub_plan for task in ground.strategy.tasks):
            return self._alone(ground, executor)
        return _Advance(self, ground, executor, say).run()

    def view_of(self, plan: Plan, strategy: Strategy) -> TreeView:
        """Return the state of the plan's tasks, from its records."""
        calls = self.lifecycle.sandbox_edits.history.calls(plan.id)
        done = {call.arguments["part"] for call in calls if call.tool == TASK and call.is_over}
        children = {str(child.key): child for child in self.plans.children(plan.id)}
        return TreeView(
            strategy,
            {part: children[part] for part in _parts_of(strategy.tasks) if part in children},
            self.sub_plan_merge.merged_parts(plan.id),
            parts_left_out(calls),
            {number for number, task in enumerate(strategy.tasks, start=1) if task.part(number) in done},
        )

    def left_out_of(self, plan: Plan) -> Mapping[int, str]:
        """Return why tasks of the plan are left out, by number."""
        strategy = Strategy.from_json(plan.strategy) if plan.strategy is not None else None
        if strategy is None or not parts_left_out(self.lifecycle.sandbox_edits.history.calls(plan.id)):
            return {}
        return self.view_of(plan, strategy).left_out_why()

    def has_open_conflict(self, plan: Plan) -> JsonValue | None:
        """Return the pending request for the open conflicts of the plan, if any."""
        conflicts = self.sub_plan_merge.open_conflicts(plan.id)
        return waiting_for_resolution(plan, conflicts) if conflicts else None

    def settle_conflicts(self, plan: Plan, executor: TaskExecutor | None) -> JsonValue | None:
        """Let the executor resolve the open conflicts. Returns the pending request for the conflicts that
        stay open; None if there are none.
        """
        conflicts = self.sub_plan_merge.open_conflicts(plan.id)
        if conflicts and executor is not None:
            executor.resolve(conflicts)
        return self.has_open_conflict(plan) if conflicts else None

    def _alone(self, ground: ActorPhase, executor: TaskExecutor | None) -> JsonValue | None:
        if executor is not None:  # otherwise its steps are done and there is nothing else
            for number, task in ground.strategy.ordered_tasks:
                executor.do(number, task)
        return self.settle_conflicts(ground.plan, executor)


@dataclass(slots=True)
class _Advance:
    """The progress of one job through the tasks of a parent. Not thread-safe: used by its job only."""

    parts: SubPlans
    ground: ActorPhase
    executor: TaskExecutor | None
    say: Callable[[str], None]
    told: set[int] = field(default_factory=set)

    def run(self) -> JsonValue | None:
        while True:
            self.ground.job.token.raise_if_cancelled()
            unsettled = self.parts.settle_conflicts(self._plan, self.executor)
            if unsettled is not None:  # guard: nothing is built on a file with both sides of a conflict
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
        assert self.ground.execution is not None  # Execute always has one
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
            return  # another decision about the sub-plan was faster; look again
        self.parts.faults.reach("sub_plan.merge.after")
        files = "1 file" if outcome.files == 1 else f"{outcome.files} files"
        self.say(redact_text(f"merged: {task.name} ({files})"))
        for conflict in (one for one in outcome.conflicts if one.is_choice):
            told = f"conflict in {conflict.shown_path}: {task.name} and earlier changes differ"
            self.say(redact_text(told))

    def _ensure_unchanged(self, child: Plan) -> None:
        if self.parts.plans.get(child.id).version != child.version:  # guard: a discarded result is not merged
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
            return  # another decision about the sub-plan was faster; look again
        self.say(redact_text(f"{place_of(view, number)} starts: {view.task(number).name}"))

    def _stop(self, numbers: Sequence[int], view: TreeView) -> None:
        """Stop the other sub-plans after the first failure."""
        self.told.update(numbers)
        for number in numbers:
            child = view.child(number)
            assert child is not None  # it is unfinished
            with suppress(PlanError):  # it was discarded meanwhile
                self.parts.lifecycle.stop(child)
            self.say(redact_text(f"{place_of(view, number)} stopped: another sub-plan failed"))

    def _do(self, number: int, view: TreeView) -> None:
        task = view.task(number)
        if self.executor is None:
            raise PlanFailed(self._plan.id, f"step {number} ({task.name}) needs an actor; the plan has none")
        self.executor.do(number, task)
        # Recorded, so that a resumed plan does not open the stage for it again.
        part, now = task.part(number), self._execution.clock.now()
        facts = FrozenObject({"part": part, "name": redact_text(task.name)})
        self._execution.calls.add(
            self._plan.id, TASK, facts, step=f"{TASK}-{part}", state=CallState.ENDED, now=now
        )

    def _reconciled(self, view: TreeView) -> bool:
        """Reconcile running sub-plans whose job ended without moving them; return whether any was moved."""
        running = [child for child in view.children.values() if child.state.running]
        return any(self.parts.lifecycle.reconciled(child).version != child.version for child in running)


def _parts_of(tasks: Sequence[Task]) -> list[str]:
    return [task.part(number) for number, task in enumerate(tasks, start=1) if task.sub_plan]


def _made_before(calls: Sequence[ToolCall]) -> Iterator[MergeOutcome]:
    """Yield the outcomes of earlier merges, the last one first."""
    return (MergeOutcome.of_call(call) for call in reversed(calls) if tree_left_by(call) is not None)
