"""Graph checkpoints in a database. Each write is one transaction that also checks the writer's fence.

A deleted thread stays deleted: a late checkpoint is refused because its parent is gone. The first checkpoint
of a thread has no parent and starts the thread anew. The writes of a task may arrive before their checkpoint,
so they are always stored. Writes whose checkpoint does not exist are never read.

A checkpoint's transaction also deletes the rows that it makes obsolete. A conversation is one value that is
stored again with every message, so without these deletions the size of a run would grow quadratically. The
parent checkpoint stays, because the next writer needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    or_,
    select,
)

from cleveragents.actors.store.checkpoint_rows import (
    StoredCheckpoint,
    StoredWrite,
    checkpoint_row,
    filled,
    value_rows,
    versions_of,
    write_rows,
)
from cleveragents.core.errors import StaleFence, UnknownPlan
from cleveragents.core.identifiers import Fence, TurnFence
from cleveragents.jobs.store.rows import RUNS
from cleveragents.storage.actor_tables import (
    graph_checkpoints,
    graph_values,
    graph_writes,
)
from cleveragents.storage.columns import is_storable
from cleveragents.storage.conversation_tables import ensure_turn_held
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.prepared_statement import PreparedStatement

__all__ = ["CheckpointThinning", "SqlCheckpointStore"]


_PAGE = 16
_IN_NAMESPACE = (
    graph_checkpoints.c.thread_id == bindparam("thread_id"),
    graph_checkpoints.c.namespace == bindparam("namespace"),
)
# Locked until the transaction ends, so that the parent cannot be deleted meanwhile.
_STANDS = (
    select(graph_checkpoints.c.versions)
    .where(*_IN_NAMESPACE, graph_checkpoints.c.checkpoint_id == bindparam("checkpoint_id"))
    .with_for_update(read=True, key_share=True)
)
_THIS = select(graph_checkpoints).where(
    *_IN_NAMESPACE, graph_checkpoints.c.checkpoint_id == bindparam("checkpoint_id")
)
_LATEST = (
    select(graph_checkpoints)
    .where(*_IN_NAMESPACE)
    .order_by(graph_checkpoints.c.checkpoint_id.desc())
    .limit(1)
)

_FIRST, _LAST = "\x01", "\U0010ffff"


class SqlCheckpointStore:
    """Checkpoints by thread. Every method is one atomic step; when it has returned, its effect survives kill
    -9.

    A write with a fence raises `StaleFence` or `StaleTurn` unless the job or turn still runs under that
    token; this is checked in the same transaction. Stateless except for the database, so any thread may share
    it.

    In `put`, a value with an empty format (`("", b"")`) was already stored with an earlier checkpoint of the
    thread: only its version is recorded.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._runs = PreparedStatement(RUNS, database.dialect)
        self._stands = PreparedStatement(_STANDS, database.dialect)
        self._put = _inserting(graph_checkpoints, database.dialect, replace=True)
        self._put_values = _inserting(graph_values, database.dialect, replace=False)
        self._thinning = CheckpointThinning(database.dialect)
        self._put_writes = {
            replace: _inserting(graph_writes, database.dialect, replace=replace) for replace in (True, False)
        }

    def get(
        self, thread_id: str, namespace: str = "", checkpoint_id: str | None = None
    ) -> StoredCheckpoint | None:
        """Return a checkpoint with its values and writes; the latest if no id is given."""
        if not all(is_storable(text) for text in (thread_id, namespace, checkpoint_id or "")):
            return None
        wanted = {"thread_id": thread_id, "namespace": namespace, "checkpoint_id": checkpoint_id}
        if checkpoint_id is None:
            del wanted["checkpoint_id"]
        with self._database.read() as connection:
            row = connection.execute(_LATEST if checkpoint_id is None else _THIS, wanted).first()
            return None if row is None else filled(connection, [row], self._database.location)[0]

    def list(
        self, thread_id: str | None, *, namespace: str | None = None, before: str | None = None
    ) -> Iterator[StoredCheckpoint]:
        """Yield checkpoints, newest first.

        They are read in pages, so a slow or stopped reader holds no resources. Checkpoints written meanwhile
        are newer and not included.
        """
        if not all(is_storable(text or "") for text in (thread_id, namespace, before)):
            return
        query = _newest_first(thread_id, namespace)
        last: Row[Any] | None = None
        while True:
            page = query if last is None else query.where(_after(last))
            if before is not None:
                page = page.where(graph_checkpoints.c.checkpoint_id < before)
            with self._database.read() as connection:
                rows = connection.execute(page.limit(_PAGE)).all()
                found = filled(connection, rows, self._database.location)
            yield from found
            if len(rows) < _PAGE:
                return
            last = rows[-1]

    def put(self, checkpoint: StoredCheckpoint, *, fence: Fence | TurnFence | None = None) -> None:
        """Store a checkpoint and its new values; `writes` is ignored.

        A superseding checkpoint deletes everything before its parent in its namespace, and the namespaces
        below it (`namespace|…`), which belong to graphs that the previous step ran.
        """
        putting = self._putting(checkpoint)

        def unit(connection: Connection) -> None:
            self._ensure_owned(connection, fence)
            putting(connection)

        self._database.write(unit)

    def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[StoredWrite],
        *,
        replace: bool,
        fence: Fence | TurnFence | None = None,
        checkpoint: StoredCheckpoint | None = None,
    ) -> None:
        """Store writes. An existing write (same task and index) is replaced only if `replace` is set.

        If the checkpoint of these writes is not stored yet, pass it as `checkpoint`: it and the writes are
        stored together or not at all.
        """
        key = {"thread_id": thread_id, "namespace": namespace, "checkpoint_id": checkpoint_id}
        rows = write_rows(key, writes)
        statement = self._put_writes[replace]
        putting = None if checkpoint is None else self._putting(checkpoint)

        def unit(connection: Connection) -> None:
            self._ensure_owned(connection, fence)
            if putting is not None:
                putting(connection)
            if rows:
                statement.run_each(connection, rows)

        self._database.write(unit)

    def threads(self) -> Sequence[str]:
        """Return the ids of all stored threads."""
        with self._database.read() as connection:
            return connection.scalars(select(graph_checkpoints.c.thread_id).distinct()).all()

    def delete_threads(self, beginning: str) -> None:
        """Delete a thread and the threads below it (`beginning/…`)."""
        if not is_storable(beginning):
            return

        def unit(connection: Connection) -> None:
            doomed = delete(graph_checkpoints).where(_of_threads(graph_checkpoints, beginning))
            # A checkpoint may be added while its parent's lock is awaited; the next iteration finds it.
            while connection.execute(doomed).rowcount:
                pass
            for table in (graph_values, graph_writes):
                connection.execute(delete(table).where(_of_threads(table, beginning)))

        self._database.write(unit)

    def _putting(self, checkpoint: StoredCheckpoint) -> Callable[[Connection], None]:
        """Return a function that stores the checkpoint in a given transaction.

        Raises `InvalidPayload` immediately.
        """
        row = checkpoint_row(checkpoint)
        values = value_rows(checkpoint)

        def put(connection: Connection) -> None:
            before = self._parent(connection, checkpoint)
            self._put.run(connection, row)
            if values:
                self._put_values.run_each(connection, values)
            if checkpoint.supersedes and before is not None:
                self._thinning.run(connection, checkpoint, versions_of(before["versions"]))

        return put

    def _ensure_owned(self, connection: Connection, fence: Fence | TurnFence | None) -> None:
        if fence is None:
            return
        if isinstance(fence, TurnFence):
            ensure_turn_held(connection, fence)
            return
        running = self._runs.run(connection, {"job_id": fence.job_id, "token": fence.token}).first()
        if running is None:  # guard: a worker that lost the job writes nothing more
            raise StaleFence(fence.job_id, fence.token)

    def _parent(self, connection: Connection, checkpoint: StoredCheckpoint) -> Mapping[str, Any] | None:
        if checkpoint.parent_id is None:
            return None
        place = {
            "thread_id": checkpoint.thread_id,
            "namespace": checkpoint.namespace,
            "checkpoint_id": checkpoint.parent_id,
        }
        parent = self._stands.run(connection, place).first()
        if parent is None:  # guard: a late write must not revive a deleted thread
            raise UnknownPlan(checkpoint.thread_id.partition("/")[0])
        return parent


def _inserting(table: Table, dialect: str, *, replace: bool) -> PreparedStatement:
    """Return an insert that keeps an existing row with the same key, or replaces it if `replace` is set."""
    insert = insert_into(table, dialect)
    if not replace:
        return PreparedStatement(insert.on_conflict_do_nothing(), dialect)
    rest = [column.name for column in table.columns if not column.primary_key]
    replacing = insert.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: insert.excluded[name] for name in rest},
    )
    return PreparedStatement(replacing, dialect)


def _newest_first(thread_id: str | None, namespace: str | None) -> Select[Any]:
    table = graph_checkpoints.c
    query = select(graph_checkpoints).order_by(
        table.checkpoint_id.desc(), table.thread_id.desc(), table.namespace.desc()
    )
    if thread_id is not None:
        query = query.where(table.thread_id == thread_id)
    if namespace is not None:
        query = query.where(table.namespace == namespace)
    return query


def _after(last: Row[Any]) -> ColumnElement[bool]:
    """Return the condition for rows after this one, in the order of `_newest_first`."""
    table = graph_checkpoints.c
    same = table.checkpoint_id == last.checkpoint_id
    return or_(
        table.checkpoint_id < last.checkpoint_id,
        same & (table.thread_id < last.thread_id),
        same & (table.thread_id == last.thread_id) & (table.namespace < last.namespace),
    )


def _of_threads(table: Table, beginning: str) -> ColumnElement[bool]:
    # "0" is the character after "/": ids compare by code point, and an index finds a range.
    thread_id = table.c.thread_id
    below = (thread_id >= f"{beginning}/") & (thread_id < f"{beginning}0")
    return or_(thread_id == beginning, below)


class CheckpointThinning:
    """The statements that delete obsolete rows, for one database dialect. Stateless."""

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
        """Delete everything in the namespace that neither the checkpoint nor its parent (with versions
        `of_parent`) uses, and all namespaces below. An unused value may stay until its channel gets a new
        value.
        """
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
        # Versions count up, and older ones are also smaller as text.
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
