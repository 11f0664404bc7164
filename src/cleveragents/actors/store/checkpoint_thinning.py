"""What a checkpoint makes superfluous is deleted with the transaction that keeps it.

A conversation is one value, kept anew with every message: without this, a run would leave the square of what
was said in it. The parent stays, because whoever writes next after it has to find it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Delete, Table, bindparam, delete, or_

from cleveragents.actors.checkpoint_ports import StoredCheckpoint
from cleveragents.storage.actor_tables import (
    graph_checkpoints,
    graph_values,
    graph_writes,
)
from cleveragents.storage.prepared_statement import PreparedStatement

__all__ = ["CheckpointThinning"]

_FIRST, _LAST = "\x01", "\U0010ffff"


class CheckpointThinning:
    """The deletes for one kind of database (`Database.dialect`). It keeps no state."""

    def __init__(self, dialect: str) -> None:
        self._older = [
            PreparedStatement(_older(table), dialect) for table in (graph_checkpoints, graph_writes)
        ]
        values = graph_values.c
        of_thread = values.thread_id == bindparam("thread_id")
        self._below = PreparedStatement(delete(graph_values).where(of_thread, _below(graph_values)), dialect)
        self._outdated = PreparedStatement(
            delete(graph_values).where(
                of_thread,
                values.namespace == bindparam("namespace"),
                values.channel == bindparam("channel"),
                values.version < bindparam("version"),
            ),
            dialect,
        )

    def run(self, connection: Connection, checkpoint: StoredCheckpoint, of_parent: Mapping[str, str]) -> None:
        """Deletes what neither the checkpoint nor its parent, whose values are of those versions, is made of;
        and all that is in namespaces below. A value that is no longer part of any may stay until the channel
        has another."""
        namespace = checkpoint.namespace
        place = {
            "thread_id": checkpoint.thread_id,
            "namespace": namespace,
            "parent_id": checkpoint.parent_id,
            "first": f"{namespace}|" if namespace else _FIRST,
            "last": f"{namespace}|{_LAST}" if namespace else _LAST,
        }
        for statement in (*self._older, self._below):
            statement.run(connection, place)
        # Versions count up, so that older ones of a channel are smaller, as text, too.
        outdated = [
            {**place, "channel": channel, "version": min(version, of_parent.get(channel, version))}
            for channel, (version, (kind, _)) in checkpoint.values.items()
            if kind
        ]
        if outdated:
            self._outdated.run_each(connection, outdated)


def _older(table: Table) -> Delete:
    here = table.c.namespace == bindparam("namespace")
    older = here & (table.c.checkpoint_id < bindparam("parent_id"))
    return delete(table).where(table.c.thread_id == bindparam("thread_id"), or_(older, _below(table)))


def _below(table: Table) -> ColumnElement[bool]:
    namespace = table.c.namespace
    return (namespace >= bindparam("first")) & (namespace < bindparam("last"))
