"""Plans, their tool calls, checks and reviews as rows, and back.

Free text and JSON from outside may hold what no database takes as text (a lone surrogate, a NUL), so JSON is
kept as ASCII, and text with its odd characters spelt out. Names that nobody writes so are refused. What would
not come back as JSON (`NaN`, a set) is refused, too: once kept, it could not be read any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cleveragents.changes.model.review import Review, ReviewKind
from cleveragents.changes.store.rows import ensure_storable
from cleveragents.core.actions.model import CheckRun, CheckVerdict
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze, thaw
from cleveragents.core.policy import Isolation
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.storage.columns import kept_text, microseconds, moment

__all__ = [
    "call_of",
    "call_row",
    "check_of",
    "check_row",
    "encoded",
    "plan_of",
    "plan_row",
    "review_of",
    "review_row",
]


def plan_row(plan: Plan) -> dict[str, object]:
    """All columns but `number`, which the database gives. `InvalidPayload`."""
    ensure_storable(
        "a plan",
        {
            "action": plan.action,
            "job_id": plan.job_id,
            "parent_id": plan.parent_id,
            "root_id": plan.root_id,
            "key": plan.key,
            "project": plan.project,
        },
    )
    return {
        "id": plan.id,
        "goal": kept_text(plan.goal),
        "action": plan.action,
        "resource": encoded(plan.resource),
        "phase": plan.phase.value,
        "state": plan.state.value,
        "version": plan.version,
        "request": encoded(plan.request, "request of a plan"),
        "strategy": _encoded_or_none(plan.strategy, "strategy of a plan"),
        "waiting_for": _encoded_or_none(plan.waiting_for, "what a plan waits for"),
        "error": _kept_error(plan.error),
        "job_id": plan.job_id,
        "parent_id": plan.parent_id,
        "root_id": plan.root_id,
        "depth": plan.depth,
        "key": plan.key,
        "project": plan.project,
        "isolation": None if plan.isolation is None else plan.isolation.value,
        "created_at": microseconds(plan.created_at),
        "updated_at": microseconds(plan.updated_at),
    }


def plan_of(row: Mapping[Any, Any]) -> Plan:
    """The plan that the row holds."""
    return Plan(
        id=row["id"],
        goal=row["goal"],
        action=row["action"],
        resource=str(_decoded(row["resource"])),
        phase=Phase(row["phase"]),
        state=PlanState(row["state"]),
        version=row["version"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
        request=_object(row["request"]),
        strategy=_decoded_or_none(row["strategy"]),
        waiting_for=_decoded_or_none(row["waiting_for"]),
        error=row["error"],
        job_id=row["job_id"],
        parent_id=row["parent_id"],
        root_id=row["root_id"],
        depth=row["depth"],
        key=row["key"],
        project=row["project"],
        isolation=None if row["isolation"] is None else Isolation(row["isolation"]),
    )


def call_row(call: ToolCall) -> dict[str, object]:
    """All columns of a tool call. `InvalidPayload`."""
    ensure_storable("a tool call", {"tool": call.tool, "step": call.step, "changeset_id": call.changeset_id})
    return {
        "plan_id": call.plan_id,
        "number": call.number,
        "call_id": call.call_id,
        "step": call.step,
        "tool": call.tool,
        "arguments": encoded(call.arguments, f"arguments of {call.tool}"),
        "state": call.state.value,
        "changeset_id": call.changeset_id,
        "approval": call.approval,
        "result": _encoded_or_none(call.result, f"result of {call.tool}"),
        "error": _kept_error(call.error),
        "started_at": microseconds(call.started_at),
        "ended_at": None if call.ended_at is None else microseconds(call.ended_at),
        "digest": call.digest,
    }


def call_of(row: Mapping[Any, Any]) -> ToolCall:
    """The tool call that the row holds."""
    return ToolCall(
        plan_id=row["plan_id"],
        number=row["number"],
        call_id=row["call_id"],
        tool=row["tool"],
        arguments=_object(row["arguments"]),
        state=CallState(row["state"]),
        started_at=moment(row["started_at"]),
        changeset_id=row["changeset_id"],
        approval=row["approval"],
        result=_decoded_or_none(row["result"]),
        error=row["error"],
        ended_at=None if row["ended_at"] is None else moment(row["ended_at"]),
        step=row["step"],
        digest=row["digest"],
    )


def check_row(run: CheckRun) -> dict[str, object]:
    """All columns but `number`. `InvalidPayload`."""
    ensure_storable("a run of a check", {"name": run.name, "tree": run.tree})
    return {
        "plan_id": run.plan_id,
        "name": run.name,
        "command": kept_text(run.command),
        "required": run.required,
        "verdict": run.verdict.value,
        "details": kept_text(run.details),
        "tree": run.tree,
        "ended_at": microseconds(run.ended_at),
    }


def check_of(row: Mapping[Any, Any]) -> CheckRun:
    """The run of a check that the row holds."""
    return CheckRun(
        plan_id=row["plan_id"],
        name=row["name"],
        command=row["command"],
        required=row["required"],
        verdict=CheckVerdict(row["verdict"]),
        details=row["details"],
        tree=row["tree"],
        ended_at=moment(row["ended_at"]),
    )


def review_row(review: Review) -> dict[str, str]:
    """All columns of a verdict."""
    return {
        "plan_id": review.plan_id,
        "kind": review.kind.value,
        "subject": encoded(review.subject),
        "verdict": "accepted" if review.accepted else "rejected",
    }


def review_of(row: Mapping[Any, Any]) -> Review:
    """The verdict that the row holds."""
    kind = ReviewKind(row["kind"])
    return Review(row["plan_id"], kind, str(_decoded(row["subject"])), row["verdict"] == "accepted")


def encoded(value: JsonValue, where: str = "text") -> str:
    """The value as ASCII JSON. `InvalidPayload` for what is no JSON value."""
    return json.dumps(thaw(freeze(value, where=where)), separators=(",", ":"))


def _kept_error(error: str | None) -> str | None:
    """Errors quote commands, addresses and their output; what looks like a secret is not kept."""
    return None if error is None else kept_text(redact_text(error))


def _encoded_or_none(value: JsonValue, where: str) -> str | None:
    return None if value is None else encoded(value, where)


def _decoded(text: str) -> JsonValue:
    return freeze(json.loads(text))


def _decoded_or_none(text: str | None) -> JsonValue:
    return None if text is None else _decoded(text)


def _object(text: str) -> FrozenObject:
    found = _decoded(text)
    assert isinstance(found, FrozenObject)
    return found
