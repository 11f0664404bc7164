"""Translation of database errors into CleverAgents errors; no other module sees the original errors.

SQLite errors are classified by result code, PostgreSQL errors by SQLSTATE.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from cleveragents.config.entry_points import install_command
from cleveragents.core.errors import (
    CleverAgentsError,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    StoreBusy,
    StoreFull,
)

__all__ = ["is_held", "is_taken_back", "is_transient", "location_of", "translated"]

# The last one occurs after a hundred attempts to read an index of the log that is changing, as on a busy
# machine.
_SQLITE_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_SQLITE_REMEDIES = {
    sqlite3.SQLITE_READONLY: "the database is read-only; make the file and its directory writable",
    sqlite3.SQLITE_PERM: "access is denied; make the file and its directory writable",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check that the directory exists and is writable",
    sqlite3.SQLITE_NOTADB: "the file is not a database; move it away or configure another one",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a backup or configure another one",
}
_SMALLEST_ROOM = 1 << 20

# serialization failure, deadlock, lock not available, too many connections
_POSTGRES_TRANSIENT = frozenset({"40001", "40P01", "55P03", "53300"})
_POSTGRES_HELD = "55P03"
_POSTGRES_IDLE = "25P03"
_POSTGRES_FULL = "53100"
_POSTGRES_REMEDIES = {
    "25006": "the database is read-only; configure the primary server",
    "28000": "the login is refused; correct the user in the URL",
    "28P01": "the login is refused; correct the user and the password in the URL",
    "3D000": "the server has no such database; create it or correct the URL",
    "42501": "the database user lacks permissions; grant it the right to create and write tables",
}


def location_of(url: URL) -> str:
    """Return the name of the database for people: a path, or a URL without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.render_as_string(hide_password=True)


def is_transient(error: BaseException) -> bool:
    """Return whether the same transaction may succeed if it is run again."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return _sqlite_code(cause) in _SQLITE_BUSY
    return getattr(cause, "sqlstate", None) in _POSTGRES_TRANSIENT


def is_held(error: DBAPIError) -> bool:
    """Return whether the transaction waited too long for a lock."""
    return _sqlstate(error) == _POSTGRES_HELD


def is_taken_back(error: DBAPIError) -> bool:
    """Return whether the server ended the transaction because it was idle for too long."""
    return _sqlstate(error) == _POSTGRES_IDLE


def translated(error: Exception, url: URL, *, waited_seconds: float = 0.0) -> CleverAgentsError:
    """Return the CleverAgents error for a database error; `DatabaseFailed` for an unexpected error."""
    location = location_of(url)
    if isinstance(error, PoolTimeout) or is_transient(error):
        return StoreBusy(waited_seconds)
    if isinstance(error, sqlite3.Error):
        return _from_sqlite(error, location)
    if isinstance(error, DBAPIError) and isinstance(error.orig, sqlite3.Error):
        return _from_sqlite(error.orig, location)
    if isinstance(error, DBAPIError):
        return _from_postgres(error, location)
    if isinstance(error, ModuleNotFoundError):
        return DatabaseUnusable(location, f"psycopg is missing: {install_command('postgres')}")
    return DatabaseFailed(location, _first_line(error))


def _from_sqlite(error: sqlite3.Error, location: str) -> CleverAgentsError:
    code = _sqlite_code(error)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_room(location)):
        return StoreFull(location)
    if code in _SQLITE_REMEDIES:
        return DatabaseUnusable(location, _SQLITE_REMEDIES[code])
    return DatabaseFailed(location, _first_line(error))


def _sqlite_code(error: sqlite3.Error) -> int:
    # The low byte is the result code; the rest tells more about its origin.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _no_room(location: str) -> bool:
    """Return whether the disk is full; with a memory map, SQLite reports this as an I/O error."""
    try:
        state = os.statvfs(Path(location).parent)
    except OSError:
        return False
    return state.f_bavail * state.f_frsize < _SMALLEST_ROOM


def _from_postgres(error: DBAPIError, location: str) -> CleverAgentsError:
    code = _sqlstate(error)
    if _is_lost(error, code):
        return DatabaseUnreachable(location, _first_line(error.orig or error))
    if code == _POSTGRES_FULL:
        return StoreFull(location)
    if code in _POSTGRES_REMEDIES:
        return DatabaseUnusable(location, _POSTGRES_REMEDIES[code])
    return DatabaseFailed(location, _first_line(error.orig or error))


def _is_lost(error: DBAPIError, code: str | None) -> bool:
    """Return whether the connection is lost or refused, as while the server restarts."""
    if error.connection_invalidated:
        return True
    if code is None:
        # A refused connection has no code, only a message in the server's language: a wrong login
        # cannot be distinguished from a server that is just starting.
        return isinstance(error, (OperationalError, InterfaceError))
    return code.startswith(("08", "57P"))


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _first_line(error: BaseException) -> str:
    # The rest of a SQLAlchemy message contains the statement and its parameters, which must not be shown.
    text = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    lines = text.splitlines() or [type(error).__name__]
    return (
        lines[0]
        if isinstance(error, (SQLAlchemyError, sqlite3.Error))
        else f"{type(error).__name__}: {lines[0]}"
    )
