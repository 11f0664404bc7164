"""A server's tools and answers as plain, bounded values.

Names are valid for every model provider. A description and a schema are untrusted text in a model's prompt:
their length is limited, and nothing in them is executed. Answers become text of limited length; content that
is not text is named, not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from cleveragents.core.errors import InvalidPayload
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.tools.tool_results import cut

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, Tool

__all__ = [
    "MOST_CHARACTERS",
    "PREFIX",
    "SEPARATOR",
    "CallResult",
    "ListedTool",
    "call_result",
    "full_name",
    "listed_tool",
    "server_in",
]


PREFIX = "mcp__"
SEPARATOR = "__"
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 4_000
_LARGEST_SCHEMA = 50_000
_ODD = re.compile(r"[^A-Za-z0-9_-]")

MOST_CHARACTERS = 200_000
"""The limit for a stored answer; a model is shown less."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server describes it; `problem` is the reason why it cannot be used, if any."""

    name: str
    description: str
    input_schema: Mapping[str, JsonValue]
    read_only: bool
    problem: str = ""


def listed_tool(tool: Tool) -> ListedTool:
    """Convert a tool from the library's types."""
    description = (tool.description or tool.title or "").strip()
    if len(description) > _LONGEST_DESCRIPTION:
        description = f"{description[:_LONGEST_DESCRIPTION]}…"
    read_only = tool.annotations is not None and tool.annotations.read_only_hint is True
    schema, problem = _schema(tool.input_schema)
    return ListedTool(tool.name, description, schema, read_only, problem)


def full_name(server: str, tool: str) -> str:
    """Return `mcp__server__tool`, in the characters and length that model providers allow.

    A name that had to be altered ends in a hash, so that two names never become one.
    """
    plain = f"{PREFIX}{server}{SEPARATOR}{_ODD.sub('_', tool)}"
    if plain.endswith(f"{SEPARATOR}{tool}") and len(plain) <= _LONGEST_NAME:
        return plain
    sign = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{plain[: _LONGEST_NAME - len(sign) - 1]}_{sign}"


def server_in(name: str) -> str:
    """Return the server in a tool's full name or in a pattern; empty if there is none."""
    return name.removeprefix(PREFIX).partition(SEPARATOR)[0] if name.startswith(PREFIX) else ""


def _schema(given: Mapping[str, object]) -> tuple[Mapping[str, JsonValue], str]:
    try:
        frozen = freeze(given)
        size = len(json.dumps(given))
    except (InvalidPayload, ValueError, RecursionError):
        return {}, "the schema is not valid JSON"
    if size > _LARGEST_SCHEMA:
        return {}, f"the schema has more than {_LARGEST_SCHEMA} characters"
    if not isinstance(frozen, Mapping) or frozen.get("type", "object") != "object":
        return {}, "the schema does not describe an object"
    return frozen, ""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The answer of a call: `structured` is its JSON content, if any; `text` is all other content."""

    text: str
    structured: JsonValue = None
    failed: bool = False


def call_result(answer: CallToolResult) -> CallResult:
    """Convert an answer from the library's types, within limits."""
    text = cut("\n\n".join(_text(block) for block in answer.content), MOST_CHARACTERS)
    structured = _structured(answer.structured_content)
    if _is_wrapped(answer.structured_content, text):
        structured = None
    elif structured is not None and _says_the_same(text, answer.structured_content):
        text = ""
    # guard: a stored refusal must not contain secrets that the server repeats
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
    """Return the value as JSON; None if it is too large or invalid, so that the text is used."""
    if value is None:
        return None
    try:
        return freeze(value) if len(json.dumps(value)) <= MOST_CHARACTERS else None
    except (InvalidPayload, ValueError, RecursionError):
        return None


def _is_wrapped(structured: object, text: str) -> bool:
    """Return whether the structured content only wraps the value of the text, so that the text suffices."""
    if not isinstance(structured, dict) or [*structured] != ["result"]:
        return False
    return structured["result"] == text or _says_the_same(text, structured["result"])


def _says_the_same(text: str, structured: object) -> bool:
    """Return whether the text repeats the structured content, as servers do for clients that
    read only text.
    """
    try:
        return bool(json.loads(text) == structured)
    except (ValueError, RecursionError):
        return False
