"""Deletes plans and frees the disk that ended ones still use.

Only what nobody can miss is removed by itself: the sandbox of a plan that was applied, undone, rejected or
cancelled, or that changed nothing. Whoever still has a decision to make keeps everything, however old; and
so does whoever edited files in a sandbox, which no record knows. The result of a sub-plan is its parent's as
soon as it is merged, and until then nowhere else.
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
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["PlanCleanup", "RemovedSandbox"]

_PAGE = 500
_DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class RemovedSandbox:
    """A sandbox that was removed, or would be. `ends` is what cannot be done with its plan without it."""

    plan_id: str
    state: str
    bytes: int
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanCleanup:
    """Stateless but for its stores; any process may clean up, at any time."""

    plans: SqlPlanStore
    sandboxes: Sandboxes
    history: PlanHistory
    clock: Clock
    checkpoints: SqlCheckpointStore
    merged_parts: Callable[[str], frozenset[str]] = lambda plan_id: frozenset()

    def loss_of(self, plan: Plan) -> str | None:
        """What would be lost for good with the plan, its sub-plans and their sandboxes; None if nothing."""
        if not plan.state.ended and self.history.differences(plan.id):
            return "it holds changes that were never applied"
        edited = self._edited(plan)
        if edited is not None or plan.state.ended:
            return edited
        merged = self.merged_parts(plan.id)
        lost = (
            (child, self.loss_of(child)) for child in self.plans.children(plan.id) if child.key not in merged
        )
        return next((f"its sub-plan {child.id}: {loss}" for child, loss in lost if loss is not None), None)

    def delete(self, plan: Plan) -> None:
        """Removes all records of the plan and its sub-plans, then their sandboxes. `PlanError` while it runs,
        or is a part of another; `StalePlan`.

        In this order, because the first is decided in one step: a plan that somebody resumed meanwhile keeps
        both. A sandbox that is left over by a crash, or because somebody looks at it, is `collect`'s.
        """
        if plan.state.running:
            raise PlanError(plan.id, "it is running; cancel it first")
        if plan.parent_id is not None:  # guard: its parent would make it again, or miss what it did
            whole = Remedy("plan.delete", plan.root, text="Delete the whole plan")
            raise PlanError(plan.id, f"it is a part of plan {plan.parent_id}", (whole,))
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
        """Removes sandboxes of plans that ended so long ago; then, oldest first, of younger ended ones until
        all sandboxes together use no more than the quota. `told` hears why one of those stays, `about` which
        one is removed next."""
        # Sizes first: whose plan is not found after that has none.
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
        """Forgets what was said in plans that ended so long ago, and returns which: a run goes on from there,
        and none of them ever will. What they decided, did and changed is kept elsewhere."""
        cutoff = self.clock.now() - older_than
        said = sorted({thread.partition("/")[0] for thread in self.checkpoints.threads()})
        forgotten = [plan_id for plan_id in said if self.is_past(plan_id, cutoff)]
        for plan_id in forgotten:
            if not dry_run:
                self.checkpoints.delete_threads(plan_id)
        return forgotten

    def is_past(self, plan_id: str, cutoff: datetime) -> bool:
        """Whether the plan, or that of which it is a part, had ended for good by then, or is deleted."""
        try:
            plan = self.plans.get(plan_id)
            plan = plan if plan.parent_id is None else self.plans.get(plan.root)
        except UnknownPlan:
            return True
        if not plan.state.ended:  # guard: what may be resumed goes on from there
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
        """Whether nobody can miss its sandbox."""
        if not plan.state.ended and self._is_undecided(plan):
            return False
        edited = self._edited(plan)
        if edited is not None:  # guard: what nobody recorded is nowhere else
            if told is not None:
                told(f"plan {plan.id} keeps its sandbox: {edited}; delete the plan to remove it")
            return False
        # It may have been resumed while we looked.
        return self.plans.get(plan.id).version == plan.version

    def _is_undecided(self, plan: Plan) -> bool:
        """Whether somebody still has to say what becomes of it: a person, or the plan it is a part of."""
        if plan.parent_id is None:
            rests = plan.state in (PlanState.COMPLETE, PlanState.ERRORED)
            return not rests or bool(self.history.changes(plan.id)) or self._has_unmerged(plan)
        try:
            parent = self.plans.get(plan.parent_id)
        except UnknownPlan:
            return False
        if parent.state.ended:
            return False
        # What is not merged is nowhere else, and is to be merged even where it changed nothing.
        return plan.key not in self.merged_parts(parent.id)

    def _has_unmerged(self, plan: Plan) -> bool:
        """Whether a part of it can go on: that begins with, and is merged into, what its sandbox holds."""
        merged = self.merged_parts(plan.id)
        children = self.plans.children(plan.id)
        return any(child.key not in merged and not child.state.ended for child in children)

    def _edited(self, plan: Plan) -> str | None:
        """What its sandbox holds that is in no record, in words."""
        try:
            found = self.history.unrecorded(plan.id, self.sandboxes.open(plan.id))
        except SandboxMissing:
            return None
        except SandboxRefused as refusal:
            return f"it cannot be told whether its files were edited ({refusal.reason})"
        except GitFailed as failure:  # the repository whose objects it borrows is away
            return f"it cannot be told whether its files were edited ({failure.problem})"
        return f"{named(found)} changed in it, and that is not recorded" if found else None

    def _ended_by_removing(self, plan: Plan) -> tuple[str, ...]:
        if not self.history.changes(plan.id):
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
            return False  # somebody works in it, whatever the plan's state says
        return True
