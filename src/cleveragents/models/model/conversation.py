"""What is said between an actor and a model: messages, requests for tools, and what they cost in tokens.

Everything is plain JSON underneath, because a checkpoint of a graph keeps it, and another process goes on
from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cleveragents.core.json_value import FrozenObject, JsonValue, freeze

__all__ = ["Message", "MessageRole", "ToolRequest", "Usage"]


class MessageRole(str, Enum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call that a model wants made. `problem` says why it cannot be: what the model wrote is no JSON
    object, or was cut off; then `arguments` is empty.

    `id` is the model's own name for it and need not be unique: some servers count from 0 in every reply.
    """

    id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    problem: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", FrozenObject(self.arguments))


@dataclass(frozen=True, slots=True)
class Message:
    """One message. An assistant's may ask for tools; a tool's answers the request named by `request_id`."""

    role: MessageRole
    text: str = ""
    requests: tuple[ToolRequest, ...] = ()
    request_id: str | None = None

    def to_json(self) -> JsonValue:
        """As a checkpoint keeps it: only what it has."""
        kept: dict[str, Any] = {"role": self.role.value, "text": self.text}
        if self.requests:
            kept["requests"] = [
                {"id": r.id, "tool": r.tool, "arguments": r.arguments, "problem": r.problem}
                for r in self.requests
            ]
        if self.request_id is not None:
            kept["request_id"] = self.request_id
        return freeze(kept)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Message:
        """What `to_json` gave, thawed or not."""
        return cls(
            role=MessageRole(kept["role"]),
            text=str(kept["text"]),
            requests=tuple(
                ToolRequest(r["id"], r["tool"], r["arguments"], r["problem"])
                for r in kept.get("requests", ())
            ),
            request_id=kept.get("request_id"),
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or of many together. `cached_tokens` are among the input's."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    @classmethod
    def sum(cls, usages: Iterable[Usage]) -> Usage:
        """All of them together."""
        every = list(usages)
        return cls(
            sum(usage.input_tokens for usage in every),
            sum(usage.output_tokens for usage in every),
            sum(usage.cached_tokens for usage in every),
        )
