"""Google Gemini models, authenticated with an API key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleveragents.core.json_value import thaw
from cleveragents.models.ports import Model, ModelRequest
from cleveragents.models.provider import ONE_CALL_EACH, ModelSpec, Provider

__all__ = ["PROVIDER"]

_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")


def _open(opening: ModelSpec) -> Model:
    from langchain_google_genai import ChatGoogleGenerativeAI
    from pydantic import SecretStr

    from cleveragents.models.langchain_model import LangChainModel

    chat = ChatGoogleGenerativeAI(
        model=opening.model,
        api_key=SecretStr(opening.key or "none"),
        base_url=opening.base_url,
        additional_headers=ONE_CALL_EACH,
        max_retries=1,  # the library counts all attempts, not only retries
        timeout=opening.timeout_seconds,
        vertexai=False,
    )
    return LangChainModel(chat, opening.facts, _options, keys=_VARIABLES, tells_schema=True)


def _options(request: ModelRequest) -> Mapping[str, Any]:
    options: dict[str, Any] = {"max_output_tokens": request.max_output_tokens}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.schema is not None and not request.tools:  # the API accepts only one of the two
        options["response_mime_type"] = "application/json"
        options["response_json_schema"] = thaw(request.schema)
    return options


PROVIDER = Provider(
    name="google",
    open=_open,
    title="Google",
    usual_model="google/gemini-2.5-flash",
    module="langchain_google_genai",
    extra="google",
    variables=_VARIABLES,
    base_url_variables=("GOOGLE_GEMINI_BASE_URL",),
)
