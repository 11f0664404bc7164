"""SQLite backend: one writer per process behind a group commit, readers on snapshots.

pysqlite starts transactions implicitly; with `isolation_level=None` it never does, and every BEGIN is
explicit. SQLite's busy handler sleeps up to 100 ms and starves some of many processes, so the writer itself
polls for the lock at short random intervals, up to a deadline.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from cleveragents.core.errors import DatabaseUnusable, StoreBusy
from cleveragents.storage.database_errors import is_transient, translated
from cleveragents.storage.group_commit import GroupCommit
from cleveragents.storage.sqlite_lock import write_lock_holder
from cleveragents.storage.unit_of_work import (
    TransactionLost,
    Write,
    WriteOutcome,
    run_alone,
    run_batch,
)

if TYPE_CHECKING:
    from cleveragents.core.faults import FaultPoints
    from cleveragents.storage.settings import DatabaseOptions

__all__ = ["SqliteBackend"]

T = TypeVar("T")

_READ_BUSY_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.008
_SYNCHRONOUS = {"normal": "NORMAL", "full": "FULL"}
_JITTER = SystemRandom()


class SqliteBackend:
    """`Backend` on one SQLite file.

    Thread safety:
        Owner: the `Database` that opened it.
        Lock: none of its own; the writing connection belongs to the leader of `GroupCommit`, reading
            connections to the caller that took one from the pool.
        Guarantee: one writing transaction at a time, begun IMMEDIATE; readers never write.
    Cancel safety: an interrupted transaction is rolled back, at the latest before the next one begins.
    """

    def __init__(self, url: URL, settings: DatabaseOptions, faults: FaultPoints) -> None:
        self._url = url
        self._settings = settings
        self._faults = faults
        _create_file(str(url.database))
        self._engine = _engine(url, settings)
        self._group: GroupCommit[Write, WriteOutcome] = GroupCommit(
            self._commit_batch,
            location=str(url.database),
            patience_seconds=settings.patience_seconds,
            busy=self._busy,
        )
        self._driver: sqlite3.Connection | None = None
        try:
            self._writer = self._open_writer()
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def read(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                _driver(connection).execute("BEGIN")
                yield connection  # the pool rolls it back
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise translated(error, self._url, waited_seconds=_READ_BUSY_SECONDS) from error

    def commit(self, write: Write) -> WriteOutcome:
        answer = self._group.run(write)
        if isinstance(answer.error, SQLAlchemyError):
            raise translated(answer.error, self._url) from answer.error
        if answer.error is not None:
            raise answer.error
        return answer

    def migrate(self, migration: Callable[[Connection], None]) -> None:
        def apply(connection: Connection, items: Sequence[None]) -> Sequence[None]:
            migration(connection)
            return items

        self.commit(Write(apply, None, joins=False))

    def close(self) -> None:
        try:
            self._group.close()
        finally:
            self._writer.close()
            self._engine.dispose()

    def _open_writer(self) -> Connection:
        try:
            connection = self._engine.connect()
            driver = _driver(connection)
            self._patiently(lambda: _use_wal(driver))
            self._allow_writes(driver)
            return connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise translated(error, self._url) from error

    def _allow_writes(self, driver: sqlite3.Connection) -> None:
        driver.execute("PRAGMA query_only = OFF")
        driver.execute("PRAGMA busy_timeout = 0")
        self._driver = driver

    def _commit_batch(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        try:
            return self._patiently(lambda: self._transaction(writes))
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise translated(error, self._url) from error

    def _transaction(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        connection = self._writer
        driver = _driver(connection)
        if driver is not self._driver:  # guard: SQLAlchemy reconnects if an interrupt strikes in a statement
            self._allow_writes(driver)
        if driver.in_transaction:  # guard: an interrupt may have struck between BEGIN and here
            driver.rollback()
        driver.execute("BEGIN IMMEDIATE")
        with connection.begin():
            answers = self._run(connection, driver, writes)
            self._faults.reach("store.write.before_commit")
        self._faults.reach("store.write.after_commit")
        return answers

    def _run(
        self, connection: Connection, driver: sqlite3.Connection, writes: Sequence[Write]
    ) -> list[WriteOutcome]:
        if len(writes) == 1:
            return [run_alone(connection, writes[0])]

        def savepoint(work: Callable[[], T]) -> T:
            return _in_savepoint(driver, work)

        try:
            return run_batch(connection, writes, savepoint)
        except TransactionLost as lost:
            raise lost.cause from lost

    def _patiently(self, work: Callable[[], T]) -> T:
        """Repeat the call while SQLite is busy, up to the deadline. Raises `StoreBusy`."""
        began = time.monotonic()
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return work()
            except (SQLAlchemyError, sqlite3.Error) as error:
                waited = time.monotonic() - began
                if not is_transient(error):
                    raise
                if waited >= self._settings.patience_seconds:
                    raise self._busy(waited) from error
            time.sleep(pause * (0.5 + _JITTER.random()))
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)

    def _busy(self, waited_seconds: float) -> StoreBusy:
        holder = write_lock_holder(str(self._url.database))
        told = () if holder is None else (str(holder), holder.remedy)
        return StoreBusy(waited_seconds, "; ".join(filter(None, told)))


def _engine(url: URL, settings: DatabaseOptions) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=settings.connections + 1,  # one is for the writer
        max_overflow=0,
        pool_timeout=settings.patience_seconds,
        connect_args={"isolation_level": None, "check_same_thread": False, "timeout": _READ_BUSY_SECONDS},
    )
    synchronous = _SYNCHRONOUS[settings.durability]

    def prepare(connection: sqlite3.Connection, record: object) -> None:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA query_only = ON")

    event.listen(engine, "connect", prepare)
    return engine


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _in_savepoint(driver: sqlite3.Connection, work: Callable[[], T]) -> T:
    driver.execute("SAVEPOINT unit")
    try:
        result = work()
    except Exception as error:
        if not driver.in_transaction or is_transient(error):
            raise TransactionLost(error) from error
        driver.execute("ROLLBACK TO unit")
        driver.execute("RELEASE unit")
        raise
    driver.execute("RELEASE unit")
    return result


def _use_wal(driver: sqlite3.Connection) -> None:
    # The mode persists in the file; changing it needs exclusive access, so check first.
    if driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        driver.execute("PRAGMA journal_mode = WAL")


def _create_file(path: str) -> None:
    """Create an empty private file unless one exists: SQLite would create it readable by all users."""
    try:
        if Path(path).is_dir():
            raise DatabaseUnusable(path, "this is a directory; configure the path of a file in it")
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise DatabaseUnusable(path, f"{error.strerror}; configure a file in a writable directory") from error
