"""Anthropic models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cleveragents.core.json_value import thaw
from cleveragents.models.ports import Model, ModelRequest
from cleveragents.models.provider import ONE_CALL_EACH, ModelSpec, Provider

__all__ = ["PROVIDER", "options"]

_VARIABLE = "ANTHROPIC_API_KEY"
_HERE = "https://api.anthropic.com"
_TAKES_TEMPERATURE = re.compile(r"claude-(?:3|(?:opus|sonnet|haiku)-4(?:-[0-6])?(?:-\d{8}|-latest)?$)")
"""Models that accept a temperature. Newer ones reject it."""
_WITHOUT_SCHEMA = re.compile(r"claude-(?:3|(?:opus|sonnet)-4(?:-0)?(?:-\d{8}|-latest)?$)")
"""Models that do not accept the schema of an answer."""


def _open(opening: ModelSpec) -> Model:
    from pydantic import SecretStr

    from cleveragents.models.cached_chat_anthropic import CachedChatAnthropic
    from cleveragents.models.langchain_model import LangChainModel

    chat = CachedChatAnthropic(
        model_name=opening.model,
        api_key=SecretStr(opening.key or "none"),
        base_url=opening.base_url or _HERE,
        default_headers=ONE_CALL_EACH,
        max_retries=0,
        timeout=opening.timeout_seconds,
        stop=None,
    )

    def options_for(request: ModelRequest) -> Mapping[str, Any]:
        return options(request, opening.model)

    return LangChainModel(chat, opening.facts, options_for, keys=(_VARIABLE,), tells_schema=True)


def options(request: ModelRequest, model: str) -> Mapping[str, Any]:
    """Return the arguments of LangChain's client."""
    options: dict[str, Any] = {"max_tokens": request.max_output_tokens}
    if request.temperature is not None and _TAKES_TEMPERATURE.match(model):
        options["temperature"] = request.temperature
    if request.schema is not None and not _WITHOUT_SCHEMA.match(model):
        options["response_format"] = {"type": "json_schema", "json_schema": {"schema": thaw(request.schema)}}
    return options


PROVIDER = Provider(
    name="anthropic",
    open=_open,
    title="Anthropic",
    usual_model="anthropic/claude-sonnet-4-5",
    module="langchain_anthropic",
    extra="anthropic",
    variables=(_VARIABLE,),
    base_url_variables=("ANTHROPIC_BASE_URL",),
)
