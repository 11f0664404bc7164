"""Where decisions are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from cleveragents.core.decision import Decision, NewDecision

__all__ = ["DecisionStore"]


class DecisionStore(Protocol):
    """Decisions of plans, numbered from 1 without a gap; every method is one atomic step with its event."""

    def add(
        self, plan_id: str, made: Sequence[NewDecision], *, key: str, now: datetime
    ) -> Sequence[Decision]:
        """Keeps them, in order; a parent may be one of the same call. A repeated `key` returns what it made
        the first time."""
        ...

    def of_plan(self, plan_id: str) -> Sequence[Decision]:
        """All of them, superseded ones too, by number. One that was made at work no longer holds once a
        rollback took its call back."""
        ...
