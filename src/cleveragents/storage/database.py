"""The one door to the database: consistent reads, and writes that are kept when they return.

Which product is behind it, how writers share a commit and what is tried again is the backend's affair.

Brings a database to the schema of this version, once, however many processes open it at once.

Alembic takes a third of a second to import, so it is asked only when there is something to migrate: the
stored revision is looked up with plain SQL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from sqlalchemy import URL, Connection, inspect, make_url, text
from sqlalchemy.exc import ArgumentError

from cleveragents.core.errors import Closed, DatabaseUnusable
from cleveragents.core.event import DomainEvent
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import acting
from cleveragents.storage.database_errors import location_of
from cleveragents.storage.settings import DatabaseOptions
from cleveragents.storage.unit_of_work import Backend, Write

__all__ = ["HEAD", "REVISIONS", "CommitListener", "Database", "ensure_schema", "open_database"]


T = TypeVar("T")
Item = TypeVar("Item")
CommitListener = Callable[[Sequence[DomainEvent]], object]

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")
"""Every revision this version knows, oldest first: the names of the files in `migrations/versions`."""
HEAD = REVISIONS[-1]
_MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """Reads and writes of any thread. Use it as a context manager, or `close` it.

    Thread safety:
        Owner: who opened it closes it; any thread may read and write.
        Lock: `_listeners_lock` guards the tuple of listeners, for arithmetic only; none is held while a
            unit or a listener runs.
        Guarantee: a write that returned is committed; one that raised wrote nothing, unless it raised
            `OutcomeUnknown`; a listener hears of an event after its commit, or never.
    Cancel safety: an interrupted call leaves no transaction open; whether an interrupted write was kept
        is for the caller to look up.
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
        """What to call this database in a message; never holds a password."""
        return location_of(self._url)

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction on one consistent snapshot, in which nothing can be written. `Closed`."""
        self._ensure_open()
        return self._backend.read()

    def write(self, unit: Callable[[Connection], T]) -> T:
        """Runs `unit` in a writing transaction and returns its value once that is committed.

        A unit may be run again, after a conflict or when one that shares its commit fails, so it touches
        nothing but the connection; whatever it raises undoes it and is raised here. What it leaves in the
        outbox is said to be done by whoever calls this. `StoreBusy`, `StoreFull`, `DatabaseUnreachable`, or
        `OutcomeUnknown`.
        """
        value: T = self._commit(Write(_call, unit, joins=False, by=acting()))
        return value

    def write_joined(self, apply: Callable[[Connection, Sequence[Item]], Sequence[T]], item: Item) -> T:
        """Like `write`, for many small writes of one kind: the items of concurrent callers that passed an
        equal `apply` in one name may be given to it together, in one call that returns one value for each.

        If it raises, it is called again for each item alone, so an error reaches only whose it is.
        """
        value: T = self._commit(Write(apply, item, joins=True, by=acting()))
        return value

    def add_commit_listener(self, listener: CommitListener) -> Callable[[], None]:
        """`listener` gets the events that a write put into the outbox, after its commit, in its thread,
        before the write returns, with no lock held. Returns what takes it off again."""
        with self._listeners_lock:
            self._listeners = (*self._listeners, listener)

        def remove() -> None:
            with self._listeners_lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return remove

    def migrate(self, migration: Callable[[Connection], None]) -> None:
        """Runs the migration in one transaction, alone among all processes. For `schema`."""
        self._backend.migrate(migration)

    def close(self) -> None:
        """Lets writes under way end, refuses new ones, gives back every connection. Twice is harmless."""
        with self._listeners_lock:
            if self._closed:  # guard: the connections are given back once
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
        answer = self._backend.commit(write)
        if answer.events:
            self._tell(answer.events)
        return answer.value

    def _tell(self, events: Sequence[DomainEvent]) -> None:
        for listener in self._listeners:
            try:
                listener(events)
            except Exception:
                # The write is kept; an error here would tell its caller otherwise.
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
    """The database at `url` (`sqlite:///path` or `postgresql://…`), created and migrated if need be.

    The parameters are those of `DatabaseOptions`. Any number of processes may open a fresh database at
    once. `DatabaseUnusable` says what is wrong and what to do about it; `DatabaseUnreachable`: not now.
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
        # Read as it stands, a part of the password would be taken for the host, and shown.
        raise DatabaseUnusable("the configured URL", "its user or password holds an @; write that as %40")
    try:
        return make_url(url)
    except ArgumentError as error:
        raise DatabaseUnusable(
            "the configured URL", "it is not a URL; try sqlite:///path/to/file.db"
        ) from error


def _backend(url: URL, settings: DatabaseOptions, faults: FaultPoints) -> Backend:
    name = url.get_backend_name()
    if name == "sqlite":
        from cleveragents.storage.sqlite_backend import SqliteBackend

        if not url.database or url.database == ":memory:":
            raise DatabaseUnusable(
                "an in-memory SQLite database", "other processes cannot see it; name a file"
            )
        return SqliteBackend(url, settings, faults)
    if name in ("postgresql", "postgres"):
        from cleveragents.storage.postgres_backend import PostgresBackend

        return PostgresBackend(url, settings, faults)
    raise DatabaseUnusable(location_of(url), f"{name} is not supported; use sqlite or postgresql")


def ensure_schema(database: Database) -> None:
    """Returns when the schema is this version's. `DatabaseUnusable` if it is newer, or not ours."""
    with database.read() as connection:
        current = _revision(connection, database)
    if current != HEAD:
        database.migrate(lambda connection: _upgrade(connection, database))


def _upgrade(connection: Connection, database: Database) -> None:
    # Looked up again, inside the transaction: another process may have been faster.
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
            raise DatabaseUnusable(database.location, "it belongs to another program; configure another file")
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is not None and revision not in REVISIONS:
        raise DatabaseUnusable(
            database.location,
            f"its schema is {revision!r} and this version knows none after {HEAD!r}; upgrade cleveragents",
        )
    return revision
