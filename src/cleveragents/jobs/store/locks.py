"""Names that transactions on PostgreSQL take turns by: what is counted and then relied on."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from sqlalchemy import Connection, text

__all__ = ["hold_in_order"]

_HOLD = text("SELECT pg_advisory_xact_lock(:ours, :name)")
_OURS = 0x6A6F6273  # "jobs": keeps our locks apart from everybody else's


def hold_in_order(connection: Connection, names: Iterable[str]) -> None:
    """Waits for all of them, and holds them until the end of the transaction. Two names of the same number
    are one lock, which makes somebody wait in vain and nothing worse."""
    numbers = {zlib.crc32(name.encode()) - 2**31 for name in names}
    for number in sorted(numbers):  # guard: everybody takes them in the same order
        connection.execute(_HOLD, {"ours": _OURS, "name": number})
