"""Events written in the business transaction, and the canonical text in which they are stored and hashed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC

from sqlalchemy import Connection, bindparam, select

from cleveragents.core.errors import InvalidPayload
from cleveragents.core.event import DomainEvent, PreparedEvent
from cleveragents.core.identifiers import acting_user
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.storage.prepared_statement import prepared
from cleveragents.storage.tables import outbox

__all__ = [
    "append_many_to_outbox",
    "append_to_outbox",
    "canonical_json",
    "event_row",
    "leave_in_outbox",
    "take_appended",
]

_APPENDED = "cleveragents.appended_events"
_COLUMNS = ("event_id", "event_type", "subject", "occurred_at", "payload")
_INSERT = outbox.insert().values({name: bindparam(name) for name in _COLUMNS})


def append_to_outbox(connection: Connection, event: DomainEvent) -> None:
    """Add the event to the current transaction: it is stored if and only if the transaction commits.

    Inside `Database.write`, commit listeners get the event after the commit.
    """
    append_many_to_outbox(connection, (event,))


def append_many_to_outbox(connection: Connection, events: Iterable[DomainEvent]) -> None:
    """Add several events in their order, each attributed to the acting user, if there is one."""
    appended = [_attributed(event) for event in events]
    if not appended:
        return
    inserting = prepared(_INSERT, connection.dialect.name)
    inserting.run_each(connection, [event_row(event) for event in appended])
    connection.info.setdefault(_APPENDED, []).extend(appended)


def _attributed(event: DomainEvent) -> DomainEvent:
    """Return the event with the acting user in `by`, if there is one."""
    name = acting_user()
    if name is None or "by" in event.payload:
        return event
    return replace(event, payload={**event.payload, "by": name})


def leave_in_outbox(connection: Connection, batch: Sequence[PreparedEvent]) -> None:
    """Add events that were already published: the sequencer assigns positions, but no listener is called.

    Events that are added twice are placed once.
    """
    new = {event.event_id: event._asdict() for event in batch}
    known = select(outbox.c.event_id).where(outbox.c.event_id.in_(list(new)))
    for event_id in connection.execute(known).scalars().all():
        new.pop(event_id)  # guard: a batch is added again if the outcome of its commit is unknown
    if new:
        prepared(_INSERT, connection.dialect.name).run_each(connection, list(new.values()))


def take_appended(connection: Connection) -> list[DomainEvent]:
    """Return the events appended over this connection since the last call. Only `Database` calls it."""
    appended: list[DomainEvent] = connection.info.pop(_APPENDED, [])
    return appended


def event_row(event: DomainEvent) -> dict[str, str]:
    """Return the columns shared by `outbox` and `events`; all text, ready to be hashed."""
    row = {
        "event_id": event.event_id,
        "event_type": event.event_type.value,
        "subject": event.subject,
        "occurred_at": event.occurred_at.astimezone(UTC).isoformat(timespec="microseconds"),
        "payload": canonical_json(event.payload),
    }
    _ensure_storable(row)
    return row


def canonical_json(value: JsonValue) -> str:
    """Return the canonical text of a JSON value: sorted keys, no spaces, characters not escaped."""
    return json.dumps(thaw(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _ensure_storable(row: dict[str, str]) -> None:
    where = f"event {row['event_type']}"
    if "\0" in row["subject"] or "\0" in row["event_id"]:
        raise InvalidPayload(where, "the subject or id contains a NUL")
    try:
        "".join(row.values()).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidPayload(where, f"text that is not Unicode ({error.reason})") from error
