"""Checkpoints copied and thinned out on a database, while others may be writing them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, literal, select

from cleveragents.application.ports.checkpoint_upkeep import CheckpointHead
from cleveragents.infrastructure.persistence.actor_tables import (
    graph_checkpoints,
    graph_values,
    graph_writes,
)
from cleveragents.infrastructure.persistence.change_rows import ensure_storable, is_storable
from cleveragents.infrastructure.persistence.checkpoint_rows import versions_of
from cleveragents.infrastructure.persistence.database import Database

__all__ = ["SqlCheckpointUpkeep"]

_CHUNK = 500
"""A database takes so many parameters and no more."""


class SqlCheckpointUpkeep:
    """`CheckpointUpkeep` on a `Database`. Stateless but for the database, so any thread may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def copy(self, source: str, target: str) -> None:
        ensure_storable("a copy of a thread", {"source": source, "target": target})

        def unit(connection: Connection) -> None:
            for table in (graph_values, graph_writes, graph_checkpoints):
                _copy_rows(connection, table, source, target)

        self._database.write(unit)

    def forget(
        self,
        unwanted: Callable[[Sequence[CheckpointHead]], Collection[CheckpointHead]],
        thread_ids: Sequence[str] | None = None,
    ) -> None:
        def unit(connection: Connection) -> None:
            places: dict[tuple[str, str], list[str]] = {}
            for head in unwanted(_heads(connection, thread_ids)):
                places.setdefault((head.thread_id, head.namespace), []).append(head.checkpoint_id)
            for (thread_id, namespace), ids in places.items():
                for table in (graph_checkpoints, graph_writes):
                    here = _at(table, thread_id, namespace)
                    for some in _chunks(ids):
                        connection.execute(delete(table).where(*here, table.c.checkpoint_id.in_(some)))
                _forget_values(connection, thread_id, namespace)

        self._database.write(unit)


def _copy_rows(connection: Connection, table: Table, source: str, target: str) -> None:
    there = table.alias()
    same = [there.c[key.name] == table.c[key.name] for key in table.primary_key if key.name != "thread_id"]
    has_it = select(literal(1)).where(there.c.thread_id == target, *same).exists()
    names = [column.name for column in table.columns]
    rows = [literal(target) if name == "thread_id" else table.c[name] for name in names]
    copied = select(*rows).where(table.c.thread_id == source, ~has_it)
    connection.execute(insert(table).from_select(names, copied))


def _heads(connection: Connection, thread_ids: Sequence[str] | None) -> list[CheckpointHead]:
    columns = graph_checkpoints.c
    query = select(columns.thread_id, columns.namespace, columns.checkpoint_id, columns.metadata)
    if thread_ids is None:
        return [CheckpointHead(*row) for row in connection.execute(query)]
    return [
        CheckpointHead(*row)
        for some in _chunks([name for name in thread_ids if is_storable(name)])
        for row in connection.execute(query.where(columns.thread_id.in_(some)))
    ]


def _forget_values(connection: Connection, thread_id: str, namespace: str) -> None:
    # First the values, then who needs them: a checkpoint that is written meanwhile comes with its own.
    columns = graph_values.c
    here = _at(graph_values, thread_id, namespace)
    kept = connection.execute(select(columns.channel, columns.version).where(*here)).all()
    rows = connection.execute(
        select(graph_checkpoints.c.versions).where(*_at(graph_checkpoints, thread_id, namespace))
    )
    needed = {pair for row in rows for pair in versions_of(row).items()}
    for channel, version in kept:
        if (channel, version) not in needed:  # guard: a value that another checkpoint is made of stays
            connection.execute(
                delete(graph_values).where(*here, columns.channel == channel, columns.version == version)
            )


def _at(table: Table, thread_id: str, namespace: str) -> tuple[ColumnElement[bool], ...]:
    return (table.c.thread_id == thread_id, table.c.namespace == namespace)


def _chunks(names: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(names), _CHUNK):
        yield names[start : start + _CHUNK]
