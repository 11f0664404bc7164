"""Where plans stand and what they have spent, looked up while they run, here or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cleveragents.core.errors import CleverAgentsError
from cleveragents.models.model.budget import Limits, Spend, dollars
from cleveragents.plans.family import below, spend_of

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["Meter", "PlanMeter", "Reading", "spending_words"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the records say. What was spent is, of a root, what its whole tree spent."""

    plan: Plan
    spent: Spend
    limits: Limits


class Meter(Protocol):
    """Where one plan and those below it stand, for whoever draws it."""

    @property
    def last(self) -> Reading:
        """What was read last."""
        ...

    @property
    def below(self) -> Sequence[Reading]:
        """The same of the plans below it."""
        ...

    def read(self) -> Reading:
        """What holds now, as far as that is to be had."""
        ...


class PlanMeter:
    """Reads the records of one plan and of those below it. Not thread-safe: whoever draws reads it."""

    def __init__(self, parts: PlanParts, plan: Plan) -> None:
        self._parts = parts
        self.last = Reading(plan, Spend(), Limits())
        self.below: Sequence[Reading] = ()

    def read(self) -> Reading:
        """What holds now; what held before, when the store is not to be had just then."""
        plan = self.last.plan
        with suppress(CleverAgentsError):
            budget = self._parts.thinking.budgets.view(plan.root)
            plan = self._parts.plans.get(plan.id)
            self.last = Reading(plan, budget.spent, budget.limits)
            known = {reading.plan.id: reading for reading in self.below}
            self.below = [
                self._part(child, known.get(child.id), budget.limits) for child in below(self._parts, plan)
            ]
        return self.last

    def _part(self, plan: Plan, known: Reading | None, limits: Limits) -> Reading:
        """Of what has not moved, and does not run, nothing is read again."""
        if known is not None and known.plan.version == plan.version and not plan.state.running:
            return known
        return Reading(plan, spend_of(self._parts.thinking.budgets.calls_of(plan.id)), limits)


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
