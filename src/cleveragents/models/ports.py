"""Ports for language models and the values they exchange.

Budgets are reserved before a call and settled after it, across the whole plan tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

from msgspec import Struct

from cleveragents.core.errors import Remedy, RequestRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.attachment import Attachment, MediaType
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


_NO_GIF = "google/"
"""Prefix of models that take other images only."""


class ToolCallMode(str, Enum):
    """How a model makes tool calls: by its protocol, as text, or not at all."""

    NATIVE = "native"
    TEXT = "text"
    NONE = "none"


class ModelFacts(Struct, frozen=True):
    """Facts about a model that are known before a call.

    `price` None means unknown, not free. `keyed` is False if the model needs an API key and none is set.
    `image_tokens` are the most tokens of one image, `pdf_tokens` those of one PDF, whatever it contains;
    None: it is not known that the model takes images or PDFs.
    """

    name: str
    context_tokens: int
    output_tokens: int
    price: Price | None = None
    keyed: bool = True
    tool_calls: ToolCallMode | None = None
    """None: unknown until the model is probed."""
    image_tokens: int | None = None
    pdf_tokens: int | None = None

    def attachment_tokens(self, attachments: Iterable[Attachment]) -> int:
        """Return the most tokens that these files take: a provider refuses what exceeds the context window.
        Raises `RequestRefused` for a file that the model, as far as is known, does not take.
        """
        return min(self.context_tokens, sum(self._tokens_of(one) for one in attachments))

    def _tokens_of(self, attachment: Attachment) -> int:
        is_pdf = attachment.media_type is MediaType.PDF
        each = self.pdf_tokens if is_pdf else self.image_tokens
        if each is not None and not (
            attachment.media_type is MediaType.GIF and self.name.startswith(_NO_GIF)
        ):
            return each
        kind = attachment.media_type.value
        known = "" if each is not None else ", as far as is known"
        raise RequestRefused(
            f"{self.name} takes no {kind} files{known}; choose another model",
            "attachments",
            (
                Remedy("model.list", text="List the models and what they take"),
                Remedy(
                    "config.set",
                    options={"key": "models.prices", "value": None},
                    text=f"State `{'pdf_tokens' if is_pdf else 'image_tokens'}` in your list of models",
                ),
            ),
        )


class ModelRequest(Struct, frozen=True, kw_only=True):
    """A request to a model. With a `schema`, the answer is the text of a JSON object that matches it.

    The `attachments` belong to the first message of the user.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_output_tokens: int
    temperature: float | None = None
    schema: Mapping[str, JsonValue] | None = None
    attachments: Sequence[Attachment] = ()


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
