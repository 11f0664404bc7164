"""What a tool of a server answered, as bounded text: what is no text is named, not shown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.core.errors import InvalidPayload
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.tools.tool_answers import cut

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

__all__ = ["MOST_CHARACTERS", "CallResult", "call_result"]

MOST_CHARACTERS = 200_000
"""Of one answer, as it is kept; a model is shown less."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """`structured` is what it answered as JSON, if it did; `text` the rest, or all of it."""

    text: str
    structured: JsonValue = None
    failed: bool = False


def call_result(answer: CallToolResult) -> CallResult:
    """The answer without the library's types, within bounds."""
    text = cut("\n\n".join(_text(block) for block in answer.content), MOST_CHARACTERS)
    structured = _structured(answer.structured_content)
    if _is_wrapped(answer.structured_content, text):
        structured = None
    elif structured is not None and _says_the_same(text, answer.structured_content):
        text = ""
    # guard: a refusal is kept as it is told, and a server may repeat what it was given
    return CallResult(redact_text(text), freeze(redact(structured)), answer.is_error)


def _text(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "resource":
            resource = block.resource
            body = getattr(resource, "text", None)
            if body is not None:
                return f"[{resource.uri}]\n{body}"
            return f"[{resource.uri}: {resource.mime_type or 'binary data'}, not shown]"
        case "resource_link":
            return f"[a link to {block.name}: {block.uri}]"
        case _:
            return f"[{block.type}, {block.mime_type}, about {len(block.data) * 3 // 4} bytes, not shown]"


def _structured(value: object) -> JsonValue:
    """None, too, where it is too large or no JSON: then the text has to do."""
    if value is None:
        return None
    try:
        return freeze(value) if len(json.dumps(value)) <= MOST_CHARACTERS else None
    except (InvalidPayload, ValueError, RecursionError):
        return None


def _is_wrapped(structured: object, text: str) -> bool:
    """Some servers wrap what is a mere word or number: then its text is all there is to know."""
    if not isinstance(structured, dict) or [*structured] != ["result"]:
        return False
    return structured["result"] == text or _says_the_same(text, structured["result"])


def _says_the_same(text: str, structured: object) -> bool:
    """Servers repeat what is structured as text, for clients that read only that."""
    try:
        return bool(json.loads(text) == structured)
    except (ValueError, RecursionError):
        return False
