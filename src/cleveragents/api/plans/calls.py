"""One call of a tool, as rows and JSON show it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.api.wording import timestamp
from cleveragents.core.json_value import JsonValue, freeze, thaw
from cleveragents.core.text.redaction import redact, redact_known, redact_known_text
from cleveragents.plans.family import short_of

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.tool import ToolCall

__all__ = ["call_fields", "call_in_short", "spelt_arguments"]

Row = dict[str, JsonValue]


def call_fields(parts: PlanParts, call: ToolCall) -> Row:
    """One call, all of it."""
    return {
        "number": call.number,
        "tool": call.tool,
        "state": call.state.value,
        "changed": _files_changed(parts, call),
        "changeset": call.changeset_id,
        "approval": call.approval,
        "started": timestamp(call.started_at),
        "ended": None if call.ended_at is None else timestamp(call.ended_at),
        "arguments": freeze(
            redact_known(call.arguments)
        ),  # masked when kept, unless a person was to approve them
        "error": call.error,
        "result": freeze(redact(call.result)),
    }


def call_in_short(parts: PlanParts, call: ToolCall) -> Row:
    """One call, without what it was given and what it printed."""
    return {
        "number": call.number,
        "tool": call.tool,
        "what": redact_known_text(spelt_arguments(call.arguments)),
        "state": call.state.value,
        "changed": _files_changed(parts, call),
        "error": call.error,
    }


def _files_changed(parts: PlanParts, call: ToolCall) -> int:
    return 0 if call.changeset_id is None else parts.changesets.get(call.changeset_id).length


def spelt_arguments(arguments: JsonValue) -> str:
    """What a call was given, as a person would write it."""
    if not isinstance(arguments, Mapping):
        return str(arguments)
    if arguments.keys() == {"plan", "title"}:
        title, _, _ = str(arguments["title"]).partition("\n")
        return f"{title} ({short_of(str(arguments['plan']))})"
    argv = arguments.get("argv")
    if isinstance(argv, Sequence) and not isinstance(argv, str):
        return shlex.join(str(word) for word in argv)
    return ", ".join(f"{name}={_spelt(value)}" for name, value in arguments.items())


def _spelt(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)
