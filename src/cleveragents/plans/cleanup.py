"""Deletion of plans, and cleanup of the disk space that ended plans still use.

Cleanup removes only sandboxes that are no longer needed: the sandbox of a plan that was applied, undone,
discarded or cancelled, or that changed nothing. The following plans keep their sandboxes, however old: a plan
that needs a person (a pending request, or a result to review), a plan with unrecorded edits in its sandbox,
and a sub-plan whose result is not merged yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    GitFailed,
    PlanError,
    Remedy,
    SandboxBusy,
    SandboxMissing,
    SandboxRefused,
    UnknownPlan,
)
from cleveragents.plans.history import PlanHistory, named
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.plans.model.usage_wait import is_parked
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["PlanCleanup", "RemovedSandbox"]

_PAGE = 500
_DELETED = "deleted"
_OF_SESSIONS = (["turn"], ["compact"])


@dataclass(frozen=True, slots=True)
class RemovedSandbox:
    """A sandbox that was removed, or would be. `ends` lists the actions that its plan no longer allows."""

    plan_id: str
    state: str
    bytes: int
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanCleanup:
    """Deletes plans and removes sandboxes. Stateless: any process may clean up at any time."""

    plans: SqlPlanStore
    sandboxes: Sandboxes
    history: PlanHistory
    clock: Clock
    checkpoints: SqlCheckpointStore
    merged_parts: Callable[[str], frozenset[str]] = lambda plan_id: frozenset()

    def loss_of(self, plan: Plan) -> str | None:
        """Return a description of the work that a deletion of the plan and its sub-plans would destroy; None
        if there is none.
        """
        if not plan.state.ended and self.history.differences(plan.id):
            return "its changes were never applied"
        edited = self._edited(plan)
        if edited is not None or plan.state.ended:
            return edited
        merged = self.merged_parts(plan.id)
        lost = (
            (child, self.loss_of(child)) for child in self.plans.children(plan.id) if child.key not in merged
        )
        return next((f"sub-plan {child.id}: {loss}" for child, loss in lost if loss is not None), None)

    def delete(self, plan: Plan) -> None:
        """Delete all records of the plan and its sub-plans, then their sandboxes.

        Raises `PlanError` if the plan runs or is a sub-plan; `StalePlan`. The records are deleted first, in
        one transaction; if the plan is resumed meanwhile, its records and its sandbox stay. `collect` removes
        a sandbox that could not be deleted because of a crash or a reader.
        """
        if plan.state.running or is_parked(plan):
            doing = "running" if plan.state.running else "waiting for a usage limit"
            raise PlanError(plan.id, f"still {doing}; cancel the plan first")
        if plan.parent_id is not None:  # guard: its parent would create it again, or miss its changes
            whole = Remedy("plan.delete", plan.root, text="Delete the whole plan")
            raise PlanError(plan.id, f"part of plan {plan.parent_id}; delete the whole plan", (whole,))
        below = self._below(plan)
        self.plans.delete(plan, now=self.clock.now())
        for plan_id in (plan.id, *below):
            self._removed(plan_id)

    def _below(self, plan: Plan) -> list[str]:
        children = self.plans.children(plan.id)
        return [plan_id for child in children for plan_id in (child.id, *self._below(child))]

    def collect(
        self,
        older_than: timedelta,
        *,
        quota_bytes: int | None = None,
        dry_run: bool = False,
        told: Callable[[str], None] | None = None,
        about: Callable[[RemovedSandbox], None] | None = None,
    ) -> Sequence[RemovedSandbox]:
        """Remove the sandboxes of plans that ended `older_than` ago; then those of younger ended plans,
        oldest first, until all sandboxes fit the quota.

        `told` receives the reason for each sandbox that stays; `about` receives each sandbox before it is
        removed.
        """
        # Read the sizes first: a sandbox whose plan is not found afterwards has none.
        sizes = dict(self.sandboxes.sizes())
        total = sum(sizes.values())
        cutoff = self.clock.now() - older_than
        plans = self._plans_of(sizes)
        freed: list[RemovedSandbox] = []
        for plan_id in sizes.keys() - plans.keys():
            one = RemovedSandbox(plan_id, _DELETED, sizes[plan_id])
            if dry_run or self._removed(plan_id, one, about):
                freed.append(one)
                total -= one.bytes
        for plan in sorted(plans.values(), key=lambda plan: plan.updated_at):
            over = quota_bytes is not None and total > quota_bytes
            if (plan.updated_at > cutoff and not over) or not self._is_over(plan, told):
                continue
            one = RemovedSandbox(plan.id, plan.state.value, sizes[plan.id], self._ended_by_removing(plan))
            if dry_run or self._removed(plan.id, one, about):
                freed.append(one)
                total -= one.bytes
        return freed

    def forget_conversations(self, older_than: timedelta, *, dry_run: bool = False) -> Sequence[str]:
        """Delete the conversations of plans that ended `older_than` ago, and return the ids of those plans.
        Only a resumed run needs its conversation, and an ended plan is not resumed. Decisions, calls and
        changes of the plans stay.
        """
        cutoff = self.clock.now() - older_than
        threads = (thread.split("/") for thread in self.checkpoints.threads())
        # guard: the threads of a session (`ID/turn/1`) are deleted with the session, not before
        said = sorted({parts[0] for parts in threads if parts[1:2] not in _OF_SESSIONS})
        forgotten = [plan_id for plan_id in said if self.is_past(plan_id, cutoff)]
        for plan_id in forgotten:
            if not dry_run:
                self.checkpoints.delete_threads(plan_id)
        return forgotten

    def is_past(self, plan_id: str, cutoff: datetime) -> bool:
        """Return whether the plan, or its root, ended before the cutoff or is deleted."""
        try:
            plan = self.plans.get(plan_id)
            plan = plan if plan.parent_id is None else self.plans.get(plan.root)
        except UnknownPlan:
            return True
        if not plan.state.ended:  # guard: a resumed plan continues its conversation
            return False
        return plan.updated_at <= cutoff

    def _plans_of(self, sizes: Mapping[str, int]) -> Mapping[str, Plan]:
        after: str | None = None
        found: dict[str, Plan] = {}
        while page := self.plans.list(limit=_PAGE, after=after):
            after = page[-1].id
            found |= {plan.id: plan for plan in page if plan.id in sizes}
        return found

    def _is_over(self, plan: Plan, told: Callable[[str], None] | None) -> bool:
        """Return whether the plan no longer needs its sandbox."""
        if not plan.state.ended and self._is_undecided(plan):
            return False
        edited = self._edited(plan)
        if edited is not None:  # guard: unrecorded edits exist nowhere else
            if told is not None:
                told(f"plan {plan.id} keeps its sandbox: {edited}; delete the plan to remove it")
            return False
        # It may have been resumed meanwhile.
        return self.plans.get(plan.id).version == plan.version

    def _is_undecided(self, plan: Plan) -> bool:
        """Return whether a person or the parent plan still has to decide about the result."""
        if plan.parent_id is None:
            rests = plan.state in (PlanState.COMPLETE, PlanState.ERRORED)
            return not rests or self.history.has_changes(plan.id) or self._has_unmerged(plan)
        try:
            parent = self.plans.get(plan.parent_id)
        except UnknownPlan:
            return False
        if parent.state.ended:
            return False
        # An unmerged result exists nowhere else, and is merged even if it changed nothing.
        return plan.key not in self.merged_parts(parent.id)

    def _has_unmerged(self, plan: Plan) -> bool:
        """Return whether a sub-plan can still resume. Such a sub-plan needs the sandbox of its parent to
        start and to merge.
        """
        merged = self.merged_parts(plan.id)
        children = self.plans.children(plan.id)
        return any(child.key not in merged and not child.state.ended for child in children)

    def _edited(self, plan: Plan) -> str | None:
        """Return a description of the unrecorded edits in the sandbox, or None."""
        try:
            found = self.history.unrecorded(plan.id, self.sandboxes.open(plan.id))
        except SandboxMissing:
            return None
        except SandboxRefused as refusal:
            return f"the sandbox could not be checked for edits ({refusal.reason})"
        except GitFailed as failure:  # the repository whose objects it borrows is missing
            return f"the sandbox could not be checked for edits ({failure.problem})"
        return f"unrecorded edits in {named(found)}" if found else None

    def _ended_by_removing(self, plan: Plan) -> tuple[str, ...]:
        if not self.history.has_changes(plan.id):
            return ()
        return ("undo", "diff") if plan.state is PlanState.APPLIED else ("diff",)

    def _removed(
        self,
        plan_id: str,
        one: RemovedSandbox | None = None,
        about: Callable[[RemovedSandbox], None] | None = None,
    ) -> bool:
        if one is not None and about is not None:
            about(one)
        try:
            self.sandboxes.remove(plan_id)
        except SandboxBusy:
            return False  # another process works in it, whatever the state of the plan
        return True
