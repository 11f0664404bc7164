"""Settings of a database connection."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["DatabaseOptions"]


class DatabaseOptions(Struct, frozen=True):
    """Options of a database connection.

    With `durability` "normal", acknowledged writes survive kill -9; with "full", also a power cut. A busy
    database is retried for `patience_seconds`; at most `connections` readers run in parallel.
    """

    durability: Literal["normal", "full"] = "normal"
    patience_seconds: float = 60.0
    connections: int = 8
