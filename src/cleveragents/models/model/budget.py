"""Budgets: the limits of a plan and its sub-plans, and the arithmetic of reserving them.

A call is reserved at its worst case before it is made (its whole input and the longest possible answer) and
settled at its actual usage afterwards. So spent plus reserved never exceeds a limit, even with concurrent
callers.

Money is counted in picodollars. A price of one dollar per million tokens is a million picodollars per token,
so sums are never rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.records import facts_of, record_of
from cleveragents.models.model.conversation import Usage

__all__ = ["PICODOLLARS", "BudgetLimits", "Price", "Spend", "dollars", "exceeded", "lowered_limit"]

PICODOLLARS = 10**12
"""Picodollars per dollar."""


class Price(Struct, frozen=True):
    """The price of a model, in picodollars per token.

    `cached` is the price of input that the provider reads from its prompt cache, `cache_write` of input that
    it stores there. None means the price of other input.
    """

    input: int
    output: int
    cached: int | None = None
    cache_write: int | None = None

    def of(self, usage: Usage) -> int:
        """Return the cost of the tokens."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        # Some servers report more cached tokens than input tokens.
        fresh = max(0, usage.input_tokens - usage.cached_tokens - usage.written_tokens)
        read = fresh * self.input + usage.cached_tokens * cached + usage.written_tokens * written
        return read + usage.output_tokens * self.output

    def worst(self, usage: Usage) -> int:
        """Return the highest possible cost of the tokens: nothing is known about the prompt cache before a
        call, so every input token counts at the highest price of input.
        """
        # guard: storing input in a cache can cost more than reading it
        dearest = max(self.input, self.cached or 0, self.cache_write or 0)
        return usage.input_tokens * dearest + usage.output_tokens * self.output


class BudgetLimits(Struct, frozen=True):
    """Limits of a budget; None means no limit.

    `picodollars` requires a known price for every model in use.
    """

    picodollars: int | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: float | None = None

    def to_json(self) -> JsonValue:
        return freeze(facts_of(self))

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> BudgetLimits:
        """Restore limits from the result of `to_json`."""
        return record_of(cls, kept)


class Spend(Struct, frozen=True):
    """An amount spent by one call or by several. One step is one model call."""

    picodollars: int = 0
    tokens: int = 0
    steps: int = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            self.picodollars + other.picodollars, self.tokens + other.tokens, self.steps + other.steps
        )


def exceeded(limits: BudgetLimits, spend: Spend) -> tuple[str, ...]:
    """Return the limits that this spend would exceed: `money`, `tokens`, `steps`."""
    pairs = (
        ("money", limits.picodollars, spend.picodollars),
        ("tokens", limits.tokens, spend.tokens),
        ("steps", limits.steps, spend.steps),
    )
    return tuple(name for name, limit, amount in pairs if limit is not None and amount > limit)


def dollars(picodollars: int) -> str:
    """Format an amount as `$0.0123`, with enough digits to tell a small amount from zero."""
    amount = picodollars / PICODOLLARS
    if amount >= 1 or not picodollars:
        return f"${amount:,.2f}"
    digits = 4
    while picodollars * 10**digits < PICODOLLARS:
        digits += 1
    return f"${amount:.{digits}f}"


def lowered_limit(present: BudgetLimits, new: BudgetLimits) -> tuple[str, float] | None:
    """Return the first limit that `new` would lower, as `usd`, `tokens`, `steps` or `seconds`, and its
    present value; None if there is none. A limit of None in `new` stays.
    """
    pairs = (
        ("usd", present.picodollars, new.picodollars),
        ("tokens", present.tokens, new.tokens),
        ("steps", present.steps, new.steps),
        ("seconds", present.seconds, new.seconds),
    )
    for name, old, wanted in pairs:
        if old is not None and wanted is not None and wanted < old:
            return name, old / PICODOLLARS if name == "usd" else old
    return None
