"""One small question to a model: whether it answers, how soon, and what that took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue
    from cleveragents.models.ports import Model, ModelFacts, ModelReply

__all__ = ["PROMPT", "tried"]

PROMPT = "Say hello in five words."
_OUTPUT_TOKENS = 256


def tried(
    asked: Model, prompt: str, shown: Callable[[str], None] = lambda piece: None
) -> dict[str, JsonValue]:
    """The answer and what it took; pieces are `shown` as they come. What is wrong with the model. Not for a
    thread that runs a loop."""
    import asyncio

    began = time.monotonic()
    first: list[float] = []

    def heard(piece: str) -> None:
        if not first:
            first.append(time.monotonic() - began)
        shown(piece)

    reply = asyncio.run(_reply(asked, prompt, heard))
    return _told(reply, asked.facts, first, time.monotonic() - began)


async def _reply(asked: Model, prompt: str, heard: Callable[[str], None]) -> ModelReply:
    from cleveragents.models.model.conversation import Message, Role
    from cleveragents.models.ports import ModelRequest

    request = ModelRequest(messages=[Message(Role.USER, prompt)], max_output_tokens=_OUTPUT_TOKENS)
    return await asked.reply(request, heard)


def _told(reply: ModelReply, facts: ModelFacts, first: list[float], seconds: float) -> dict[str, JsonValue]:
    from cleveragents.models.model.budget import dollars

    usage = reply.usage
    cost = "unknown"
    if usage is not None and facts.price is not None:
        cost = dollars(facts.price.of(usage))
    return {
        "model": reply.model,
        "answer": reply.message.text,
        "cut_off": reply.cut_off,
        "input_tokens": usage.input_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cost": cost,
        "first_word_seconds": round(first[0], 3) if first else None,
        "seconds": round(seconds, 3),
    }
