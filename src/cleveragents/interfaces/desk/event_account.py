"""The audit log as people and programs get to see it: masked, with positions as cursors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.domain.redaction import redact
from cleveragents.interfaces.desk.wording import timestamp

if TYPE_CHECKING:
    from cleveragents.application.ports.events import AuditRecord
    from cleveragents.infrastructure.events.chain import LogRow
    from cleveragents.infrastructure.persistence.database import Database

__all__ = ["end_of_log", "event_rows", "fields_of", "fields_of_row"]


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


def fields_of_row(row: LogRow) -> dict[str, object]:
    """The same of a row as it was read; also of one whose type only a newer version knows."""
    try:
        time = timestamp(datetime.fromisoformat(row.occurred_at))
        facts = redact(json.loads(row.payload))
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


def end_of_log(database: Database) -> int:
    """The position of the last event; 0 where there is none."""
    from sqlalchemy import func, select

    from cleveragents.infrastructure.persistence.tables import events

    with database.read() as connection:
        return connection.execute(select(func.max(events.c.position))).scalar() or 0


def event_rows(
    database: Database,
    *,
    after: int | None,
    limit: int,
    type_name: str | None = None,
    subject: str | None = None,
) -> Sequence[LogRow]:
    """The first `limit` events after a position or, without one, the last; in their order either way."""
    from sqlalchemy import select

    from cleveragents.infrastructure.events.chain import LogRow
    from cleveragents.infrastructure.persistence.tables import events

    query = select(events).limit(limit)
    if type_name is not None:
        query = query.where(events.c.event_type == type_name)
    if subject is not None:
        query = query.where(events.c.subject == subject)
    if after is not None:
        query = query.where(events.c.position > after).order_by(events.c.position)
    else:
        query = query.order_by(events.c.position.desc())
    with database.read() as connection:
        rows = [LogRow(*row) for row in connection.execute(query)]
    return rows if after is not None else rows[::-1]
