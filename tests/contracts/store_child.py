"""A separate process that uses a database: `python -m tests.contracts.store_child DEED URL NAME`.

It prints `ready` when it has imported everything, starts when it gets a line, and answers with lines.
"""

from __future__ import annotations

import os
import signal
import sys

import alembic.command
from sqlalchemy import Connection

from cleveragents.core.errors import CleverAgentsError
from cleveragents.storage import database as schema
from cleveragents.storage import postgres_backend, sqlite_backend
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CrashAt
from tests.contracts.databases import keep

_NOBODY = 65534
IMPORTED = (alembic.command, postgres_backend, schema, sqlite_backend)
"""Modules that are otherwise imported on demand, too late for a user who cannot read them."""


def open_and_keep(url: str, name: str) -> None:
    """Open the database, which may be new, and write one row."""
    with open_database(url) as database:
        database.write(keep(name))
    say("kept")


def open_unprivileged(urls: str, name: str) -> None:
    """Print the result of opening each as a user whom permissions bind: they do not bind root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setegid(_NOBODY)
        os.seteuid(_NOBODY)
    for url in urls.split(","):
        try:
            open_database(url).close()
            say("opened")
        except CleverAgentsError as error:
            say(f"{type(error).__name__}: {error}")


def keep_many(url: str, name: str) -> None:
    """Write `count` rows (`name` is `prefix:count`) and print the name of each once it is committed."""
    prefix, count = name.split(":")
    with open_database(url) as database:
        for number in range(int(count)):
            database.write(keep(f"{prefix}-{number:04d}"))
            say(f"{prefix}-{number:04d}")


def crash(url: str, name: str) -> None:
    """Write one row, then a second one at whose fault point (`name`) the process is killed."""
    with open_database(url, faults=CrashAt(name, nth=2)) as database:
        for row in ("first", "second"):
            database.write(keep(row))
            say(row)


def stop_in_a_write(url: str, name: str) -> None:
    """Write one row, and suspend itself before the commit."""

    def unit(connection: Connection) -> None:
        keep(name)(connection)
        os.kill(os.getpid(), signal.SIGSTOP)

    with open_database(url) as database:
        database.write(unit)
    say(name)


def say(line: str) -> None:
    # One write call per line: a killed process leaves complete lines.
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    deed, url, name = sys.argv[1:]
    say("ready")
    sys.stdin.readline()
    {f.__name__: f for f in (open_and_keep, open_unprivileged, keep_many, crash, stop_in_a_write)}[deed](
        url, name
    )
