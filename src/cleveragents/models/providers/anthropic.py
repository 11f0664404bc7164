"""Anthropic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleveragents.models.ports import Model, ModelRequest
from cleveragents.models.provider import ONE_CALL_EACH, ModelSpec, Provider

__all__ = ["PROVIDER"]

_VARIABLE = "ANTHROPIC_API_KEY"
_HERE = "https://api.anthropic.com"


def _open(opening: ModelSpec) -> Model:
    from langchain_anthropic import ChatAnthropic
    from pydantic import SecretStr

    from cleveragents.models.langchain_model import LangChainModel

    chat = ChatAnthropic(
        model_name=opening.model,
        api_key=SecretStr(opening.key or "none"),
        base_url=opening.base_url or _HERE,
        default_headers=ONE_CALL_EACH,
        max_retries=0,
        timeout=opening.timeout_seconds,
        stop=None,
    )
    return LangChainModel(chat, opening.facts, _options, keys=(_VARIABLE,), tells_schema=True)


def _options(request: ModelRequest) -> Mapping[str, Any]:
    options: dict[str, Any] = {"max_tokens": request.max_output_tokens}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    return options


PROVIDER = Provider(
    name="anthropic",
    open=_open,
    module="langchain_anthropic",
    extra="anthropic",
    variables=(_VARIABLE,),
    base_url_variables=("ANTHROPIC_BASE_URL",),
)
