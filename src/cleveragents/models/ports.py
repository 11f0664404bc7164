"""Language models: one port, whoever answers behind it.

Where budgets are kept: reserved before a call, settled after it, across the whole tree of plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

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


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model before it is called. `price` None is unknown, not nothing; `keyed` says
    whether the key it needs is there, if it needs one."""

    name: str
    context_tokens: int
    output_tokens: int
    price: Price | None = None
    keyed: bool = True
    tool_calls: ToolCallMode | None = None
    """None: unknown until the model is probed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What is asked. With a `schema` the answer is to be a JSON object of that shape, as text."""

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_output_tokens: int
    temperature: float | None = None
    schema: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What was answered, and what it took. `model` is the one that really answered; `cut_off` says that the
    answer reached `max_output_tokens`; `usage` None: the provider did not say."""

    message: Message
    model: str
    usage: Usage | None = None
    cut_off: bool = False


class Model(Protocol):
    """One model of one provider. Any number of calls may run at once on one event loop."""

    @property
    def facts(self) -> ModelFacts: ...

    def count_tokens(self, request: ModelRequest) -> int:
        """At least as many as the provider will count as input; never fewer than it has."""
        ...

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """The answer, its text handed to `on_token` in pieces as they come.

        `ModelUnavailable` (after retries: limits, timeouts, server errors), `ModelRefused` (key, quota, a
        request it does not take), `ContextTooLong`. Cancelling the call closes its connection.
        """
        ...


class ModelSource(Protocol):
    """Models by `provider/name`."""

    def get(self, name: str) -> Model:
        """`UnknownModel`; `ConfigurationError` where a key, a base URL or a package is missing."""
        ...

    def get_nowait(self, name: str) -> Model | None:
        """What `get` gave before; None where it has yet to be opened, which may take a while."""
        ...

    def facts(self, name: str) -> ModelFacts:
        """Without opening anything. `UnknownModel`."""
        ...

    def known(self) -> Sequence[ModelFacts]:
        """What is listed; models that are not may work as well."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget as it stands. `reserved` is for calls that are under way, at their worst case."""

    root_id: str
    limits: BudgetLimits
    spent: Spend
    reserved: Spend


@dataclass(frozen=True, slots=True)
class Reservation:
    """Leave to spend that much, once. `id` names it for `settle`."""

    id: str
    root_id: str
    plan_id: str
    worst: Spend


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model, for the account: what it took, or the worst it may have."""

    plan_id: str
    actor: str
    node: str
    model: str
    usage: Usage | None
    picodollars: int | None
    state: str
    started_at: datetime
    ended_at: datetime | None = None
