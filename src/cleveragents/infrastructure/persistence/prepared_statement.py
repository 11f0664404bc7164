"""Statements that are compiled once, for writes that are made at every step of every graph.

SQLAlchemy finds a statement in its cache at each call, then makes the parameters fit its types; that takes as
long as a small write itself. What is known beforehand is done beforehand here. Errors are SQLAlchemy's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ClauseElement, Connection, CursorResult, Dialect, make_url

__all__ = ["PreparedStatement", "prepared"]

Parameters = Mapping[str, object]

_DRIVERS = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://"}


class PreparedStatement:
    """A statement for one kind of database (`Database.dialect`).

    Parameters go to the driver as they are, so all of them are named ones and none is a list.
    """

    def __init__(self, statement: ClauseElement, dialect: str) -> None:
        product: Dialect = make_url(_DRIVERS[dialect]).get_dialect()()
        compiled: Any = statement.compile(dialect=product)
        self._text: str = compiled.string
        self._order: Sequence[str] | None = compiled.positiontup

    def run(self, connection: Connection, parameters: Parameters) -> CursorResult[Any]:
        """Runs it once."""
        return connection.exec_driver_sql(self._text, self._given(parameters))

    def run_each(self, connection: Connection, rows: Sequence[Parameters]) -> None:
        """Runs it for every row; one at least."""
        connection.exec_driver_sql(self._text, [self._given(row) for row in rows])

    def _given(self, parameters: Parameters) -> Any:
        # SQLite takes them by position, PostgreSQL by name.
        return parameters if self._order is None else tuple([parameters[name] for name in self._order])


@cache
def prepared(statement: ClauseElement, dialect: str) -> PreparedStatement:
    """The statement, compiled when it is first asked for. For statements that modules hold: it is kept."""
    return PreparedStatement(statement, dialect)
