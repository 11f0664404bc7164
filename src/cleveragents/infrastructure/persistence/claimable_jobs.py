"""Which queued job is to be claimed next: the most urgent one of those that may run now.

A job with a bound may run while fewer than that many of its kind do. The usual look costs one statement: only
where it comes upon a job with a bound, those that run are counted, and only where that many do already, it
looks again, past the jobs of that kind which would have to wait. So a full kind holds up nobody else, however
many of its jobs are queued.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    text,
)

from cleveragents.infrastructure.persistence.tables import jobs

__all__ = ["Overtaken", "any_claimable", "most_urgent"]

# The literals let the planner see that the partial indexes answer this.
_DUE = (
    jobs.c.state == literal_column("'queued'"),
    jobs.c.kind.in_(bindparam("kinds", expanding=True)),
    jobs.c.not_before <= bindparam("now"),
)
_ANY = select(jobs.c.kind, jobs.c.at_most).where(*_DUE).limit(1)
_MOST_URGENT = (
    select(jobs)
    .where(*_DUE)
    .order_by(jobs.c.priority.desc(), jobs.c.number)
    .limit(1)
    .with_for_update(skip_locked=True)
)
_RUNNING = (
    select(func.count())
    .select_from(jobs)
    .where(jobs.c.state == literal_column("'running'"), jobs.c.kind == bindparam("kind"))
)
_HOLD_KIND = text("SELECT pg_advisory_xact_lock(:ours, :kind)")
_OURS = 0x6A6F6273  # "jobs": keeps our locks apart from everybody else's


class Overtaken(Exception):
    """Somebody else took the last place of a kind in this very moment: look again, in a new transaction."""


def any_claimable(connection: Connection, wanted: Mapping[str, object]) -> bool:
    """Whether there is a job for `most_urgent` to find. Holds nothing."""
    full: dict[str, int] = {}
    while True:
        row = connection.execute(_past(_ANY, full), wanted).mappings().first()
        if row is None:
            return False
        if row["at_most"] is None:
            return True
        running = _running(connection, row["kind"])
        if running < row["at_most"]:
            return True
        full[row["kind"]] = running


def most_urgent(connection: Connection, wanted: Mapping[str, object]) -> RowMapping | None:
    """The job to be claimed, held until the end of the transaction; its place is kept for it as long.

    `Overtaken` when a place was lost while waiting for whoever claims jobs of the same kind.
    """
    full: dict[str, int] = {}
    while True:
        row = connection.execute(_past(_MOST_URGENT, full), wanted).mappings().first()
        if row is None or row["at_most"] is None:
            return row
        running = _running(connection, row["kind"])
        if running >= row["at_most"]:  # guard: no more of a kind run than the job's bound
            full[row["kind"]] = running
            continue
        _ensure_kept(connection, row)
        return row


def _ensure_kept(connection: Connection, row: RowMapping) -> None:
    """Where transactions run beside each other, two could see the same place free: they take turns by kind.

    A transaction holds one kind at most, and ends when it was overtaken: nobody waits in a circle.
    """
    if connection.dialect.name != "postgresql":
        return
    number = zlib.crc32(row["kind"].encode()) - 2**31
    connection.execute(_HOLD_KIND, {"ours": _OURS, "kind": number})  # guard: two cannot take the last place
    if _running(connection, row["kind"]) >= row["at_most"]:  # guard: counted again, now that nobody else may
        raise Overtaken


def _running(connection: Connection, kind: str) -> int:
    return int(connection.execute(_RUNNING, {"kind": kind}).scalar_one())


def _past(statement: Select[Any], full: Mapping[str, int]) -> Select[Any]:
    if not full:  # as it is, a statement that was compiled once is known again without being looked through
        return statement
    return statement.where(*(_may_run(kind, running) for kind, running in full.items()))


def _may_run(kind: str, running: int) -> ColumnElement[bool]:
    return or_(jobs.c.kind != kind, jobs.c.at_most.is_(None), jobs.c.at_most > running)
