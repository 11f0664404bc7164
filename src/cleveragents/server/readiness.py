"""Whether this server can do its work now, found out by doing a little of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cleveragents.core.errors import CleverAgentsError
from cleveragents.server.problems import said_of

if TYPE_CHECKING:
    from cleveragents.app.container import Container

__all__ = ["CheckResult", "readiness"]

_SILENT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was tried; `problem` is for people, and None where it went well."""

    name: str
    problem: str | None

    @property
    def ok(self) -> bool:
        return self.problem is None


def readiness(container: Container) -> list[CheckResult]:
    """What was tried, and how it went. Where the database does not answer, the rest is not tried."""
    database = _tried("database", lambda: _database(container))
    if not database.ok:
        return [database]
    return [
        database,
        _tried("schema", lambda: _schema(container)),
        _tried("worker", lambda: _worker(container)),
        _tried("audit-log", lambda: _audit(container)),
    ]


def _tried(name: str, check: Callable[[], str | None]) -> CheckResult:
    try:
        return CheckResult(name, check())
    except CleverAgentsError as error:
        return CheckResult(name, said_of(error))


def _database(container: Container) -> str | None:
    from sqlalchemy import text

    with container.database.read() as connection:
        connection.execute(text("SELECT 1"))
    return None


def _schema(container: Container) -> str | None:
    from sqlalchemy import text

    from cleveragents.storage.database import HEAD

    with container.database.read() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found == HEAD:
        return None
    return f"the database is at revision {found}, and this version is made for {HEAD}; restart the server"


def _worker(container: Container) -> str | None:
    """Of the workers that this process said it has; one without any leaves plans to others."""
    own = [
        worker
        for worker in container.worker_registry.list()
        if worker.pid == os.getpid() and worker.host == socket.gethostname() and worker.state != "gone"
    ]
    now = container.clock.now()
    silent = [worker.name for worker in own if now - worker.seen_at > _SILENT]
    if not silent:
        return None
    return f"the worker {silent[0]} of this server has said nothing for a minute; restart the server"


def _audit(container: Container) -> str | None:
    container.audit.sequence_pending()
    return None
