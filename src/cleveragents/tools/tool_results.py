"""What a tool said, as a model reads it: facts first, then the long text as it is, never too much of it.

JSON would escape every line end of a file, which costs tokens and makes small models copy the escapes into
their edits. So the one long text of a result is shown raw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cleveragents.core.json_value import JsonValue, thaw

__all__ = ["MOST_CHARACTERS", "cut", "result_text"]

MOST_CHARACTERS = 32_000
"""Of one answer: about 8,000 tokens, a small part of what even a small model reads."""

_LONG_TEXTS = ("content", "output", "diff", "text")
_HEAD_SHARE = 0.6


def result_text(result: JsonValue) -> str:
    """The result of a call as text."""
    if isinstance(result, str):
        return cut(result)
    if not isinstance(result, Mapping):
        return cut(_json(result))
    long = next((name for name in _LONG_TEXTS if isinstance(result.get(name), str)), None)
    facts = [f"{name}: {_json(value)}" for name, value in result.items() if name != long and _says(value)]
    body = [] if long is None else [str(result[long])]
    return cut("\n".join([*facts, *body]) or "done")


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, or its beginning and its end with a word on what is missing between them."""
    if len(text) <= most:
        return text
    head = int(most * _HEAD_SHARE)
    tail = most - head
    missing = f"\n… {len(text) - most:,} characters are left out here; ask for a smaller part …\n"
    return text[:head] + missing + text[-tail:]


def _says(value: JsonValue) -> bool:
    """What is not there, or is as usual, is not worth a line."""
    return value is not None and value is not False and value != "" and value != ()


def _json(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)
