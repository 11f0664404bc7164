"""Deletes plans and frees the disk that ended ones still use.

Only what nobody can miss is removed by itself: the sandbox of a plan that was applied, undone, rejected or
cancelled, or that changed nothing. Whoever still has a decision to make keeps everything, however old.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.plans import PlanStore
from cleveragents.application.ports.sandboxes import Sandboxes
from cleveragents.application.services.plan_history import PlanHistory
from cleveragents.domain.plan import Plan
from cleveragents.errors import PlanError, SandboxBusy

__all__ = ["Freed", "PlanCleanup"]

_PAGE = 500


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
        """Removes the plan's sandbox, then all records of it. `PlanError` while it runs."""
        if plan.state.running:
            raise PlanError(plan.id, "it is running; cancel it first")
        self.sandboxes.remove(plan.id)
        self.plans.delete(plan, now=self.clock.now())

    def collect(
        self, older_than: timedelta, *, quota_bytes: int | None = None, dry_run: bool = False
    ) -> Sequence[Freed]:
        """Removes sandboxes of plans that ended so long ago; then, oldest first, of younger ended ones until
        all sandboxes together use no more than the quota."""
        sizes = dict(self.sandboxes.sizes())
        total = sum(sizes.values())
        cutoff = self.clock.now() - older_than
        freed: list[Freed] = []
        for plan in self._removable(sizes):
            over = quota_bytes is not None and total > quota_bytes
            if plan.updated_at > cutoff and not over:
                continue
            if dry_run or self._removed(plan):
                freed.append(Freed(plan.id, plan.state.value, sizes[plan.id]))
                total -= sizes[plan.id]
        return freed

    def _removable(self, sizes: dict[str, int]) -> Iterator[Plan]:
        """Plans with a sandbox that nobody can miss, the longest untouched first."""
        after: str | None = None
        found: list[Plan] = []
        while page := self.plans.list(limit=_PAGE, after=after):
            after = page[-1].id
            found += [plan for plan in page if plan.id in sizes and self._is_over(plan)]
        yield from sorted(found, key=lambda plan: plan.updated_at)

    def _is_over(self, plan: Plan) -> bool:
        if plan.state.ended:
            return True
        return not plan.state.running and not self.history.changes(plan.id)

    def _removed(self, plan: Plan) -> bool:
        try:
            self.sandboxes.remove(plan.id)
        except SandboxBusy:
            return False  # somebody works in it, whatever the plan's state says
        return True
