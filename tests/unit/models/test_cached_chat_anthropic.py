"""Prompt caching at Anthropic: which prefixes of a request are marked."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("langchain_anthropic") is None:
    pytest.skip("langchain_anthropic is not installed", allow_module_level=True)

MARK = {"type": "ephemeral"}


def marked(**payload: Any) -> dict[str, Any]:
    from cleveragents.models.cached_chat_anthropic import mark_prefixes

    mark_prefixes(payload)
    return payload


def said(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def marks(payload: dict[str, Any]) -> list[Any]:
    """Return the marked blocks in the order in which Anthropic caches them."""
    blocks = [*payload.get("tools", ())]
    for content in (payload.get("system"), *(message["content"] for message in payload["messages"])):
        blocks += content if isinstance(content, list) else []
    return [block.get("name") or block.get("text") for block in blocks if block.get("cache_control") == MARK]


def test_tools_system_prompt_and_conversation_are_marked() -> None:
    payload = marked(
        tools=[{"name": "a"}, {"name": "b"}], system="Be brief.", messages=[said("user", "one", "two")]
    )
    assert marks(payload) == ["b", "Be brief.", "two"]


def test_a_conversation_is_marked_where_the_call_before_ended() -> None:
    messages = [said("user", "1"), said("assistant", "2"), said("user", "3"), said("assistant", "4")]
    payload = marked(tools=[{"name": "a"}], system="s", messages=[*messages, said("user", "5", "6")])
    assert marks(payload) == ["a", "s", "3", "6"]
    assert len(marks(payload)) <= 4


def test_a_single_question_is_not_marked() -> None:
    payload = marked(system="s", messages=[{"role": "user", "content": "q"}])
    assert marks(payload) == []
    assert payload["messages"] == [{"role": "user", "content": "q"}]


def test_a_question_that_is_continued_is_marked() -> None:
    messages = [
        {"role": "user", "content": "q"},
        said("assistant", "a"),
        {"role": "user", "content": "again"},
    ]
    assert marks(marked(messages=messages)) == ["q", "again"]
