"""Sandboxes as rows of the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select, update

from cleveragents.infrastructure.persistence.job_rows import microseconds, moment
from cleveragents.infrastructure.persistence.tables import sandboxes

__all__ = ["MAKING", "READY", "REMOVING", "SandboxRow", "all_rows", "drop", "find", "put", "set_state"]

MAKING = "making"
READY = "ready"
REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class SandboxRow:
    """A sandbox as the registry knows it."""

    plan_id: str
    strategy: str
    directory: Path
    state: str
    resource: Path
    size_bytes: int
    created_at: datetime


def find(connection: Connection, plan_id: str) -> SandboxRow | None:
    """The plan's sandbox."""
    found = connection.execute(select(sandboxes).where(sandboxes.c.plan_id == plan_id)).one_or_none()
    return None if found is None else _row(found._asdict())


def all_rows(connection: Connection) -> Sequence[SandboxRow]:
    """Every sandbox, in order of plan."""
    found = connection.execute(select(sandboxes).order_by(sandboxes.c.plan_id))
    return [_row(row._asdict()) for row in found]


def put(connection: Connection, row: SandboxRow) -> None:
    """Adds it, or replaces what was known of it."""
    drop(connection, row.plan_id)
    # ASCII, because a name on disk need not be Unicode and a database's text must.
    details = json.dumps({"resource": str(row.resource), "size_bytes": row.size_bytes})
    values = {
        "plan_id": row.plan_id,
        "strategy": row.strategy,
        "directory": str(row.directory),
        "state": row.state,
        "details": details,
        "created_at": microseconds(row.created_at),
    }
    connection.execute(insert(sandboxes), values)


def set_state(connection: Connection, plan_id: str, state: str) -> bool:
    """Whether there was such a row."""
    changed = connection.execute(update(sandboxes).where(sandboxes.c.plan_id == plan_id).values(state=state))
    return changed.rowcount > 0


def drop(connection: Connection, plan_id: str) -> bool:
    """Whether there was such a row."""
    return connection.execute(delete(sandboxes).where(sandboxes.c.plan_id == plan_id)).rowcount > 0


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
    )
