"""The translation of database errors."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, NoResultFound, OperationalError, ProgrammingError

from cleveragents.core.errors import (
    CleverAgentsError,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    StoreBusy,
    StoreFull,
)
from cleveragents.jobs.worker.attempt import raised
from cleveragents.storage.database_errors import is_transient, translated

POSTGRES = make_url("postgresql://user:hunter2@host/db")


def from_sqlite(code: int, path: str = "/tmp/store.db") -> CleverAgentsError:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    return translated(error, make_url(f"sqlite:///{path}"))


class ServerError(Exception):
    """An error as psycopg raises it."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("what the server says\nDETAIL: key (hunter2)")
        self.sqlstate = sqlstate


def from_postgres(sqlstate: str | None, kind: type[DBAPIError] = OperationalError) -> CleverAgentsError:
    return translated(kind("INSERT INTO t", ("hunter2",), ServerError(sqlstate)), POSTGRES)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy),
        (sqlite3.SQLITE_LOCKED, StoreBusy),
        (sqlite3.SQLITE_PROTOCOL, StoreBusy),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_READONLY_DIRECTORY, DatabaseUnusable),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, DatabaseUnusable),
        (sqlite3.SQLITE_NOTADB, DatabaseUnusable),
        (sqlite3.SQLITE_CORRUPT_VTAB, DatabaseUnusable),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, DatabaseFailed),
    ],
)
def test_distinguishes_sqlite_result_codes(code: int, kind: type[CleverAgentsError]) -> None:
    assert type(from_sqlite(code)) is kind


def test_an_io_error_on_a_full_disk_is_a_full_disk() -> None:
    assert type(from_sqlite(sqlite3.SQLITE_IOERR_SHMSIZE, "/proc/store.db")) is StoreFull
    assert type(from_sqlite(sqlite3.SQLITE_IOERR_SHMSIZE, "/no/such/place/store.db")) is DatabaseFailed


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("40001", StoreBusy),
        ("40P01", StoreBusy),
        ("55P03", StoreBusy),
        ("53300", StoreBusy),
        ("53100", StoreFull),
        ("25006", DatabaseUnusable),
        ("42501", DatabaseUnusable),
        ("28P01", DatabaseUnusable),
        ("3D000", DatabaseUnusable),
        ("08006", DatabaseUnreachable),
        ("57P01", DatabaseUnreachable),
        ("57P03", DatabaseUnreachable),
        (None, DatabaseUnreachable),
        ("23505", DatabaseFailed),
    ],
)
def test_distinguishes_sqlstates_and_quotes_no_data(
    sqlstate: str | None, kind: type[CleverAgentsError]
) -> None:
    error = from_postgres(sqlstate)
    assert type(error) is kind
    assert "hunter2" not in str(error)
    assert is_transient(ServerError(sqlstate)) is (kind is StoreBusy)


def test_an_unexpected_database_error_is_a_fault() -> None:
    assert type(translated(NoResultFound("no row"), POSTGRES)) is DatabaseFailed


def test_an_error_of_the_driver_is_not_a_lost_connection() -> None:
    assert type(from_postgres(None, InterfaceError)) is DatabaseUnreachable
    assert type(from_postgres(None, ProgrammingError)) is DatabaseFailed


def test_a_broken_connection_is_lost_whatever_its_code() -> None:
    error = DBAPIError("SELECT 1", (), ServerError("42501"), connection_invalidated=True)
    assert type(translated(error, POSTGRES)) is DatabaseUnreachable


def test_a_server_that_restarts_does_not_fail_a_job_for_good() -> None:
    """A handler that meets it is retried; one that meets a wrong configuration is not."""
    lost = from_postgres("57P01")
    assert not raised(lost).permanent
    assert lost.exit_code == 75
    wrong = from_postgres("42501")
    assert raised(wrong).permanent
    assert wrong.exit_code == 2
