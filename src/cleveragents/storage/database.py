"""The database: consistent reads, and writes that are durable when they return.

The backend handles everything that depends on the database product, the sharing of commits between writers,
and retries.

Opening a database migrates it to the schema of this version, once, regardless of concurrent processes.
Importing Alembic takes a third of a second, so it is used only if there is something to migrate: plain SQL
reads the stored revision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from sqlalchemy import URL, Connection, inspect, make_url, text
from sqlalchemy.exc import ArgumentError

from cleveragents.core.errors import Closed, DatabaseUnusable
from cleveragents.core.event import DomainEvent
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import acting_user
from cleveragents.storage.database_errors import location_of
from cleveragents.storage.settings import DatabaseOptions
from cleveragents.storage.unit_of_work import Backend, Write

__all__ = [
    "HEAD",
    "REVISIONS",
    "CommitListener",
    "Database",
    "ensure_schema",
    "forget_reads",
    "open_database",
    "shared_reads",
]


T = TypeVar("T")
Item = TypeVar("Item")
CommitListener = Callable[[Sequence[DomainEvent]], object]

REVISIONS = tuple(f"{number:04}" for number in range(1, 20))
"""All revisions that this version knows, oldest first: the names of the files in `migrations/versions`."""
HEAD = REVISIONS[-1]
_MIGRATIONS = Path(__file__).parent / "migrations"
_SHARED: ContextVar[dict[tuple[Database, Hashable], Any] | None] = ContextVar("shared_reads", default=None)


@contextmanager
def shared_reads() -> Iterator[None]:
    """Let equal calls of `Database.read_shared` in this block return the result of the first one.

    For code that only shows something: a view of a plan uses the same rows in many places. Different reads
    are still separate snapshots. A write in the block is seen by the reads after it. Other threads are not
    affected. Code that changes files reads directly, or calls `forget_reads` first.
    """
    if _SHARED.get() is not None:  # one memory for nested blocks: a write in the inner one clears it
        yield
        return
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def forget_reads() -> None:
    """Read everything again from here on, inside a block of `shared_reads`."""
    known = _SHARED.get()
    if known is not None:
        known.clear()


class Database:
    """Reads and writes from any thread. Use it as a context manager, or call `close`.

    Thread safety:
        Owner: the code that opened it closes it; any thread may read and write.
        Lock: `_listeners_lock` guards the tuple of listeners, for arithmetic only; none is held while a
            unit or a listener runs.
        Guarantee: a write that returned is committed; one that raised wrote nothing, unless it raised
            `OutcomeUnknown`; a listener gets an event after its commit, or never.
    Cancel safety: an interrupted call leaves no transaction open; the caller must look up whether an
        interrupted write was committed.
    """

    def __init__(self, backend: Backend, url: URL) -> None:
        self._backend = backend
        self._url = url
        self._listeners_lock = threading.Lock()
        self._listeners: tuple[CommitListener, ...] = ()
        self._closed = False

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._url.get_backend_name()

    @property
    def location(self) -> str:
        """The name of this database for messages; never contains a password."""
        return location_of(self._url)

    def read(self) -> AbstractContextManager[Connection]:
        """Open a read-only transaction on one consistent snapshot. Raises `Closed`."""
        self._ensure_open()
        return self._backend.read()

    def read_shared(self, key: Hashable, load: Callable[[Connection], T]) -> T:
        """Return the result of `load` on a snapshot; inside `shared_reads`, that of the first call with an
        equal key. Callers must not change the result.
        """
        known = _SHARED.get()
        if known is not None and (self, key) in known:
            found: T = known[self, key]
            return found
        with self.read() as connection:
            found = load(connection)
        if known is not None:
            known[self, key] = found
        return found

    def write(self, unit: Callable[[Connection], T]) -> T:
        """Run `unit` in a write transaction and return its value after the commit.

        A unit may run again after a conflict, or when another unit in the same commit fails, so it must not
        change anything except through the connection. An exception in the unit undoes its writes and is
        raised to the caller. Events that the unit appends to the outbox are attributed to the acting user of
        the caller. Raises `StoreBusy`, `StoreFull`, `DatabaseUnreachable`, or `OutcomeUnknown`.
        """
        value: T = self._commit(Write(_call, unit, joins=False, by=acting_user()))
        return value

    def write_joined(self, apply: Callable[[Connection, Sequence[Item]], Sequence[T]], item: Item) -> T:
        """Like `write`, for many small writes of one kind, which may share one call of `apply`.

        The items of concurrent callers with an equal `apply` and the same acting user may be passed to
        `apply` in one call, which returns one value for each item. If that call raises, `apply` is called
        again for each item alone, so an error reaches only the caller of its item.
        """
        value: T = self._commit(Write(apply, item, joins=True, by=acting_user()))
        return value

    def add_commit_listener(self, listener: CommitListener) -> Callable[[], None]:
        """Register a listener for the events of writes; return a function that removes it.

        The listener runs after the commit, in the thread of the write, before the write returns, without any
        lock held.
        """
        with self._listeners_lock:
            self._listeners = (*self._listeners, listener)

        def remove() -> None:
            with self._listeners_lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return remove

    def migrate(self, migration: Callable[[Connection], None]) -> None:
        """Run a migration in one transaction, exclusively among all processes. For `schema`."""
        self._backend.migrate(migration)

    def close(self) -> None:
        """Refuse new writes, wait for running writes, and release all connections.

        Closing twice is harmless.
        """
        with self._listeners_lock:
            if self._closed:  # guard: the connections are released once
                return
            self._closed = True
        self._backend.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _commit(self, write: Write) -> Any:
        self._ensure_open()
        try:
            answer = self._backend.commit(write)
        finally:
            forget_reads()  # guard: the caller sees its own write
        if answer.events:
            self._tell(answer.events)
        return answer.value

    def _tell(self, events: Sequence[DomainEvent]) -> None:
        for listener in self._listeners:
            try:
                listener(events)
            except Exception:
                # The write is committed; an error here would tell its caller otherwise.
                import structlog

                log = structlog.get_logger()
                log.exception("store.commit_listener_failed")

    def _ensure_open(self) -> None:
        if self._closed:  # guard: a closed database opens no new connection
            raise Closed("the database")


def open_database(
    url: str,
    *,
    durability: Literal["normal", "full"] = "normal",
    patience_seconds: float = 60.0,
    connections: int = 8,
    faults: FaultPoints | None = None,
) -> Database:
    """Open the database at `url` (`sqlite:///path` or `postgresql://…`); create and migrate it if needed.

    The parameters are those of `DatabaseOptions`. Any number of processes may open a new database at the
    same time. Raises `DatabaseUnusable` with the problem and a remedy, or `DatabaseUnreachable` if it may
    work later.
    """

    parsed = _parse(url)
    settings = DatabaseOptions(durability, patience_seconds, connections)
    backend = _backend(parsed, settings, faults or NoFaults())
    database = Database(backend, parsed)
    try:
        ensure_schema(database)
    except BaseException:
        database.close()
        raise
    return database


def _call(connection: Connection, units: Sequence[Callable[[Connection], T]]) -> Sequence[T]:
    return [unit(connection) for unit in units]


def _parse(url: str) -> URL:
    authority = url.partition("://")[2].partition("/")[0]
    if authority.count("@") > 1:
        # Parsed as it is, part of the password would be taken for the host, and displayed.
        raise DatabaseUnusable("the configured URL", "the user or password contains an @; write it as %40")
    try:
        return make_url(url)
    except ArgumentError as error:
        raise DatabaseUnusable(
            "the configured URL", "this is not a URL; try sqlite:///path/to/file.db"
        ) from error


def _backend(url: URL, settings: DatabaseOptions, faults: FaultPoints) -> Backend:
    name = url.get_backend_name()
    if name == "sqlite":
        from cleveragents.storage.sqlite_backend import SqliteBackend

        if not url.database or url.database == ":memory:":
            raise DatabaseUnusable(
                "an in-memory SQLite database",
                "other processes cannot see an in-memory database; configure a file",
            )
        return SqliteBackend(url, settings, faults)
    if name in ("postgresql", "postgres"):
        from cleveragents.storage.postgres_backend import PostgresBackend

        return PostgresBackend(url, settings, faults)
    raise DatabaseUnusable(location_of(url), f"{name} is not supported; use sqlite or postgresql")


def ensure_schema(database: Database) -> None:
    """Migrate the schema to this version. Raises `DatabaseUnusable` if it is newer, or not ours."""
    with database.read() as connection:
        current = _revision(connection, database)
    if current != HEAD:
        database.migrate(lambda connection: _upgrade(connection, database))


def _upgrade(connection: Connection, database: Database) -> None:
    # Read again inside the transaction: another process may have been faster.
    if _revision(connection, database) == HEAD:
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def _revision(connection: Connection, database: Database) -> str | None:
    tables = inspect(connection).get_table_names()
    if "alembic_version" not in tables:
        if tables and database.dialect == "sqlite":
            raise DatabaseUnusable(
                database.location, "the file belongs to another program; configure another file"
            )
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is not None and revision not in REVISIONS:
        raise DatabaseUnusable(
            database.location,
            f"the schema {revision!r} is newer than {HEAD!r} of this version; upgrade cleveragents",
        )
    return revision
