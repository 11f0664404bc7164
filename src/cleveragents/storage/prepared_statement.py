"""Precompiled statements, for writes at every step of every graph.

For each call, SQLAlchemy looks up a statement in its cache, converts the parameters and describes the result;
this takes several times as long as a small statement itself. A prepared statement does this work once, and
calls SQLite directly. Errors are raised as SQLAlchemy's own errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ClauseElement, Connection, Dialect, make_url
from sqlalchemy.exc import DBAPIError

__all__ = ["PreparedStatement", "StatementRows", "prepared"]

T = TypeVar("T")

Parameters = Mapping[str, object]

_DRIVERS = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://"}


class StatementRows:
    """The rows that a statement returned, in `plain`, and the number of rows it changed.

    All rows are fetched, so the statement is finished.
    """

    __slots__ = ("_names", "plain", "rowcount")

    def __init__(self, names: Sequence[str], plain: Sequence[Sequence[Any]], rowcount: int) -> None:
        self._names = names
        self.plain = plain
        self.rowcount = rowcount

    def first(self) -> Mapping[str, Any] | None:
        """Return the first row by column names."""
        return dict(zip(self._names, self.plain[0], strict=True)) if self.plain else None

    def every(self) -> list[Mapping[str, Any]]:
        """Return all rows."""
        return [dict(zip(self._names, row, strict=True)) for row in self.plain]

    def value(self) -> Any:
        """Return the first column of the first row, which must exist."""
        return self.plain[0][0]


class PreparedStatement:
    """A statement for one kind of database (`Database.dialect`).

    Parameters and results are passed to and from the driver unchanged: no parameter may be a list, and every
    value that varies must be a named parameter.
    """

    def __init__(self, statement: ClauseElement, dialect: str) -> None:
        product: Dialect = make_url(_DRIVERS[dialect]).get_dialect()()
        compiled: Any = statement.compile(dialect=product)
        self._text: str = compiled.string
        # SQLite takes parameters by position, PostgreSQL by name.
        self._order: Sequence[str] | None = compiled.positiontup
        binds = compiled.binds.items()
        self._fixed = {name: bind.effective_value for name, bind in binds if not bind.required}

    def run(self, connection: Connection, parameters: Parameters) -> StatementRows:
        """Run the statement once."""
        given = self._given(parameters)
        if self._order is None:
            result = connection.exec_driver_sql(self._text, given)
            found = result.returns_rows
            return StatementRows(
                tuple(result.keys()) if found else (), result.all() if found else (), result.rowcount
            )

        def execute(driver: sqlite3.Connection) -> StatementRows:
            cursor = driver.execute(self._text, given)
            names = [column[0] for column in cursor.description or ()]
            try:
                return StatementRows(names, cursor.fetchall() if names else (), cursor.rowcount)
            except sqlite3.Error:
                cursor.close()  # an open cursor would show this snapshot to the next reader
                raise

        return self._asked(connection, execute)

    def run_each(self, connection: Connection, rows: Sequence[Parameters]) -> None:
        """Run the statement for each row; at least one row is required."""
        given = [self._given(row) for row in rows]
        if self._order is None:
            connection.exec_driver_sql(self._text, given)
        else:
            self._asked(connection, lambda driver: driver.executemany(self._text, given))

    def _given(self, parameters: Parameters) -> Any:
        if self._fixed:
            parameters = {**self._fixed, **parameters}
        return parameters if self._order is None else [parameters[name] for name in self._order]

    def _asked(self, connection: Connection, ask: Callable[[sqlite3.Connection], T]) -> T:
        driver: Any = connection.connection.driver_connection
        try:
            return ask(driver)
        except sqlite3.Error as error:
            # Callers that catch database errors expect SQLAlchemy's.
            raise DBAPIError.instance(self._text, None, error, sqlite3.Error, hide_parameters=True) from error


@cache
def prepared(statement: ClauseElement, dialect: str) -> PreparedStatement:
    """Return the statement, compiled at first use and cached for good. Only for module-level statements."""
    return PreparedStatement(statement, dialect)
