"""An in-memory database with serialized transactions, which explorers can step through.

It guarantees exactly what SQLite and PostgreSQL do: a write is one atomic transaction, a read sees one
snapshot. Between two transactions of a store every interleaving is possible. All databases share one
connection, which is reset for each: a schedule ends before the next one begins, and statements are compiled
once for all, which under an explorer costs more than running them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from sqlalchemy import Connection, Engine, StaticPool, create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from cleveragents.storage.database import Database
from cleveragents.storage.database_errors import translated
from cleveragents.storage.tables import METADATA
from cleveragents.storage.unit_of_work import Write, WriteOutcome, run_alone

__all__ = ["content_of", "in_memory_database"]

_URL = make_url("sqlite:///nowhere")

# Created here, not at first use: its locks would belong to an explorer, and be useless outside of it.
# Compiled
# statements are never evicted: compiling one again would become part of a schedule.
_ENGINE = create_engine(
    "sqlite://",
    creator=lambda: sqlite3.connect(":memory:", check_same_thread=False),
    poolclass=StaticPool,
    query_cache_size=100_000,
)


class OneConnection:
    """`Backend` on the single connection.

    Thread safety:
        Owner: the scenario that made it, until the next one is made.
        Lock: `_turn_lock` is held for a whole transaction, also of a read.
        Guarantee: transactions happen one after the other.
    Cancel safety: a transaction that ends with an error is undone.
    """

    def __init__(self, content: bytes) -> None:
        self._turn_lock = threading.Lock()
        with _engine().connect() as connection:
            _driver(connection).deserialize(content)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._turn_lock, _engine().connect() as connection:
            yield connection

    def commit(self, write: Write) -> WriteOutcome:
        try:
            with self._turn_lock, _engine().begin() as connection:
                return run_alone(connection, write)
        except SQLAlchemyError as error:
            raise translated(error, _URL) from error

    def migrate(self, migration: Callable[[Connection], None]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def in_memory_database(content: bytes | None = None) -> Database:
    """Return a database with this content, or an empty one with all tables."""
    return Database(OneConnection(content or _empty()), _URL)


def content_of(database: Database) -> bytes:
    """Return its content, as the start of another one."""
    with database.read() as connection:
        return _driver(connection).serialize()


def _engine() -> Engine:
    return _ENGINE


@cache
def _empty() -> bytes:
    with _engine().begin() as connection:
        METADATA.create_all(connection)
    with _engine().connect() as connection:
        return _driver(connection).serialize()


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
