"""Where a plan stands and what it has spent, looked up while it runs, here or elsewhere."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.domain.budget import Limits, Spend, dollars
from cleveragents.errors import CleverAgentsError

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan

__all__ = ["PlanMeter", "Reading", "spending_words"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the records say."""

    plan: Plan
    spent: Spend
    limits: Limits


class PlanMeter:
    """Reads the records of one plan. Not thread-safe: whoever draws reads it."""

    def __init__(self, parts: PlanParts, plan: Plan) -> None:
        self._parts = parts
        self.last = Reading(plan, Spend(), Limits())

    def read(self) -> Reading:
        """What holds now; what held before, when the store is not to be had just then."""
        plan = self.last.plan
        with suppress(CleverAgentsError):
            budget = self._parts.thinking.budgets.view(plan.root_id or plan.id)
            self.last = Reading(self._parts.plans.get(plan.id), budget.spent, budget.limits)
        return self.last


def spending_words(reading: Reading) -> list[str]:
    """`1,234 of 50,000 tokens`, `$0.0012 of $0.50`; nothing before a model was asked."""
    spent, limits = reading.spent, reading.limits
    if not spent.tokens and limits == Limits():
        return []
    words = [
        f"{spent.tokens:,} tokens"
        if limits.tokens is None
        else f"{spent.tokens:,} of {limits.tokens:,} tokens"
    ]
    if limits.picodollars is not None:
        words.append(f"{dollars(spent.picodollars)} of {dollars(limits.picodollars)}")
    elif spent.picodollars:
        words.append(dollars(spent.picodollars))
    return words
