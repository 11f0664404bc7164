"""Where corrections are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from cleveragents.core.identifiers import Fence
from cleveragents.plans.model.correction import Correction, NewCorrection
from cleveragents.plans.model.plan import Plan, Standing
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.storage.answers import Claim

__all__ = ["CorrectionStore"]


class CorrectionStore(Protocol):
    """Corrections of plans, numbered from 1 without a gap; every method is one step, with its events."""

    def add(
        self,
        plan: Plan,
        made: NewCorrection,
        way: Sequence[Standing],
        facts: PlanFacts | None = None,
        *,
        now: datetime,
        fence: Fence | None = None,
        claim: Claim | None = None,
    ) -> tuple[Correction, Plan]:
        """Keeps it, marks the decisions that it supersedes, and moves the plan through these standings, with
        the facts at the last, all in one step: a plan whose decisions no longer hold is never where it goes
        on with what they led to.

        As `PlanStore.move`, only from the version that was seen, and for whoever has the job: `UnknownPlan`,
        `StalePlan`, `IllegalPlanMove`, `StaleFence`; with a claim, kept as what was made for that request:
        `RequestUnderWay` when somebody took the claim over. Then nothing changed.
        """
        ...

    def of_plan(self, plan_id: str) -> Sequence[Correction]:
        """All of them, by number."""
        ...
