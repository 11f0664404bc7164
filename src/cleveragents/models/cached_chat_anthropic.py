"""LangChain's Anthropic client with prompt caching.

Anthropic caches a request up to each block that is marked with `cache_control`, in the order tools, system
prompt, messages. It stores a new prefix for five minutes, at 1.25 times the price of input, and reads a
stored prefix at a tenth of the price. A request that offers tools or continues a conversation is likely to be
continued within five minutes, so it is marked. A single question is not marked.
"""

from __future__ import annotations

from typing import Any

from langchain_anthropic import ChatAnthropic

__all__ = ["CachedChatAnthropic", "mark_prefixes"]

_MARK = {"type": "ephemeral"}
_MARKED_MESSAGES = 2


class CachedChatAnthropic(ChatAnthropic):
    """A `ChatAnthropic` that asks Anthropic to cache the start of each conversation.

    A `response_format` whose schema Anthropic cannot express is left out; the prompt has the schema, too.
    """

    def _get_request_payload(
        self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload: dict[str, Any]
        try:
            payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        except (ValueError, AssertionError):  # the library asserts that a type is not a list of types
            if kwargs.pop("response_format", None) is None:
                raise
            payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        mark_prefixes(payload)
        return payload


def mark_prefixes(payload: dict[str, Any]) -> None:
    """Mark the prefixes of a request to cache, at most four, as Anthropic allows.

    The prefixes end with the tools, the system prompt, the whole conversation, and the conversation of the
    previous call, which Anthropic then finds without a search.
    """
    tools, system = payload.get("tools"), payload.get("system")
    asked = [message for message in payload["messages"] if message["role"] == "user"]
    if not tools and len(asked) < 2:
        return
    if tools:
        tools[-1] = {**tools[-1], "cache_control": _MARK}
    if system:
        payload["system"] = _marked(system)
    for message in asked[-_MARKED_MESSAGES:]:
        message["content"] = _marked(message["content"])


def _marked(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*blocks[:-1], {**blocks[-1], "cache_control": _MARK}]
