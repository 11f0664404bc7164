"""Merges what sub-plans did into their parent's sandbox, as recorded calls of the parent.

A merge goes through the states of every call, so that it may be killed anywhere:

    started ─▶ (taken in, merged, put into the files) ─▶ ending, with its result ─▶ (recorded) ─▶ ended

Found *started*, `ToolExecution.settle` has put the files back, and the merge is made again. Found *ending*,
its result names the tree, and the recording is finished from that. Whether a sub-plan is merged is told by
that call alone: one that was taken back is none, so a parent that is resumed merges again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cleveragents.changes.model.merge_conflict import (
    MERGE,
    KeptConflict,
    MergeOutcome,
    merge_step,
    open_conflicts,
    part_of_merge,
    tree_left_by,
)
from cleveragents.core.errors import SandboxMissing
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.calls.tool_execution import ToolExecution
from cleveragents.plans.history import PlanHistory, PlanResult, bring_to
from cleveragents.plans.model.plan import Plan
from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["SubPlanMerge"]

_TITLE_CHARACTERS = 200


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

    def open_conflicts(self, plan_id: str) -> Sequence[KeptConflict]:
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
        (`PlanRewriting.unmerged`), `ensure_wanted` is called, and may raise. Conflicts are no error: they
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


def _made_before(calls: Sequence[ToolCall]) -> Iterator[MergeOutcome]:
    """What came of those of the merges that were made, the last one first."""
    return (MergeOutcome.of_call(call) for call in reversed(calls) if tree_left_by(call) is not None)
