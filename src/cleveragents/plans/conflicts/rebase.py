"""Rebase of a plan: its result, merged with the current files of the repository, in its sandbox.

After a rebase the plan's changes start from the files that were merged, so an apply conflicts only with later
changes of the repository. Changes that do not overlap are merged. If both sides changed the same lines, the
conflict stays open until the agent or a person resolves it.

A rebase is one recorded call in the usual states, and its result names the new base. So an interrupted rebase
is finished or counts as never made, and a rollback of the call restores the earlier base. The files of the
user are only read, under the lock of the repository that an apply holds. The current files of a git remote
are those of the branch that an apply would push to; nothing is pushed.

Submodules, which are empty directories in a sandbox, keep the commits they had when the sandbox was created,
also in the new base. So the plan does not change them, and an apply keeps the current commits of the
repository.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cleveragents.access.model.project import remote_of
from cleveragents.apply.ports import Applier, ApplyOptions
from cleveragents.changes.model.merge_conflict import (
    REBASE,
    MergeOutcome,
    TreeMerge,
    last_rebase,
    open_conflicts,
)
from cleveragents.core.change import GITLINK, FileState
from cleveragents.core.errors import ApplyRefused, PlanError, Remedy, ResultChanged, StalePlan
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState
from cleveragents.plans.apply_policy import ensure_rebasable
from cleveragents.plans.calls.tool_execution import ToolExecution
from cleveragents.plans.conflicts.resolution import conflicts_at
from cleveragents.plans.history import PlanResult, restore_states
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.sandbox_edits import SandboxEdits
from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = ["PlanRebase"]

_TITLE = "the current files of the repository"
_REBASED = (Phase.EXECUTE, PlanState.QUEUED)


@dataclass(frozen=True, slots=True)
class PlanRebase:
    """Rebases plans. Stateless: any thread and process may rebase any plan. Of several concurrent calls, one
    succeeds.
    """

    sandbox_edits: SandboxEdits
    applier: Applier
    result: PlanResult
    lifecycle: PlanLifecycle
    execution: Callable[[Plan, Sandbox], ToolExecution]

    def rebase(self, plan: Plan, told: Callable[[str], None] | None = None) -> Plan:
        """Merge the current files of the repository into the result, and queue the plan: a worker lets the
        agent resolve open conflicts and runs the checks. Returns the plan unchanged if the repository has not
        changed since the plan's base.

        If an earlier rebase was killed before it queued the plan, that rebase is continued. Raises the same
        errors as `merge`.
        """
        is_begun = bool(self._open_conflicts(plan)) and self._is_begun(plan)
        if not is_begun and self.merge(plan, told) is None and not self._is_begun(plan):
            return plan
        return self.lifecycle.queue(plan, wanted=_REBASED)

    def _is_begun(self, plan: Plan) -> bool:
        """Return whether a rebase merged this version of the plan but did not queue the plan. A blocked plan
        counts as well, because an apply may have moved the plan after the merge.
        """
        rebase = last_rebase(self.result.history.merge_calls(plan.id))
        if rebase is None:
            return False
        return plan.state is PlanState.CONSTRAINED or MergeOutcome.of_call(rebase).version == plan.version

    def merge(
        self,
        plan: Plan,
        told: Callable[[str], None] | None = None,
        *,
        path: str | None = None,
        of: str | None = None,
    ) -> MergeOutcome | None:
        """Merge the current files of the repository into the result; return None if they have not changed
        since the plan's base. Does not queue the plan. `told` is called if another plan is being applied.
        With a `path`, the merge must have a conflict at this path. `of` is the tree of the result to merge.

        Raises `PlanError` if the plan has no result to rebase or has open conflicts; `NeedsHuman` if its
        sandbox has unrecorded edits; `StalePlan` if the plan changed meanwhile; `ResultChanged` if the result
        is not the tree `of`; `ToolRefused` if there is no conflict at the path; `ApplyBusy`, `ApplyRefused`,
        `RemoteUnreachable`. If an error is raised, nothing has changed.
        """
        self._ensure_whole(plan)
        ensure_rebasable(plan)
        with self.sandbox_edits.idle(plan) as sandbox:
            self._ensure_whole(plan)  # guard: the rebase of a dead process may have left conflicts
            self.result.history.ensure_taken_in(plan.id, sandbox)  # guard: edits exist nowhere else
            left_out = self.result.rejected(plan)  # before the tree: a later rejection is not in it
            seen = self.result.decided(plan, sandbox)
        tree, base = seen
        if of not in (None, tree):  # guard: a capture, rollback or review keeps the version
            raise ResultChanged(plan.id)
        try:
            with self.applier.prepare(plan.id, sandbox, tree, ApplyOptions(told, base=base)) as preparation:
                current = preparation.keep_current()
                onto = _with_own_submodules(plan.id, sandbox, (base, tree, current))
                # guard: another machine could not make this tree again from the commits of the remote
                if remote_of(plan.resource) is not None and onto != current:
                    raise ApplyRefused(plan.id, "the repository moved a submodule; start a new plan")
                if onto == base:
                    return None
                with self.sandbox_edits.idle(plan) as sandbox:
                    now = self.result.decided(plan, sandbox)
                    if now != seen:  # guard: another process rebased or rolled back
                        raise StalePlan(plan.id, plan.version)
                    self.result.history.ensure_taken_in(plan.id, sandbox)
                    merged = sandbox.merge(base, tree, onto, labels=(f"plan {plan.id}", "the repository"))
                    if path is not None:
                        conflicts_at([one for one in merged.conflicts if one.is_choice], path)
                    return self._recorded(plan, sandbox, merged, (base, onto), left_out)
        except ApplyRefused as refused:
            raise replace(refused, wanted="rebased") from refused

    def _ensure_whole(self, plan: Plan) -> None:
        """Raise `PlanError` if the plan has open conflicts. A second merge would nest their markers."""
        if self._open_conflicts(plan):
            resolve = Remedy("plan.resolve", plan.id, {"take": None, "path": None}, "Resolve each conflict")
            raise PlanError(plan.id, "conflicts are not resolved", (resolve,))

    def _open_conflicts(self, plan: Plan) -> Sequence[object]:
        return open_conflicts(self.result.history.merge_calls(plan.id))

    def _recorded(
        self,
        plan: Plan,
        sandbox: Sandbox,
        merged: TreeMerge,
        bases: tuple[str, str],
        left_out: tuple[str, ...],
    ) -> MergeOutcome:
        """Write the merged files and record the call, with the old and the new base, and the ids of the hunks
        that were left out. The caller holds `sandbox.writing()`.
        """
        base, onto = bases
        execution = self.execution(plan, sandbox)
        calls, now, faults = execution.calls, execution.clock.now, execution.faults
        about = FrozenObject({"title": _TITLE})
        call = calls.add(
            plan.id, REBASE, about, step=None, state=CallState.STARTED, now=now(), version=plan.version
        )
        changeset = execution.context.start_changeset()
        call = calls.move(call, CallState.STARTED, now=now(), changeset_id=changeset)
        faults.reach("rebase.started.after")
        changed = sandbox.changes_of(merged.tree)
        restore_states(sandbox, {path: step.after for path, step in changed.items()})
        faults.reach("rebase.files.after")
        files = len(sandbox.changes_of(onto, base))
        outcome = MergeOutcome(
            "", "", _TITLE, base, merged.tree, files, onto, merged.conflicts, left_out, plan.version
        )
        call = calls.move(call, CallState.ENDING, now=now(), result=outcome.to_json())
        faults.reach("rebase.ending.after")
        done = MergeOutcome.of_call(execution.finish(call))
        faults.reach("rebase.ended.after")
        return done


def _with_own_submodules(plan_id: str, sandbox: Sandbox, trees: tuple[str, str, str]) -> str:
    """Return the tree `onto`, with the submodules of the sandbox in place of its own.

    Raises `ApplyRefused` if the repository has files in the place of a submodule, or if the plan changed a
    submodule in another way than the repository.
    """
    base, result, onto = trees
    drift = sandbox.changes_of(onto)
    moved = [path for path, step in drift.items() if _is_link(step.before) or _is_link(step.after)]
    if not moved:
        return onto
    own, states = sandbox.changes_of(result, base), {path: step.after for path, step in drift.items()}
    there = [path for path, state in states.items() if state is not None and not _is_link(state)]
    for path in moved:
        was_link = _is_link(drift[path].before)
        if was_link and any(f"{name}/".startswith(f"{path}/") for name in there):
            raise ApplyRefused(plan_id, f"{path} is no longer a submodule; start a new plan")
        if path in own and own[path].after != states[path]:
            raise ApplyRefused(
                plan_id, f"you and the plan both changed the submodule {path}; start a new plan"
            )
        if path not in own and was_link:
            del states[path]
        else:
            states[path] = None
    return sandbox.tree(states)


def _is_link(state: FileState | None) -> bool:
    return state is not None and state.mode == GITLINK
