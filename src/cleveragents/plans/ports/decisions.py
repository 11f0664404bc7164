"""The store of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cleveragents.core.decision import Decision, NewDecision

__all__ = ["DecisionStore"]


class DecisionStore(Protocol):
    """Decisions of plans, numbered from 1 without a gap. Every method is atomic, together with its event."""

    def add(
        self, plan_id: str, made: Sequence[NewDecision], *, key: str, now: datetime
    ) -> Sequence[Decision]:
        """Record the decisions in order and return them. The parent of a decision may be in the same list. A
        repeated `key` returns the decisions of the first call.
        """
        ...

    def of_plan(self, plan_id: str) -> Sequence[Decision]:
        """Return all decisions by number, including superseded ones. A decision made during a task no longer
        holds once its call is rolled back.
        """
        ...
