"""Jobs as rows of `jobs`, their moves, and the locks of transactions.

Payloads and results are stored as ASCII JSON, which represents any JSON text on every database. A move writes
the row and its event. On PostgreSQL, named locks serialize transactions that count rows and rely on the
count. Writes for a job check its fence in the same transaction, so a worker that lost the job writes nothing
more.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, RowMapping, bindparam, literal_column, select, text, update

from cleveragents.core.errors import StaleFence
from cleveragents.core.event import DomainEvent
from cleveragents.core.identifiers import Fence, IdentifierSource, WorkerIdentity
from cleveragents.core.json_value import JsonValue, freeze, freeze_object, thaw
from cleveragents.jobs.model.job import Job, JobState, Lane, Move
from cleveragents.storage.columns import microseconds
from cleveragents.storage.outbox import append_many_to_outbox
from cleveragents.storage.prepared_statement import prepared
from cleveragents.storage.rows import record_in
from cleveragents.storage.tables import jobs

__all__ = [
    "MUTABLE",
    "RUNS",
    "changed_of",
    "ensure_owned",
    "event_of",
    "hold_in_order",
    "job_of",
    "keep_moves",
    "lane_rows_of",
    "lanes_in",
    "row_of",
]


MUTABLE = (
    "state",
    "attempt",
    "fence",
    "beat",
    "owner_id",
    "owner_host",
    "owner_pid",
    "owner_started_ticks",
    "cancel_reason",
    "result",
    "error",
    "updated_at",
    "not_before",
)
"""The columns that a move may change."""
_MOVE = (
    update(jobs).where(jobs.c.id == bindparam("job_id")).values({name: bindparam(name) for name in MUTABLE})
)
_HOLD = text("SELECT pg_advisory_xact_lock(:ours, :name)")
_OURS = 0x6A6F6273  # "jobs": separates our locks from those of other programs

# Held until the transaction ends: the job cannot be taken over meanwhile, but its heartbeat continues.
RUNS = (
    select(jobs.c.number)
    .where(
        jobs.c.id == bindparam("job_id"),
        jobs.c.fence == bindparam("token"),
        jobs.c.state == literal_column(f"'{JobState.RUNNING.value}'"),
    )
    .with_for_update(read=True, key_share=True)
)


def row_of(job: Job) -> dict[str, object]:
    """Return all columns except `number`, which the database assigns."""
    return {
        "id": job.id,
        "kind": job.kind,
        "payload": _encoded(job.payload),
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "key": job.key,
        "at_most": job.at_most,
        "queue": job.queue,
        "lanes": json.dumps([[lane.name, lane.at_most] for lane in job.lanes]) if job.lanes else None,
        "created_at": microseconds(job.created_at),
        **changed_of(job),
    }


def lane_rows_of(job: Job) -> list[dict[str, object]]:
    """Return the rows of `job_lanes`, by which the jobs of a shared limit are found."""
    return [{"job_id": job.id, "lane": lane.name, "at_most": lane.at_most} for lane in job.lanes]


def lanes_in(row: RowMapping) -> tuple[Lane, ...]:
    """Return the shared limits of the job in the row."""
    text = row["lanes"]
    return () if text is None else tuple(Lane(name, at_most) for name, at_most in json.loads(text))


def changed_of(job: Job) -> dict[str, object]:
    """Return the columns that a move may change; the payload, which may be large, is not rewritten."""
    owner = job.owner
    return {
        "state": job.state.value,
        "attempt": job.attempt,
        "fence": job.fence,
        "beat": job.beat,
        "owner_id": owner and owner.id,
        "owner_host": owner and owner.host,
        "owner_pid": owner and owner.pid,
        "owner_started_ticks": owner and owner.started_ticks,
        "cancel_reason": job.cancel_reason,
        "result": None if job.result is None else _encoded(job.result),
        "error": job.error,
        "updated_at": microseconds(job.updated_at),
        "not_before": microseconds(job.not_before),
    }


def job_of(row: RowMapping) -> Job:
    """Return the job in the row."""
    return record_in(
        Job,
        row,
        payload=freeze_object(json.loads(row["payload"]), where="payload of a job"),
        owner=_owner(row),
        result=None if row["result"] is None else freeze(json.loads(row["result"])),
        lanes=lanes_in(row),
    )


def _owner(row: RowMapping) -> WorkerIdentity | None:
    if row["owner_id"] is None:
        return None
    return WorkerIdentity(row["owner_id"], row["owner_host"], row["owner_pid"], row["owner_started_ticks"])


def _encoded(value: JsonValue) -> str:
    return json.dumps(thaw(value), separators=(",", ":"))


def keep_moves(connection: Connection, moves: Sequence[Move], identifiers: IdentifierSource) -> None:
    """Write the moves in the current transaction, in order. The caller has locked the rows."""
    if not moves:
        return
    changes = [{"job_id": move.job.id, **changed_of(move.job)} for move in moves]
    prepared(_MOVE, connection.dialect.name).run_each(connection, changes)
    append_many_to_outbox(connection, [event_of(move, identifiers) for move in moves])


def event_of(move: Move, identifiers: IdentifierSource) -> DomainEvent:
    """Return the event of the move, with the time of the move."""
    job = move.job
    return DomainEvent(move.event_type, job.id, identifiers.new(), job.updated_at, move.facts)


def hold_in_order(connection: Connection, names: Iterable[str]) -> None:
    """Lock all names until the end of the transaction.

    Two names with the same hash share one lock, which only causes an unnecessary wait.
    """
    numbers = {zlib.crc32(name.encode()) - 2**31 for name in names}
    for number in sorted(numbers):  # guard: all transactions take the locks in the same order
        connection.execute(_HOLD, {"ours": _OURS, "name": number})


def ensure_owned(connection: Connection, fence: Fence | None) -> None:
    """Raise `StaleFence` unless the job runs under this fence. Does nothing without a fence."""
    if fence is None:
        return
    runs = prepared(RUNS, connection.dialect.name)
    held = runs.run(connection, {"job_id": fence.job_id, "token": fence.token}).first()
    if held is None:  # guard: writes of a stale worker are refused
        raise StaleFence(fence.job_id, fence.token)
