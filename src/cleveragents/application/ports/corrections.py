"""Where corrections are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from cleveragents.domain.correction import Correction, NewCorrection

__all__ = ["CorrectionStore"]


class CorrectionStore(Protocol):
    """Corrections of plans, numbered from 1 without a gap; every method is one atomic step with its event."""

    def add(self, plan_id: str, made: NewCorrection, *, now: datetime) -> Correction:
        """Keeps it, and marks the decisions that it supersedes, in one step. `UnknownPlan`."""
        ...

    def of_plan(self, plan_id: str) -> Sequence[Correction]:
        """All of them, by number."""
        ...
