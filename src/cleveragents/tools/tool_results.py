"""Format the result of a tool for a model: short facts first, then the long text, unescaped and truncated.

JSON would escape every line break of a file, which costs tokens and makes small models copy the escapes into
their edits. So the one long text of a result is shown raw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cleveragents.core.json_value import JsonValue, thaw

__all__ = ["MOST_CHARACTERS", "cut", "result_text"]

MOST_CHARACTERS = 32_000
"""The limit for one answer: about 8,000 tokens, a small part of even a small model's context."""

_LONG_TEXTS = ("content", "output", "diff", "text")
_HEAD_SHARE = 0.6


def result_text(result: JsonValue) -> str:
    """Return the result of a call as text."""
    if isinstance(result, str):
        return cut(result)
    if not isinstance(result, Mapping):
        return cut(_json(result))
    long = next((name for name in _LONG_TEXTS if isinstance(result.get(name), str)), None)
    facts = [f"{name}: {_json(value)}" for name, value in result.items() if name != long and _says(value)]
    body = [] if long is None else [str(result[long])]
    return cut("\n".join([*facts, *body]) or "done")


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the text; if it is too long, its beginning and end with a note on the omitted part."""
    if len(text) <= most:
        return text
    head = int(most * _HEAD_SHARE)
    tail = most - head
    missing = f"\n… {len(text) - most:,} characters omitted; request a smaller part …\n"
    return text[:head] + missing + text[-tail:]


def _says(value: JsonValue) -> bool:
    """Return whether a value is worth a line in the result: it is not None, False or empty."""
    return value is not None and value is not False and value != "" and value != ()


def _json(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)
