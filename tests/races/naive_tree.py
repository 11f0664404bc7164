"""A naive plan store that reads the size of a tree, and then lets it grow."""

from __future__ import annotations

from datetime import datetime

from cleveragents.core.errors import TreeTooLarge
from cleveragents.core.identifiers import Fence
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanDraft, TreeLimits
from cleveragents.plans.store.sql_plan_store import SqlPlanStore

__all__ = ["LookThenSpawnPlanStore"]


class LookThenSpawnPlanStore(SqlPlanStore):
    """Counts the sub-plans, and inserts another one in a separate transaction."""

    def spawn(
        self, parent: Plan, new: PlanDraft, key: str, limits: TreeLimits, *, now: datetime, fence: Fence
    ) -> Plan:
        known = self.children(parent.id)
        if len(known) >= limits.fan_out and all(child.key != key for child in known):
            raise TreeTooLarge(parent.id, "")
        wide = TreeLimits(limits.depth, 10**6)
        return super().spawn(parent, new, key, wide, now=now, fence=fence)
