"""Sandboxes as rows of the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from cleveragents.storage.columns import microseconds, moment
from cleveragents.storage.tables import sandboxes

__all__ = ["MAKING", "READY", "REMOVING", "SandboxRow", "all_rows", "drop", "find", "put", "set_state"]

MAKING = "making"
READY = "ready"
REMOVING = "removing"


class SandboxRow(Struct, frozen=True):
    """A sandbox in the registry.

    `home` names the state directory that holds it; None in rows of earlier versions. `remote` is the git
    remote that its plan works on, if any.
    """

    plan_id: str
    strategy: str
    directory: Path
    state: str
    resource: Path
    size_bytes: int
    created_at: datetime
    home: str | None = None
    remote: str | None = None


def find(connection: Connection, plan_id: str) -> SandboxRow | None:
    """Return the plan's sandbox; None if there is none."""
    found = connection.execute(select(sandboxes).where(sandboxes.c.plan_id == plan_id)).one_or_none()
    return None if found is None else _row(found._asdict())


def all_rows(connection: Connection) -> Sequence[SandboxRow]:
    """Return every sandbox, ordered by plan."""
    found = connection.execute(select(sandboxes).order_by(sandboxes.c.plan_id))
    return [_row(row._asdict()) for row in found]


def put(connection: Connection, row: SandboxRow) -> None:
    """Insert or replace the row."""
    connection.execute(delete(sandboxes).where(sandboxes.c.plan_id == row.plan_id))
    # ASCII, because file names may be invalid Unicode, which a text column does not store.
    facts: dict[str, object] = {"resource": str(row.resource), "size_bytes": row.size_bytes}
    if row.remote is not None:
        facts["remote"] = row.remote
    details = json.dumps(facts)
    values = {
        "plan_id": row.plan_id,
        "strategy": row.strategy,
        "directory": str(row.directory),
        "state": row.state,
        "details": details,
        "created_at": microseconds(row.created_at),
        "home": row.home,
    }
    connection.execute(insert(sandboxes), values)


def set_state(connection: Connection, row: SandboxRow, state: str) -> bool:
    """Set the state; return whether the row still exists and has the same `home`."""
    return connection.execute(update(sandboxes).where(*_this(row)).values(state=state)).rowcount > 0


def drop(connection: Connection, row: SandboxRow) -> bool:
    """Delete the row; return whether it still existed and had the same `home`."""
    return connection.execute(delete(sandboxes).where(*_this(row))).rowcount > 0


def _this(row: SandboxRow) -> tuple[ColumnElement[bool], ...]:
    # guard: never touch a newer row of another machine
    return sandboxes.c.plan_id == row.plan_id, sandboxes.c.home.is_not_distinct_from(row.home)


def _row(values: dict[str, object]) -> SandboxRow:
    details = json.loads(str(values["details"]))
    return SandboxRow(
        plan_id=str(values["plan_id"]),
        strategy=str(values["strategy"]),
        directory=Path(str(values["directory"])),
        state=str(values["state"]),
        resource=Path(details["resource"]),
        size_bytes=int(details["size_bytes"]),
        created_at=moment(int(str(values["created_at"]))),
        home=None if values["home"] is None else str(values["home"]),
        remote=details.get("remote"),
    )
