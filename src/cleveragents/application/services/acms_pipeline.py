"""Published import path of `context.executor`."""

from __future__ import annotations

from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor, Permit

__all__ = ["CircuitBreaker", "ParallelStrategyExecutor", "Permit"]
