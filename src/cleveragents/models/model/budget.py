"""Budgets: what a plan and everything below it may spend, and the arithmetic of reserving it.

A call is reserved at its worst case before it is made (its whole input, and the longest answer it may get)
and settled at what it really took afterwards. So what is spent and what is reserved together never exceed
the limit, whoever else spends at the same time.

Money is counted in picodollars: a price of one dollar per million tokens is a million of them per token, so
that no sum is ever rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.records import facts_of, record_of
from cleveragents.models.model.conversation import Usage

__all__ = ["PICODOLLARS", "BudgetLimits", "Price", "Spend", "dollars", "exceeded"]

PICODOLLARS = 10**12
"""In a dollar."""


@dataclass(frozen=True, slots=True)
class Price:
    """Of one model, in picodollars per token."""

    input: int
    output: int
    cached: int | None = None

    def of(self, usage: Usage) -> int:
        """What the tokens cost; those that were cached count as input where no price for them is known."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        return fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """What may be spent; None is no limit. `picodollars` needs a price for every model that is used."""

    picodollars: int | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: float | None = None

    def to_json(self) -> JsonValue:
        return freeze(facts_of(self))

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> BudgetLimits:
        """What `to_json` gave."""
        return record_of(cls, kept)


@dataclass(frozen=True, slots=True)
class Spend:
    """Of one call, or of all together. A step is one call of a model."""

    picodollars: int = 0
    tokens: int = 0
    steps: int = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            self.picodollars + other.picodollars, self.tokens + other.tokens, self.steps + other.steps
        )


def exceeded(limits: BudgetLimits, spend: Spend) -> tuple[str, ...]:
    """Which limits such a spend would break: `money`, `tokens`, `steps`."""
    pairs = (
        ("money", limits.picodollars, spend.picodollars),
        ("tokens", limits.tokens, spend.tokens),
        ("steps", limits.steps, spend.steps),
    )
    return tuple(name for name, limit, amount in pairs if limit is not None and amount > limit)


def dollars(picodollars: int) -> str:
    """`$0.0123`, with as many digits as it takes to show that it is not nothing."""
    amount = picodollars / PICODOLLARS
    if amount >= 1 or not picodollars:
        return f"${amount:,.2f}"
    digits = 4
    while picodollars * 10**digits < PICODOLLARS:
        digits += 1
    return f"${amount:.{digits}f}"
