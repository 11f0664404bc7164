"""What the context pipeline asks for, what strategies give, and what became of each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["ContextFragment", "ContextRequest", "ExecutionReport", "StrategyReport", "StrategyStatus"]


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A question about a repository."""

    question: str
    root: str = "."


@dataclass(frozen=True, slots=True)
class ContextFragment:
    """A piece of text that may matter, and who found it."""

    path: str
    text: str
    score: float
    strategy: str


class StrategyStatus(str, Enum):
    """What became of one strategy in one execution."""

    USED = "used"
    EMPTY = "empty"
    FAILED = "failed"
    LATE = "late"
    CANCELLED = "cancelled"
    BREAKER_OPEN = "breaker_open"
    SATURATED = "saturated"


@dataclass(frozen=True, slots=True)
class StrategyReport:
    """The account of one strategy: what became of it, how long it took, what it said."""

    name: str
    status: StrategyStatus
    fragments: tuple[ContextFragment, ...] = ()
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """All strategies of one execution, in the order in which they were asked for."""

    strategies: tuple[StrategyReport, ...] = field(default=())

    @property
    def fragments(self) -> tuple[ContextFragment, ...]:
        return tuple(f for report in self.strategies for f in report.fragments)
