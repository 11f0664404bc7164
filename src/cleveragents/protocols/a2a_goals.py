"""What a message of the Agent2Agent protocol asks for: its text is the goal, its metadata the terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from pydantic import BaseModel, ValidationError

from cleveragents.api.handover import Dollars, Goal, Seconds, Tokens

if TYPE_CHECKING:
    from a2a.types import SendMessageRequest

__all__ = ["TERMS", "goal_of"]


class _Terms(BaseModel):
    """What metadata may say. What else is in there is somebody else's."""

    resource: str | None = None
    model: str | None = None
    checks: tuple[str, ...] = ()
    max_usd: Dollars | None = None
    max_tokens: Tokens | None = None
    seconds: Seconds | None = None
    to_branch: str | None = None


TERMS = tuple(_Terms.model_fields)
"""Their names."""


def goal_of(text: str, params: SendMessageRequest, known: Sequence[str]) -> Goal:
    """The goal, on the resource that is named, or on the only one that is known. `InvalidParamsError`."""
    try:
        said = MessageToDict(params.metadata) | MessageToDict(params.message.metadata)
    except ValueError as error:  # a number without an end
        raise InvalidParamsError(message=f"metadata: {error}") from None
    try:
        terms = _Terms.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidParamsError(message=f"metadata.{place}: {first['msg']}") from None
    if terms.resource is None and len(known) != 1:
        named = ", ".join(known) or "there is none yet"
        raise InvalidParamsError(message=f"metadata.resource names what to work on: {named}")
    return Goal(text, **{**terms.model_dump(), "resource": terms.resource or known[0]})
