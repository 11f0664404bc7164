"""Naive parts of a rebase: each trusts what was seen before."""

from __future__ import annotations

from typing import Any

from cleveragents.core.tool import ToolCall
from cleveragents.plans.history import PlanResult
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = ["AnyVersionCallStore", "RemembersResult"]

_SEEN: dict[str, tuple[str, str]] = {}


class RemembersResult(PlanResult):
    """Reads the result of a plan once. A rebase changes the result, and leaves the version of the plan if its
    process is killed.
    """

    def decided(self, plan: Plan, sandbox: Sandbox) -> tuple[str, str]:
        return _SEEN.setdefault(plan.id, super().decided(plan, sandbox))


class AnyVersionCallStore(SqlCallStore):
    """Adds a call to a plan whatever became of the plan meanwhile."""

    def add(self, *about: Any, version: int | None = None, **facts: Any) -> ToolCall:
        return super().add(*about, **facts)
