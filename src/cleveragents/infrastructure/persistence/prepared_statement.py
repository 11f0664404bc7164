"""Statements that are compiled once, for writes that are made at every step of every graph.

SQLAlchemy finds a statement in its cache at each call, makes the parameters fit its types, and describes what
comes back; that takes several times as long as a small statement itself. What is known beforehand is done
beforehand here, and SQLite is asked without a detour. Errors are SQLAlchemy's own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ClauseElement, Connection, Dialect, make_url
from sqlalchemy.exc import DBAPIError

__all__ = ["PreparedStatement", "Rows", "prepared"]

T = TypeVar("T")

Parameters = Mapping[str, object]

_DRIVERS = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://"}


class Rows:
    """What a statement found, and how many rows it changed. All of it is read, so the statement is over."""

    __slots__ = ("_names", "_rows", "rowcount")

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]], rowcount: int) -> None:
        self._names = names
        self._rows = rows
        self.rowcount = rowcount

    def first(self) -> Mapping[str, Any] | None:
        """The first row, by the names of its columns."""
        return dict(zip(self._names, self._rows[0], strict=True)) if self._rows else None

    def every(self) -> list[Mapping[str, Any]]:
        """All rows."""
        return [dict(zip(self._names, row, strict=True)) for row in self._rows]

    def value(self) -> Any:
        """The first column of the first row; there is one."""
        return self._rows[0][0]


class PreparedStatement:
    """A statement for one kind of database (`Database.dialect`).

    Parameters go to the driver as they are, so all of them are named ones and none is a list; and so does
    what it finds come back.
    """

    def __init__(self, statement: ClauseElement, dialect: str) -> None:
        product: Dialect = make_url(_DRIVERS[dialect]).get_dialect()()
        compiled: Any = statement.compile(dialect=product)
        self._text: str = compiled.string
        # SQLite takes them by position, PostgreSQL by name.
        self._order: Sequence[str] | None = compiled.positiontup

    def run(self, connection: Connection, parameters: Parameters) -> Rows:
        """Runs it once."""
        if self._order is None:
            result = connection.exec_driver_sql(self._text, dict(parameters))
            found = result.returns_rows
            return Rows(tuple(result.keys()) if found else (), result.all() if found else (), result.rowcount)
        given = [parameters[name] for name in self._order]

        def execute(driver: sqlite3.Connection) -> Rows:
            cursor = driver.execute(self._text, given)
            names = [column[0] for column in cursor.description or ()]
            return Rows(names, cursor.fetchall() if names else (), cursor.rowcount)

        return self._asked(connection, execute)

    def run_each(self, connection: Connection, rows: Sequence[Parameters]) -> None:
        """Runs it for every row; one at least."""
        order = self._order
        if order is None:
            connection.exec_driver_sql(self._text, [dict(row) for row in rows])
            return
        given = [[row[name] for name in order] for row in rows]
        self._asked(connection, lambda driver: driver.executemany(self._text, given))

    def _asked(self, connection: Connection, ask: Callable[[sqlite3.Connection], T]) -> T:
        driver: Any = connection.connection.driver_connection
        try:
            return ask(driver)
        except sqlite3.Error as error:
            # Whoever catches a database's error knows SQLAlchemy's.
            raise DBAPIError.instance(self._text, None, error, sqlite3.Error, hide_parameters=True) from error


@cache
def prepared(statement: ClauseElement, dialect: str) -> PreparedStatement:
    """The statement, compiled when it is first asked for. For statements that modules hold: it is kept."""
    return PreparedStatement(statement, dialect)
