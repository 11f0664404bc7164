"""The user's actions on a database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Row, bindparam, delete, select

from cleveragents.core.clock import Clock, SystemClock
from cleveragents.core.errors import ActionExists
from cleveragents.plans.ports.plans import StoredAction
from cleveragents.storage.columns import ensure_storable, is_storable, microseconds, moment
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.tables import actions

__all__ = ["SqlActionStore"]

_BY_NAME = select(actions).where(actions.c.name == bindparam("wanted"))
_ALL = select(actions).order_by(actions.c.name)
_REMOVE = delete(actions).where(actions.c.name == bindparam("wanted")).returning(actions.c.name)
_CHANGED = ("document", "created_at")


class SqlActionStore:
    """The user's own actions, by name. Every method is one atomic step, from any thread and process.
    Stateless but for the database, so any thread may share it."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def put(self, name: str, document: str, *, replace: bool = False) -> None:
        """Keeps it. `ActionExists` unless `replace`."""
        ensure_storable(f"action {name!r}", {"name": name, "document": document})
        row = {"name": name, "document": document, "created_at": microseconds(self._clock.now())}
        insert = insert_into(actions, self._database.dialect)
        changed = {column: insert.excluded[column] for column in _CHANGED}
        quietly = (
            insert.on_conflict_do_update(index_elements=["name"], set_=changed)
            if replace
            else insert.on_conflict_do_nothing()
        )
        keep = quietly.returning(actions.c.name)

        def unit(connection: Connection) -> bool:
            return connection.execute(keep, row).first() is not None

        if not self._database.write(unit):  # guard: of two that come at once, one is told
            raise ActionExists(name)

    def get(self, name: str) -> StoredAction | None:
        if not is_storable(name):
            return None
        with self._database.read() as connection:
            row = connection.execute(_BY_NAME, {"wanted": name}).first()
        return None if row is None else _stored(row)

    def list(self) -> Sequence[StoredAction]:
        """All of them, by name."""
        with self._database.read() as connection:
            rows = connection.execute(_ALL).all()
        return [_stored(row) for row in rows]

    def delete(self, name: str) -> bool:
        """Whether there was one."""
        if not is_storable(name):
            return False

        def unit(connection: Connection) -> bool:
            return connection.execute(_REMOVE, {"wanted": name}).first() is not None

        return self._database.write(unit)


def _stored(row: Row[tuple[str, str, int]]) -> StoredAction:
    return StoredAction(row.name, row.document, moment(row.created_at))
