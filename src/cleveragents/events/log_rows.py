"""Reads rows of the audit log, whatever somebody has put there.

SQLite keeps any value in any column: bytes, or text that is no UTF-8. Whoever changed a row so must find that
row named as changed, and not that the log cannot be read at all.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, LargeBinary, Select, cast
from sqlalchemy.exc import OperationalError

from cleveragents.events.chain import LogRow
from cleveragents.storage.tables import events

__all__ = ["log_rows"]

_AS_BYTES = tuple(cast(column, LargeBinary) for column in events.columns if column is not events.c.position)


def log_rows(connection: Connection, query: Select[Any]) -> list[LogRow]:
    """What the query finds of `events`; a value that is no text as one that its row's hash cannot fit."""
    try:
        return [_row(*found) for found in connection.execute(query)]
    except OperationalError:
        if connection.dialect.name != "sqlite":
            raise
    found_as_bytes = connection.execute(query.with_only_columns(events.c.position, *_AS_BYTES))
    return [_row(position, *map(_decoded, values)) for position, *values in found_as_bytes]


def _row(position: int, *values: object) -> LogRow:
    return LogRow(position, *(value if isinstance(value, str) else repr(value) for value in values))


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
