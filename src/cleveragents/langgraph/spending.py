"""How far one run of an actor may go: its state says what it has spent, so a resumed run goes on counting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cleveragents.application.ports.models import ModelFacts, ModelReply
from cleveragents.domain.actor import Actor
from cleveragents.domain.budget import PICODOLLARS
from cleveragents.domain.conversation import Usage
from cleveragents.errors import ActorStopped, PriceUnknown
from cleveragents.langgraph.state import ACCOUNT, State

__all__ = ["CallCost", "ensure_a_step_is_left"]


def ensure_a_step_is_left(actor: Actor, state: State) -> None:
    """`ActorStopped` when as many calls were made as it may make."""
    allowed = state[ACCOUNT]["limit"]
    if state[ACCOUNT]["steps"] >= allowed:  # guard: a loop ends
        raise ActorStopped(actor.name, f"it has made {allowed} model and tool calls, which is its limit")


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one model call may take at worst, and what it took."""

    facts: ModelFacts
    worst: Usage

    def ensure_allowed(self, actor: Actor, state: State) -> None:
        """`ActorStopped` when the call might break a limit of the actor's own; `PriceUnknown`."""
        limits, spent = actor.limits, state[ACCOUNT]
        if limits.tokens is not None and spent["tokens"] + self.worst.total > limits.tokens:  # guard: tokens
            raise ActorStopped(actor.name, f"the next call might exceed its limit of {limits.tokens} tokens")
        if limits.usd is None:
            return
        if self.facts.price is None:  # guard: a limit that nobody can keep is refused
            raise PriceUnknown(self.facts.name)
        if spent["money"] + self.facts.price.of(self.worst) > limits.usd * PICODOLLARS:  # guard: money
            raise ActorStopped(actor.name, f"the next call might exceed its limit of ${limits.usd:g}")

    def written(self, reply: ModelReply) -> dict[str, Any]:
        """One step, its tokens and its price; at worst where the provider did not say."""
        usage = reply.usage or self.worst
        price = self.facts.price
        money = 0 if price is None else price.of(usage)
        return {ACCOUNT: {"steps": 1, "tokens": usage.total, "money": money}}
