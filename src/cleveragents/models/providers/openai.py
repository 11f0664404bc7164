"""OpenAI and all servers that speak its protocol, such as llama.cpp, vLLM, Ollama and OpenRouter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cleveragents.core.json_value import thaw
from cleveragents.models.ports import Model, ModelRequest
from cleveragents.models.provider import ONE_CALL_EACH, ModelSpec, Provider

__all__ = ["PROVIDER", "options"]

_CONNECT_SECONDS = 15.0
_VARIABLE = "OPENAI_API_KEY"
_PLACE_VARIABLE = "OPENAI_BASE_URL"
_HOST = "api.openai.com"
_HERE = f"https://{_HOST}/v1"
_NO_KEY = "models.key_variable, the variable with the key for models.base_url; no key was sent"
_NO_TEMPERATURE = re.compile(r"o\d|gpt-[5-9](?!.*chat)")
"""Reasoning models, which reject a temperature."""


def _open(opening: ModelSpec) -> Model:
    import openai
    from pydantic import SecretStr

    from cleveragents.models.langchain_model import LangChainModel
    from cleveragents.models.plain_chat_openai import PlainChatOpenAI

    elsewhere = opening.base_url is not None
    chat = PlainChatOpenAI(
        model=opening.model,
        api_key=SecretStr(opening.key or "none"),  # a local server may need no key
        base_url=opening.base_url or _HERE,
        default_headers=ONE_CALL_EACH,
        max_retries=0,
        timeout=openai.Timeout(opening.timeout_seconds, connect=_CONNECT_SECONDS),
        use_responses_api=False,
        openai_proxy=None,
    )

    def options_for(request: ModelRequest) -> Mapping[str, Any]:
        return options(request, opening.model, elsewhere=elsewhere)

    place = f"{opening.base_url} (from models.base_url or {_PLACE_VARIABLE})" if elsewhere else ""
    keys = opening.key_variables or (_NO_KEY if elsewhere else _VARIABLE,)
    return LangChainModel(chat, opening.facts, options_for, keys=keys, place=place, sums_usage=False)


def options(request: ModelRequest, model: str, *, elsewhere: bool) -> Mapping[str, Any]:
    """Return the arguments of LangChain's client. `elsewhere`: the server is not OpenAI's."""
    options: dict[str, Any] = {"max_tokens": request.max_output_tokens}
    body: dict[str, Any] = {}
    if elsewhere:
        body["max_tokens"] = request.max_output_tokens  # older servers only know this name
    if request.temperature is not None and (elsewhere or not _NO_TEMPERATURE.match(model)):
        options["temperature"] = request.temperature
    if request.schema is not None:
        # Passed in the body: the library validates answers to its own `response_format` and raises.
        answer = {"name": "answer", "schema": thaw(request.schema), "strict": False}
        body["response_format"] = {"type": "json_schema", "json_schema": answer}
    if body:
        options["extra_body"] = body
    return options


PROVIDER = Provider(
    name="openai",
    open=_open,
    title="OpenAI",
    usual_model="openai/gpt-4.1-mini",
    module="langchain_openai",
    extra="openai",
    variables=(_VARIABLE,),
    base_url_variables=(_PLACE_VARIABLE,),
    hosts=(_HOST,),
)
