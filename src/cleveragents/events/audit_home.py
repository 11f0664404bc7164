"""Whose sequencer orders the audit log, where several state directories share a database.

Head and key attest the log, and they are in one state directory. So one of them, its *home*, gives events
their places; processes of all others leave theirs in the outbox, durably, and never need the key. The first
that opens the unused database is it. Where none is named in a database in use, it is the one that has a head.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, text

from cleveragents.core.errors import AuditElsewhere
from cleveragents.storage.database import Database
from cleveragents.storage.service_tables import audit_home
from cleveragents.storage.tables import events, jobs, outbox, plans

__all__ = ["AuditHome", "is_unused", "lock_audit_log"]

_NOBODY = "that began it"
_ADVISORY_LOCK = 0x41756469  # "Audi": one number for every process of ours
_ONE = {"number": 1}


@dataclass(frozen=True, slots=True)
class AuditHome:
    """The one row that names the home. Stateless but for the database: any thread may share it."""

    database: Database
    home: str

    def is_elsewhere(self, *, has_head: bool) -> bool:
        """Whether another home sequences. Where nobody does yet, it is this one from now on, if the database
        is unused or the log is attested here."""
        with self.database.read() as connection:
            holder = _holder(connection)
        if holder is None:
            holder = self.database.write(lambda connection: self._taken(connection, has_head))
        return holder != self.home

    def ensure_here(self, connection: Connection) -> None:
        """`AuditElsewhere`. For the transaction that sequences, which holds the log: nobody moves it then."""
        holder = _holder(connection)
        if holder != self.home:  # guard: what is sequenced here, this key attests
            raise AuditElsewhere(holder or _NOBODY)

    def ensure_attested_here(self) -> None:
        """`AuditElsewhere`, for who wants to verify."""
        with self.database.read() as connection:
            holder = _holder(connection)
        if holder not in (None, self.home):
            raise AuditElsewhere(str(holder))

    def take_unused(self) -> bool:
        """Whether the database is unused, and the log has its home here from now on."""

        def unit(connection: Connection) -> bool:
            lock_audit_log(connection)
            holder = _holder(connection)
            if holder not in (None, self.home) or not is_unused(connection):
                return False
            if holder is None:
                connection.execute(insert(audit_home), {**_ONE, "home": self.home})
            return True

        return self.database.write(unit)

    def move_here(self) -> None:
        """From now on it is this one; whoever was it, finds out in its next transaction."""

        def unit(connection: Connection) -> None:
            lock_audit_log(connection)
            connection.execute(delete(audit_home))
            connection.execute(insert(audit_home), {**_ONE, "home": self.home})

        self.database.write(unit)

    def _taken(self, connection: Connection, has_head: bool) -> str | None:
        lock_audit_log(connection)
        holder = _holder(connection)
        if holder is not None:  # guard: the first who came stays it
            return holder
        if not has_head and not is_unused(connection):
            return None
        connection.execute(insert(audit_home), {**_ONE, "home": self.home})
        return self.home


def lock_audit_log(connection: Connection) -> None:
    """Nobody else sequences, on any machine, until the transaction is over."""
    if connection.dialect.name != "sqlite":  # there the transaction is the only one that writes
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK})


def is_unused(connection: Connection) -> bool:
    """Whether nothing was ever committed that has events: no plan, no job, no event in outbox or log."""
    columns = (plans.c.id, jobs.c.id, outbox.c.number, events.c.position)
    return not any(connection.execute(select(column).limit(1)).first() for column in columns)


def _holder(connection: Connection) -> str | None:
    found: str | None = connection.execute(select(audit_home.c.home)).scalar()
    return found
