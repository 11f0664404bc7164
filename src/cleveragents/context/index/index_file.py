"""The SQLite file of one repository's index: opened, created, or rebuilt if it is unusable.

A process that opens the index briefly holds a shared lock on a separate lock file (the door); a process that
replaces the index holds it exclusively. So no process opens one database file with the log of another. If the
file cannot be opened or written, the index is kept in memory, with a note.
"""

from __future__ import annotations

import fcntl
import math
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cleveragents.context.index.build.segment import IndexDamaged

__all__ = [
    "MOST_BUSY_SECONDS",
    "IndexFile",
    "OpenedIndex",
    "is_damage",
    "is_locked",
    "is_unwritable",
    "transaction",
    "wait_at_most",
]

MOST_BUSY_SECONDS = 30.0
"""Maximum wait for a writer, if the caller has the time."""

_SCHEMA = 3
_APPLICATION = 0x434C4358
_PAGE_BYTES = 8192
_COPIED_BYTES = 512 << 20
# Directories are stored as bytes: their names need not be UTF-8.
_TABLES = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE content (row INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, analysis BLOB NOT NULL);
CREATE TABLE segment (
    segment INTEGER PRIMARY KEY AUTOINCREMENT, postings INTEGER NOT NULL, catalogue BLOB NOT NULL);
CREATE TABLE dictionary (
    segment INTEGER NOT NULL, field TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (segment, field));
CREATE TABLE block (
    segment INTEGER NOT NULL, field TEXT NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (segment, field, number));
CREATE TABLE known_file (
    place BLOB NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (place, path)) WITHOUT ROWID;
CREATE TABLE past_commit (id TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE view (place BLOB PRIMARY KEY, root BLOB NOT NULL, used INTEGER NOT NULL, rows BLOB NOT NULL);
"""
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT}
_UNWRITABLE = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
}


def is_damage(error: BaseException) -> bool:
    """Return whether the error means that the file is damaged and must be rebuilt."""
    return isinstance(error, IndexDamaged) or _code(error) in _DAMAGE


def is_unwritable(error: BaseException) -> bool:
    """Return whether the error means that the file is unusable now although its content is intact."""
    return isinstance(error, OSError) or _code(error) in _UNWRITABLE


def is_locked(error: BaseException) -> bool:
    """Return whether the error means that another process was writing for longer than we wait."""
    return _code(error) == sqlite3.SQLITE_BUSY


def wait_at_most(connection: sqlite3.Connection, seconds: float) -> None:
    """Set how long the connection waits for writers from now on."""
    connection.execute(f"PRAGMA busy_timeout = {math.ceil(seconds * 1000)}").fetchone()


def _code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@dataclass
class OpenedIndex:
    """A connection to the index file with this identity, or to a private index in memory.

    `notes` explain why a new or private index is used.
    """

    connection: sqlite3.Connection
    identity: tuple[int, int] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        return self.identity is not None

    def close(self) -> None:
        self.connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block atomically, as the only writer."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The location of a repository's index.

    `version` is the version of the analysis; an index of another version is rebuilt.
    """

    path: Path
    version: int
    home: Path
    busy_seconds: float = MOST_BUSY_SECONDS

    @property
    def lock(self) -> Path:
        """The lock of the process that fills the index."""
        return self.path.with_suffix(".build")

    def open(self) -> OpenedIndex:
        """Open the index and create it if it is missing. Never fails because of the state of the disk: an
        unusable index is rebuilt, or replaced by an index in memory.
        """
        try:
            return self.open_kept()
        except (sqlite3.Error, OSError) as error:
            return self.in_memory(f"the index is not stored: {_words(error)}")

    def in_memory(self, note: str) -> OpenedIndex:
        """Return a private index in memory, with the content of the stored index if that is readable."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        opened = OpenedIndex(connection, notes=[note])
        try:
            if self._copied_to(connection):
                return opened
        except (sqlite3.Error, OSError, IndexDamaged):
            connection.close()
            opened.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._fill(opened.connection)
        return opened

    def discard(self, opened: OpenedIndex) -> None:
        """Remove the file, so that the next opening rebuilds it.

        Connections that are already open stay usable.
        """
        with suppress(OSError), self._door(fcntl.LOCK_EX):
            if _identity(self.path) == opened.identity:  # guard: another process may have rebuilt it
                self._remove()

    def remove(self) -> None:
        """Remove the file unconditionally."""
        with suppress(OSError), self._door(fcntl.LOCK_EX):
            self._remove()

    def size(self) -> int:
        """Return the size in bytes, including logs."""
        total = 0
        for part in (self.path, *self._logs()):
            with suppress(OSError):
                total += part.stat().st_size
        return total

    def open_kept(self) -> OpenedIndex:
        """Open the stored index. Raises `sqlite3.Error` or `OSError` if the index cannot be opened."""
        for folder in (self.path.parent.parent, self.path.parent):  # `mode` does not apply to parents
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._door(fcntl.LOCK_SH):
            opened, problem = self._try()
        if opened is not None:
            return opened
        with self._door(fcntl.LOCK_EX):
            opened, _ = self._try()
            if opened is not None:  # guard: another process has rebuilt it meanwhile
                return opened
            self._remove()
            opened = OpenedIndex(self._made(), _identity(self.path))
            opened.notes += [f"the index was rebuilt: {problem}"] if problem else []
            return opened

    def _try(self) -> tuple[OpenedIndex | None, str]:
        """Return the existing index, or None and the reason why it is unusable. The reason is empty if no
        index exists.
        """
        if not self.path.exists():
            return None, ""
        connection = None
        try:
            connection = self._connect(f"{self.path.as_uri()}?mode=rw")
            problem = self._problem(connection)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if not is_damage(error):
                raise
            return None, f"it was damaged ({_words(error)})"
        if problem:
            connection.close()
            return None, problem
        return OpenedIndex(connection, _identity(self.path)), ""

    def _problem(self, connection: sqlite3.Connection) -> str:
        if connection.execute("PRAGMA user_version").fetchone()[0] != self._version:
            return "it was from another version"
        connection.execute("SELECT count(*) FROM segment").fetchone()
        return ""

    @property
    def _version(self) -> int:
        return _SCHEMA * 10_000 + self.version

    def _made(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = self._connect(f"{self.path.as_uri()}?mode=rwc")
        try:
            self._fill(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, uri: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=self.busy_seconds
        )
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _fill(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection):
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO fact VALUES ('home', ?)", (os.fsencode(self.home),))
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {self._version}")

    def _copied_to(self, memory: sqlite3.Connection) -> bool:
        if not self.path.exists() or self.path.stat().st_size > _COPIED_BYTES:
            return False
        # Without locks and logs, which a read-only directory does not allow.
        uri = f"{self.path.as_uri()}?mode=ro&immutable=1"
        source = sqlite3.connect(uri, uri=True, isolation_level=None)
        try:
            if self._problem(source):
                return False
            source.backup(memory)
        finally:
            source.close()
        return True

    def _logs(self) -> tuple[Path, Path]:
        return self.path.with_name(f"{self.path.name}-wal"), self.path.with_name(f"{self.path.name}-shm")

    def _remove(self) -> None:
        for part in (self.path, *self._logs()):
            part.unlink(missing_ok=True)

    @contextmanager
    def _door(self, how: int) -> Iterator[None]:
        descriptor = os.open(self.path.with_suffix(".door"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        give_up = time.monotonic() + self.busy_seconds
        try:
            while True:
                try:
                    fcntl.flock(descriptor, how | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= give_up:
                        raise
                time.sleep(0.002)
            yield
        finally:
            os.close(descriptor)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
