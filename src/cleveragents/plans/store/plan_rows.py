"""Conversion of plans, tool calls, checks and reviews to database rows and back.

Text and JSON from outside may contain characters that no database stores as text (a lone surrogate, a NUL).
JSON is therefore stored as ASCII, and such characters in text are escaped. Names with such characters are
refused. Values that JSON cannot represent (`NaN`, a set) are refused too, because they could not be read
back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cleveragents.changes.model.review import Review, ReviewKind
from cleveragents.core.actions.model import CheckRun
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze, thaw
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import ToolCall
from cleveragents.plans.model.plan import Plan
from cleveragents.storage.columns import ensure_storable, kept_text
from cleveragents.storage.rows import record_in, row_of

__all__ = [
    "call_of",
    "call_row",
    "check_of",
    "check_row",
    "decoded",
    "encoded",
    "plan_of",
    "plan_row",
    "review_of",
    "review_row",
]


def plan_row(plan: Plan) -> dict[str, object]:
    """Return all columns but `number`, which the database assigns. Raises `InvalidPayload`."""
    names = ("action", "job_id", "parent_id", "root_id", "key", "project")
    ensure_storable("a plan", {name: getattr(plan, name) for name in names})
    return row_of(
        plan,
        goal=kept_text(plan.goal),
        resource=encoded(plan.resource),
        request=encoded(plan.request, "request of a plan"),
        strategy=_encoded_or_none(plan.strategy, "strategy of a plan"),
        waiting_for=_encoded_or_none(plan.waiting_for, "pending request of a plan"),
        error=_kept_error(plan.error),
        answer=None if plan.answer is None else kept_text(redact_text(plan.answer)),
    )


def plan_of(row: Mapping[Any, Any]) -> Plan:
    """Return the plan of the row."""
    return record_in(
        Plan,
        row,
        resource=str(decoded(row["resource"])),
        request=_object(row["request"]),
        strategy=_decoded_or_none(row["strategy"]),
        waiting_for=_decoded_or_none(row["waiting_for"]),
    )


def call_row(call: ToolCall) -> dict[str, object]:
    """Return all columns of a tool call. Raises `InvalidPayload`."""
    ensure_storable("a tool call", {"tool": call.tool, "step": call.step, "changeset_id": call.changeset_id})
    return row_of(
        call,
        arguments=encoded(call.arguments, f"arguments of {call.tool}"),
        result=_encoded_or_none(call.result, f"result of {call.tool}"),
        error=_kept_error(call.error),
        reason=_kept_error(call.reason),
    )


def call_of(row: Mapping[Any, Any]) -> ToolCall:
    """Return the tool call of the row."""
    arguments, result = _object(row["arguments"]), _decoded_or_none(row["result"])
    return record_in(ToolCall, row, arguments=arguments, result=result)


def check_row(run: CheckRun) -> dict[str, object]:
    """Return all columns but `number`. Raises `InvalidPayload`."""
    ensure_storable("a run of a check", {"name": run.name, "tree": run.tree})
    row = row_of(run, command=kept_text(run.command), details=kept_text(run.details))
    del row["seconds"]
    return row


def check_of(row: Mapping[Any, Any]) -> CheckRun:
    """Return the check run of the row."""
    return record_in(CheckRun, row)


def review_row(review: Review) -> dict[str, str]:
    """Return all columns of a review."""
    return {
        "plan_id": review.plan_id,
        "kind": review.kind.value,
        "subject": encoded(review.subject),
        "verdict": "accepted" if review.accepted else "rejected",
    }


def review_of(row: Mapping[Any, Any]) -> Review:
    """Return the review of the row."""
    kind = ReviewKind(row["kind"])
    return Review(row["plan_id"], kind, str(decoded(row["subject"])), row["verdict"] == "accepted")


def encoded(value: JsonValue, where: str = "text") -> str:
    """Return the value as ASCII JSON. Raises `InvalidPayload` if it is not a JSON value."""
    return json.dumps(thaw(freeze(value, where=where)), separators=(",", ":"))


def _kept_error(error: str | None) -> str | None:
    """Mask secrets in an error before it is stored: errors quote commands, addresses and output."""
    return None if error is None else kept_text(redact_text(error))


def _encoded_or_none(value: JsonValue, where: str) -> str | None:
    return None if value is None else encoded(value, where)


def decoded(text: str) -> JsonValue:
    """Return the value of JSON that `encoded` wrote."""
    return freeze(json.loads(text))


def _decoded_or_none(text: str | None) -> JsonValue:
    return None if text is None else decoded(text)


def _object(text: str) -> FrozenObject:
    found = decoded(text)
    assert isinstance(found, FrozenObject)
    return found
