"""Positions of receivers in the audit log, in a database: how far each receiver has been notified, and which
process sends to it at present.

Several servers may share a database. A lease names the only server that sends, so that no notification is
sent twice; another server takes over when the lease has run out.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, or_, select, update

from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.service_tables import deliveries

__all__ = ["LEASE", "SqlDeliveryStore"]

LEASE = timedelta(minutes=2)
"""How long a process may send without renewing its lease; much longer than one delivery may take."""

_ROWS = deliveries.c


class SqlDeliveryStore:
    """The positions of receivers. Every method is atomic. Has no state but the database, so any thread and
    process may use it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, receiver: str, owner: str, *, start: int, now: datetime) -> int | None:
        """Take or renew the lease of a receiver, and return its position; None while another owner has the
        lease. A new receiver begins at `start`.
        """
        new = {"receiver": receiver, "position": start, "owner": owner, "leased_until": _until(now)}

        def unit(connection: Connection) -> int | None:
            insert = insert_into(deliveries, connection.dialect.name).on_conflict_do_nothing()
            connection.execute(insert, new)
            # One statement decides, so of two claimants one gets the lease
            free = or_(_ROWS.owner == owner, _ROWS.leased_until < microseconds(now))
            taken = update(deliveries).where(_ROWS.receiver == receiver, free)
            values = {"owner": owner, "leased_until": _until(now)}
            if connection.execute(taken.values(values)).rowcount != 1:
                return None
            position = select(_ROWS.position).where(_ROWS.receiver == receiver)
            return int(connection.execute(position).scalar_one())

        return self._database.write(unit)

    def keep(self, receiver: str, owner: str, position: int, *, now: datetime) -> bool:
        """Store the position and renew the lease. Return False, without a change, if the owner has lost the
        lease, or the stored position is greater.
        """

        def unit(connection: Connection) -> bool:
            mine = update(deliveries).where(_ROWS.receiver == receiver, _ROWS.owner == owner)
            values = {"position": position, "leased_until": _until(now)}
            forward = mine.where(_ROWS.position <= position)
            return connection.execute(forward.values(values)).rowcount == 1

        return self._database.write(unit)

    def release(self, receiver: str, owner: str) -> None:
        """Give the lease up, so that another process can take over at once."""
        mine = update(deliveries).where(_ROWS.receiver == receiver, _ROWS.owner == owner)
        self._database.write(lambda connection: connection.execute(mine.values(leased_until=0)))


def _until(now: datetime) -> int:
    return microseconds(now + LEASE)
