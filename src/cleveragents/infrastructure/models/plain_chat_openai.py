"""LangChain's client for OpenAI's protocol, without the library's walk through what is sent.

OpenAI's library looks at every value of every message and tool to find out whether its type wants it spelt
otherwise; for a conversation that takes longer than everything else that is done for a call. What LangChain
makes of messages and tools is spelt as the protocol wants it already. So they go in the part of the body that
is sent as it is.
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_openai import ChatOpenAI

__all__ = ["PlainChatOpenAI"]

_AS_THEY_ARE = ("messages", "tools")


class PlainChatOpenAI(ChatOpenAI):
    """`ChatOpenAI`; the bytes it sends are the same."""

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        body = {name: payload.pop(name) for name in _AS_THEY_ARE if name in payload}
        # The library insists on messages; those of the body take their place.
        return {**payload, "messages": [], "extra_body": {**(payload.get("extra_body") or {}), **body}}
