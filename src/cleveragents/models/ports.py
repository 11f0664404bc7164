"""Ports for language models and the values they exchange.

Budgets are reserved before a call and settled after it, across the whole plan tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

from msgspec import Struct

from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.budget import BudgetLimits, Price, Spend
from cleveragents.models.model.conversation import Message, Usage

__all__ = [
    "BudgetState",
    "Model",
    "ModelCall",
    "ModelFacts",
    "ModelReply",
    "ModelRequest",
    "ModelSource",
    "Reservation",
    "ToolCallMode",
]


class ToolCallMode(str, Enum):
    """How a model makes tool calls: by its protocol, as text, or not at all."""

    NATIVE = "native"
    TEXT = "text"
    NONE = "none"


class ModelFacts(Struct, frozen=True):
    """Facts about a model that are known before a call.

    `price` None means unknown, not free. `keyed` is False if the model needs an API key and none is set.
    """

    name: str
    context_tokens: int
    output_tokens: int
    price: Price | None = None
    keyed: bool = True
    tool_calls: ToolCallMode | None = None
    """None: unknown until the model is probed."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """A request to a model. With a `schema`, the answer is the text of a JSON object that matches it."""

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_output_tokens: int
    temperature: float | None = None
    schema: Mapping[str, JsonValue] | None = None


class ModelReply(Struct, frozen=True):
    """The answer of a model and its usage.

    `model` is the model that answered. `cut_off` means that the answer reached `max_output_tokens`. `usage`
    is None if the provider did not report it.
    """

    message: Message
    model: str
    usage: Usage | None = None
    cut_off: bool = False


class Model(Protocol):
    """One model of one provider. Any number of calls may run concurrently on one event loop."""

    @property
    def facts(self) -> ModelFacts: ...

    def count_tokens(self, request: ModelRequest) -> int:
        """Return an upper bound of the input tokens that the provider will count."""
        ...

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """Return the answer and pass its text to `on_token` as it arrives.

        Raises `ModelUnavailable` if rate limits, timeouts or server errors persist after all retries,
        `ModelRefused` if the provider rejects the key or the request or no credit is left, and
        `ContextTooLong`. Cancelling the call closes its connection.
        """
        ...


class ModelSource(Protocol):
    """Models by `provider/name`."""

    def get(self, name: str) -> Model:
        """Return the model.

        Raises `UnknownModel`, or `ConfigurationError` if a key, a base URL or a package is missing.
        """
        ...

    def get_nowait(self, name: str) -> Model | None:
        """Return the model if it is already open, else None. Opening a model may take seconds."""
        ...

    def facts(self, name: str) -> ModelFacts:
        """Return the facts about a model without opening it. Raises `UnknownModel`."""
        ...

    def known(self) -> Sequence[ModelFacts]:
        """Return the listed models. Models that are not listed may work as well."""
        ...


class BudgetState(Struct, frozen=True):
    """The state of a budget. `reserved` covers running calls, at their worst case."""

    root_id: str
    limits: BudgetLimits
    spent: Spend
    reserved: Spend


class Reservation(Struct, frozen=True):
    """A reservation: permission to spend up to `worst`, once. Pass it to `settle` or `release`."""

    id: str
    root_id: str
    plan_id: str
    worst: Spend


class ModelCall(Struct, frozen=True):
    """A record of one model call: its actual cost, or its worst case if the actual cost is unknown."""

    plan_id: str
    actor: str
    node: str
    model: str
    usage: Usage | None
    picodollars: int | None
    state: str
    started_at: datetime
    ended_at: datetime | None = None
