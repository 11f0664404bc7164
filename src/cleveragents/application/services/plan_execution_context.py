"""Published import path of `changes.execution_context`."""

from __future__ import annotations

from cleveragents.changes.execution_context import PlanExecutionContext

__all__ = ["PlanExecutionContext"]
