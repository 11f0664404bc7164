"""Who works, on a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Connection, delete, select, update

from cleveragents.core.clock import Clock
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.ports import WorkerRecord
from cleveragents.storage.columns import kept_text, microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in, row_of
from cleveragents.storage.service_tables import workers

__all__ = ["GONE", "SqlWorkerRegistry"]

GONE = "gone"
"""The last thing a worker says of itself."""

_REMEMBERED = timedelta(days=1)


class SqlWorkerRegistry:
    """`WorkerRegistry` on a `Database`. Stateless but for the database, so any thread may share it."""

    def __init__(self, database: Database, identifiers: IdentifierSource, clock: Clock) -> None:
        self._database = database
        self._identifiers = identifiers
        self._clock = clock

    def report(self, worker: WorkerRecord) -> None:
        said = _storable(worker)
        row = row_of(said)

        def unit(connection: Connection) -> None:
            mine = workers.c.id == said.id
            held = connection.execute(select(workers.c.state).where(mine).with_for_update()).scalar()
            if held is None:
                connection.execute(workers.insert(), row)
                append_to_outbox(connection, self._event(EventType.WORKER_JOINED, said))
                _forget(connection, said)
            elif held == GONE:  # guard: a report that comes late does not bring it back
                return
            else:
                connection.execute(update(workers).where(mine).values(row))
            if said.state == GONE:
                append_to_outbox(connection, self._event(EventType.WORKER_LEFT, said))

        self._database.write(unit)

    def list(self) -> Sequence[WorkerRecord]:
        since = microseconds(self._clock.now() - _REMEMBERED)
        query = select(workers).where(workers.c.seen_at >= since).order_by(workers.c.started_at, workers.c.id)
        with self._database.read() as connection:
            found = [record_in(WorkerRecord, row) for row in connection.execute(query).mappings()]
        return found[::-1]

    def _event(self, kind: EventType, worker: WorkerRecord) -> DomainEvent:
        facts: dict[str, JsonValue] = {"name": worker.name, "host": worker.host, "pid": worker.pid}
        return DomainEvent(kind, worker.id, self._identifiers.new(), worker.seen_at, facts)


def _forget(connection: Connection, newcomer: WorkerRecord) -> None:
    """Those that nobody heard of for long; whoever comes sweeps, so there are never many."""
    long_ago = microseconds(newcomer.seen_at - _REMEMBERED)
    connection.execute(delete(workers).where(workers.c.seen_at < long_ago))


def _storable(worker: WorkerRecord) -> WorkerRecord:
    return replace(worker, name=kept_text(worker.name), host=kept_text(worker.host))
