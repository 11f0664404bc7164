"""What a server offers, as plain values: names that every model takes, and nothing that is too large.

A description and a schema are somebody else's words in a model's prompt: they are cut, never run.
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

if TYPE_CHECKING:
    from mcp_types import Tool

__all__ = ["PREFIX", "SEPARATOR", "ListedTool", "full_name", "listed", "server_in"]

PREFIX = "mcp__"
SEPARATOR = "__"

_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 4_000
_LARGEST_SCHEMA = 50_000
_ODD = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server describes it; `problem` says why it cannot be used, if so."""

    name: str
    description: str
    input_schema: Mapping[str, JsonValue]
    read_only: bool
    problem: str = ""


def listed(tool: Tool) -> ListedTool:
    """The tool without the library's types."""
    description = (tool.description or tool.title or "").strip()
    if len(description) > _LONGEST_DESCRIPTION:
        description = f"{description[:_LONGEST_DESCRIPTION]}…"
    read_only = tool.annotations is not None and tool.annotations.read_only_hint is True
    schema, problem = _schema(tool.input_schema)
    return ListedTool(tool.name, description, schema, read_only, problem)


def full_name(server: str, tool: str) -> str:
    """`mcp__server__tool`, in the letters that model providers allow and no longer than they allow.

    A name that had to be altered ends in a sign of its own, so that two never become one.
    """
    plain = f"{PREFIX}{server}{SEPARATOR}{_ODD.sub('_', tool)}"
    if plain.endswith(f"{SEPARATOR}{tool}") and len(plain) <= _LONGEST_NAME:
        return plain
    sign = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{plain[: _LONGEST_NAME - len(sign) - 1]}_{sign}"


def server_in(name: str) -> str:
    """The server that a tool's full name, or a pattern, names; empty if it names none."""
    return name.removeprefix(PREFIX).partition(SEPARATOR)[0] if name.startswith(PREFIX) else ""


def _schema(given: Mapping[str, object]) -> tuple[Mapping[str, JsonValue], str]:
    try:
        frozen = freeze(given)
        size = len(json.dumps(given))
    except (InvalidPayload, ValueError, RecursionError):
        return {}, "its schema is no JSON"
    if size > _LARGEST_SCHEMA:
        return {}, f"its schema has more than {_LARGEST_SCHEMA} characters"
    if not isinstance(frozen, Mapping) or frozen.get("type", "object") != "object":
        return {}, "its schema describes no object"
    return frozen, ""
