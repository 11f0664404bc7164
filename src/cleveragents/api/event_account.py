"""The audit log as people and programs get to see it: masked, with positions as cursors."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cleveragents.api.wording import timestamp
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.known_secrets import known_values
from cleveragents.core.text.redaction import redact

if TYPE_CHECKING:
    from cleveragents.access.model.user import ProjectScope
    from cleveragents.core.event_ports import AuditRecord
    from cleveragents.events.chain import LogRow
    from cleveragents.events.verification import AuditReport
    from cleveragents.storage.database import Database

__all__ = ["end_of_log", "event_rows", "fields_of", "fields_of_row", "report_fields"]


def fields_of(record: AuditRecord) -> dict[str, JsonValue]:
    """A record as rows and JSON show it."""
    event = record.event
    return {
        "position": record.position,
        "time": timestamp(event.occurred_at),
        "type": event.event_type.value,
        "subject": event.subject,
        "facts": freeze(redact(event.payload)),
        "event_id": event.event_id,
        "hash": record.hash,
    }


def report_fields(report: AuditReport) -> dict[str, Any]:
    """The outcome of a verification: what is wrong, and which events each set of anchors covers."""
    anchors = [
        {"target": each.source, "anchors": each.anchors, "events": each.events, "time": each.time}
        for each in report.coverage
    ]
    findings = [{"position": found.position, "problem": found.problem} for found in report.findings]
    return {"ok": report.ok, "events": report.rows, "findings": findings, "anchors": anchors}


def fields_of_row(row: LogRow) -> dict[str, object]:
    """The same of a row as it was read; also of one whose type only a newer version knows."""
    try:
        time = timestamp(datetime.fromisoformat(row.occurred_at))
        facts = _masked(json.loads(row.payload))
    except ValueError:  # it was tampered with: `verification` says so, and who reads on can
        time, facts = row.occurred_at, {}
    return {
        "position": row.position,
        "time": time,
        "type": row.event_type,
        "subject": row.subject,
        "facts": facts,
        "event_id": row.event_id,
        "hash": row.hash,
    }


def _masked(payload: object) -> object:
    """As `redact` does it; what is short comes again and again, and is masked once."""
    if not isinstance(payload, dict):
        return redact(payload)
    known = hash(known_values())  # not the values: the cache outlives their owner
    masked: dict[str, object] = {}
    for name, value in payload.items():
        if value is None or isinstance(value, (bool, int)) or (isinstance(value, str) and len(value) <= 40):
            masked |= _masked_item(name, type(value).__name__, value, known)
        else:
            masked |= _items(name, value)
    return masked


@lru_cache(maxsize=4096)
def _masked_item(name: str, kind: str, value: str | int | None, known: int) -> dict[str, object]:
    # `kind`, because 1 and True are equal.
    return _items(name, value)


def _items(name: str, value: object) -> dict[str, object]:
    found = redact({name: value})
    assert isinstance(found, dict)
    return found


def end_of_log(database: Database) -> int:
    """The position of the last event; 0 where there is none."""
    from sqlalchemy import func, select

    from cleveragents.storage.tables import events

    with database.read() as connection:
        return connection.execute(select(func.max(events.c.position))).scalar() or 0


def event_rows(
    database: Database,
    *,
    after: int | None,
    limit: int,
    type_name: str | None = None,
    subject: str | None = None,
    subjects: Collection[str] | None = None,
    scope: ProjectScope = None,
) -> Sequence[LogRow]:
    """The first `limit` events of these projects after a position or, without one, the last; in their order
    either way."""
    from sqlalchemy import select

    from cleveragents.access.store.project_scope import project_of_event
    from cleveragents.events.log_rows import log_rows
    from cleveragents.storage.tables import events

    query = select(events).limit(limit)
    if scope is not None:
        query = query.where(project_of_event(database.dialect).in_(scope))
    if type_name is not None:
        query = query.where(events.c.event_type == type_name)
    if subject is not None:
        query = query.where(events.c.subject == subject)
    if subjects is not None:
        query = query.where(events.c.subject.in_(subjects))
    if after is not None:
        query = query.where(events.c.position > after).order_by(events.c.position)
    else:
        query = query.order_by(events.c.position.desc())
    with database.read() as connection:
        rows = log_rows(connection, query)
    return rows if after is not None else rows[::-1]
