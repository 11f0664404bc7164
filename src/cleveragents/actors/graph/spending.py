"""What one call takes of the limits of a run, and what it writes to the state's account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cleveragents.actors.graph.state import ACCOUNT
from cleveragents.core.errors import PriceUnknown
from cleveragents.models.model.budget import Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import ModelFacts, ModelReply

__all__ = ["A_STEP", "CallCost", "written"]

A_STEP = Spend(steps=1)
"""What a tool call takes."""


@dataclass(frozen=True, slots=True)
class CallCost:
    """Of one model call. `models` are those that may answer: the one that is asked, and who stands in."""

    models: Sequence[ModelFacts]
    usage: Usage

    def worst(self, *, priced: bool) -> Spend:
        """Whoever answers. `PriceUnknown` when it is to be `priced` and one of them has no price."""
        unpriced = [facts for facts in self.models if facts.price is None]
        if priced and unpriced:  # guard: a limit that nobody can keep is refused
            raise PriceUnknown(unpriced[0].name)
        # guard: the dearest, for it may be the one that answers
        money = max(_price(facts, self.usage) for facts in self.models)
        return Spend(money, self.usage.total, 1)

    def of(self, reply: ModelReply) -> Spend:
        """At the price of the model that answered; at worst where its provider did not say."""
        usage = reply.usage or self.usage
        answering = [facts for facts in self.models if facts.name == reply.model] or self.models
        return Spend(_price(answering[0], usage), usage.total, 1)


def written(spent: Spend) -> dict[str, Any]:
    """A write to the account."""
    return {ACCOUNT: {"steps": spent.steps, "tokens": spent.tokens, "money": spent.picodollars}}


def _price(facts: ModelFacts, usage: Usage) -> int:
    return 0 if facts.price is None else facts.price.of(usage)
