"""Conversations between an actor and a model: messages, tool requests and token usage.

All values convert to plain JSON, because graph checkpoints store them and another process may continue from a
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Any

from msgspec import Struct

from cleveragents.core.json_value import FrozenObject, JsonValue, freeze

__all__ = ["Message", "MessageRole", "Thought", "ToolRequest", "Usage"]

_MOST_TOKENS = 1 << 40


class MessageRole(str, Enum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call that a model requests.

    `problem` is the reason why the call is invalid: the arguments are not a JSON object, or were cut off. For
    an invalid call, `arguments` is empty. `id` is assigned by the model and need not be unique: some servers
    count from 0 in every reply.
    """

    id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    problem: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", FrozenObject(self.arguments))


@dataclass(frozen=True, slots=True)
class Thought:
    """A block of a model's reasoning, in the format of its provider, usually signed or encrypted.

    It is sent back unchanged to the model that wrote it, and to no other model: some providers reject a
    conversation without it. `at` is its place in the message: the number of characters of the text before it.
    """

    model: str
    at: int
    block: Mapping[str, JsonValue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "block", FrozenObject(self.block))


class Message(Struct, frozen=True):
    """One message. An assistant message may request tool calls; a tool message answers the request
    `request_id`.
    """

    role: MessageRole
    text: str = ""
    requests: tuple[ToolRequest, ...] = ()
    request_id: str | None = None
    thoughts: tuple[Thought, ...] = ()

    def to_json(self) -> JsonValue:
        """Return the message as a checkpoint stores it, without empty fields."""
        kept: dict[str, Any] = {"role": self.role.value, "text": self.text}
        if self.requests:
            kept["requests"] = [
                {"id": r.id, "tool": r.tool, "arguments": r.arguments, "problem": r.problem}
                for r in self.requests
            ]
        if self.request_id is not None:
            kept["request_id"] = self.request_id
        if self.thoughts:
            kept["thoughts"] = [{"model": t.model, "at": t.at, "block": t.block} for t in self.thoughts]
        return freeze(kept)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Message:
        """Restore a message from the result of `to_json`, frozen or not."""
        return cls(
            role=MessageRole(kept["role"]),
            text=str(kept["text"]),
            requests=tuple(
                ToolRequest(r["id"], r["tool"], r["arguments"], r["problem"])
                for r in kept.get("requests", ())
            ),
            request_id=kept.get("request_id"),
            thoughts=tuple(Thought(t["model"], t["at"], t["block"]) for t in kept.get("thoughts", ())),
        )


def _count(reported: object) -> int:
    if not isinstance(reported, int | float) or not isfinite(reported):
        return 0
    return min(max(int(reported), 0), _MOST_TOKENS)


class Usage(Struct, frozen=True):
    """Tokens of one call, or of several.

    `input_tokens` includes `cached_tokens`, which the provider read from its prompt cache, and
    `written_tokens`, which it stored there at an extra price.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    @classmethod
    def reported(cls, read: object, written: object, cached: object = 0, stored: object = 0) -> Usage:
        """Return the usage that a provider reports, with plausible numbers only.

        A count is never negative and fits into a database column, and cached input is input, so that no
        report can cost less than nothing or more than the worst case.
        """
        taken = _count(read)
        hit = min(_count(cached), taken)
        return cls(taken, _count(written), hit, min(_count(stored), taken - hit))

    @classmethod
    def sum(cls, usages: Iterable[Usage]) -> Usage:
        """Return the sum of several usages."""
        every = list(usages)
        return cls(
            sum(usage.input_tokens for usage in every),
            sum(usage.output_tokens for usage in every),
            sum(usage.cached_tokens for usage in every),
            sum(usage.written_tokens for usage in every),
        )
