"""PostgreSQL backend: each write is a READ COMMITTED transaction, repeated if the server requests it.

Row locks decide between writers, so a unit locks the rows it is going to change (`FOR UPDATE`).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import SystemRandom
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from cleveragents.core.errors import OutcomeUnknown, StoreBusy
from cleveragents.core.faults import FaultPoints
from cleveragents.storage.database_errors import (
    is_taken_back,
    is_transient,
    location_of,
    translated,
)
from cleveragents.storage.settings import DatabaseOptions
from cleveragents.storage.unit_of_work import Write, WriteOutcome, run_alone

__all__ = ["PostgresBackend"]

_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.2
_CONNECT_SECONDS = 10
_LOCK_SECONDS = 2.0
_IDLE_SECONDS = 20
_MIGRATION_LOCK = 0x436C6576  # "Clev": one number for every process of ours
_JITTER = SystemRandom()


class PostgresBackend:
    """`Backend` on a PostgreSQL server.

    Thread safety:
        Owner: the `Database` that opened it.
        Lock: none of its own; a connection of the pool belongs to one call at a time.
        Guarantee: every write is one transaction, committed when `commit` returns.
    Cancel safety: an interrupted transaction is rolled back when its connection returns to the pool.
    """

    def __init__(self, url: URL, settings: DatabaseOptions, faults: FaultPoints) -> None:
        self._url = url
        self._settings = settings
        self._faults = faults
        try:
            self._engine = _engine(url, settings)
        except (SQLAlchemyError, ModuleNotFoundError) as error:
            raise translated(error, url) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                # REPEATABLE READ is PostgreSQL's name for one snapshot for the whole transaction.
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                yield connection
        except SQLAlchemyError as error:
            raise translated(error, self._url) from error

    def commit(self, write: Write) -> WriteOutcome:
        return self._patiently(lambda: self._transaction(write))

    def migrate(self, migration: Callable[[Connection], None]) -> None:
        def apply(connection: Connection, items: Sequence[None]) -> Sequence[None]:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            migration(connection)
            return items

        self.commit(Write(apply, None, joins=False))

    def close(self) -> None:
        self._engine.dispose()

    def _transaction(self, write: Write) -> WriteOutcome:
        with self._engine.connect() as connection, connection.begin() as transaction:
            answer = run_alone(connection, write)
            _detect_lost_connection(connection)
            self._faults.reach("store.write.before_commit")
            self._commit_or_say(transaction.commit)
        self._faults.reach("store.write.after_commit")
        return answer

    def _commit_or_say(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except DBAPIError as error:
            # A transaction that the server had already ended, as while we were suspended, was not committed.
            unknown = error.connection_invalidated and not is_taken_back(error)
            if unknown:  # guard: running it again could write it twice
                raise OutcomeUnknown(
                    location_of(self._url), "the connection broke during a commit"
                ) from error
            raise

    def _patiently(self, work: Callable[[], WriteOutcome]) -> WriteOutcome:
        """Run `work`, and repeat it after a lock timeout, a deadlock or, once, a lost connection.

        Raises `StoreBusy`.
        """
        began = time.monotonic()
        pause = _FIRST_PAUSE_SECONDS
        reconnects = 1
        while True:
            try:
                return work()
            except SQLAlchemyError as error:
                waited = time.monotonic() - began
                lost = isinstance(error, DBAPIError) and error.connection_invalidated and reconnects > 0
                if not lost and not is_transient(error):
                    raise translated(error, self._url, waited_seconds=waited) from error
                if waited >= self._settings.patience_seconds:
                    raise StoreBusy(waited) from error
                reconnects -= lost
            time.sleep(pause * (0.5 + _JITTER.random()))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _detect_lost_connection(connection: Connection) -> None:
    """Raise before the commit if the server has closed the connection: the write can be repeated safely."""
    driver: Any = connection.connection.driver_connection
    incoming = select.poll()
    incoming.register(driver, select.POLLIN)
    if incoming.poll(0):  # guard: a COMMIT sent to a server that has gone may hide its last message
        connection.exec_driver_sql("SELECT 1")


def _engine(url: URL, settings: DatabaseOptions) -> Engine:
    # By default the server waits for a row lock forever. A patient caller returns its connection between two
    # tries: otherwise a few waiting callers would exhaust the pool, and leases are short.
    held_seconds = min(settings.patience_seconds, _LOCK_SECONDS)
    options = f"-c lock_timeout={max(1, int(held_seconds * 1000))}"
    # A client that was stopped or cut off in the middle of a transaction releases its locks.
    options = f"{options} -c idle_in_transaction_session_timeout={_IDLE_SECONDS * 1000}"
    asked = url.query.get("options", "")
    return create_engine(
        url.set(drivername="postgresql+psycopg"),
        poolclass=QueuePool,
        pool_size=settings.connections,
        max_overflow=0,
        pool_timeout=settings.patience_seconds,
        isolation_level="READ COMMITTED",
        connect_args={"connect_timeout": _CONNECT_SECONDS, "options": f"{asked} {options}"},
    )
