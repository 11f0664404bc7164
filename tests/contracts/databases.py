"""Small writes to check afterwards, in this and in separate processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection, insert, select

from cleveragents.storage.database import Database
from cleveragents.storage.tables import changesets
from tests.fork_server import Forked

__all__ = ["Child", "changeset_ids", "keep", "locked", "start_child"]

_SECONDS_LIMIT = 60.0
_ROOT = Path(__file__).parents[2]


def keep(name: str) -> Callable[[Connection], None]:
    """Return a unit that adds a row with this name."""

    def unit(connection: Connection) -> None:
        connection.execute(insert(changesets), {"id": name, "plan_id": "plan", "closed": False})

    return unit


def changeset_ids(database: Database) -> list[str]:
    """Return the names of the existing rows, sorted."""
    with database.read() as connection:
        return list(connection.execute(select(changesets.c.id).order_by(changesets.c.id)).scalars())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock from another connection during the block."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


class Child:
    """A process running a deed of `store_child`. Not thread-safe: use it in the test that started it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait_ready(self) -> None:
        """Return when it has imported its modules."""
        assert self.line() == "ready"

    def go(self) -> None:
        """Let it start."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Return its next line; empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def wait_end(self, returncode: int = 0) -> str:
        """Return the rest of its output, once it has ended in this way."""
        try:
            said, _ = self.process.communicate(timeout=_SECONDS_LIMIT)
        finally:
            self.process.kill()
            self.process.wait()
        assert self.process.returncode == returncode, said
        return said


def start_child(deed: str, url: str, name: str) -> Child:
    """Start it; it waits for `go`."""
    return Child(
        Forked(
            [sys.executable, "-m", "tests.contracts.store_child", deed, url, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
    )
