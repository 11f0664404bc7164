"""Deletes plans and frees the disk that ended ones still use.

Only what nobody can miss is removed by itself: the sandbox of a plan that was applied, undone, rejected or
cancelled, or that changed nothing. Whoever still has a decision to make keeps everything, however old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.plans import PlanStore
from cleveragents.application.ports.sandboxes import Sandboxes
from cleveragents.application.services.plan_history import PlanHistory
from cleveragents.domain.plan import Plan, PlanState
from cleveragents.errors import PlanError, SandboxBusy, SandboxMissing

__all__ = ["Freed", "PlanCleanup"]

_PAGE = 500
_DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Freed:
    """A sandbox that was removed, or would be."""

    plan_id: str
    state: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PlanCleanup:
    """Stateless but for its stores; any process may clean up, at any time."""

    plans: PlanStore
    sandboxes: Sandboxes
    history: PlanHistory
    clock: Clock

    def delete(self, plan: Plan) -> None:
        """Removes all records of the plan, then its sandbox. `PlanError` while it runs, `StalePlan`.

        In this order, because the first is decided in one step: a plan that somebody resumed meanwhile keeps
        both. A sandbox that is left over by a crash, or because somebody looks at it, is `collect`'s.
        """
        if plan.state.running:
            raise PlanError(plan.id, "it is running; cancel it first")
        self.plans.delete(plan, now=self.clock.now())
        self._removed(plan.id)

    def collect(
        self, older_than: timedelta, *, quota_bytes: int | None = None, dry_run: bool = False
    ) -> Sequence[Freed]:
        """Removes sandboxes of plans that ended so long ago; then, oldest first, of younger ended ones until
        all sandboxes together use no more than the quota."""
        # Sizes first: whose plan is not found after that has none.
        sizes = dict(self.sandboxes.sizes())
        total = sum(sizes.values())
        cutoff = self.clock.now() - older_than
        plans = self._plans_of(sizes)
        freed: list[Freed] = []
        for plan_id in sizes.keys() - plans.keys():
            if dry_run or self._removed(plan_id):
                freed.append(Freed(plan_id, _DELETED, sizes[plan_id]))
                total -= sizes[plan_id]
        for plan in sorted(plans.values(), key=lambda plan: plan.updated_at):
            over = quota_bytes is not None and total > quota_bytes
            if (plan.updated_at > cutoff and not over) or not self._is_over(plan):
                continue
            if dry_run or self._removed(plan.id):
                freed.append(Freed(plan.id, plan.state.value, sizes[plan.id]))
                total -= sizes[plan.id]
        return freed

    def _plans_of(self, sizes: Mapping[str, int]) -> Mapping[str, Plan]:
        after: str | None = None
        found: dict[str, Plan] = {}
        while page := self.plans.list(limit=_PAGE, after=after):
            after = page[-1].id
            found |= {plan.id: plan for plan in page if plan.id in sizes}
        return found

    def _is_over(self, plan: Plan) -> bool:
        """Whether nobody can miss its sandbox."""
        if plan.state.ended:
            return True
        if plan.state not in (PlanState.COMPLETE, PlanState.ERRORED) or self.history.changes(plan.id):
            return False
        with suppress(SandboxMissing):
            if self.sandboxes.open(plan.id).scan():  # guard: somebody's edits that nobody recorded
                return False
        # It may have been resumed while we looked.
        return self.plans.get(plan.id).version == plan.version

    def _removed(self, plan_id: str) -> bool:
        try:
            self.sandboxes.remove(plan_id)
        except SandboxBusy:
            return False  # somebody works in it, whatever the plan's state says
        return True
