"""Settings of a database connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DatabaseOptions"]


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Options of a database connection.

    With `durability` "normal", acknowledged writes survive kill -9; with "full", also a power cut. A busy
    database is retried for `patience_seconds`; at most `connections` readers run in parallel.
    """

    durability: Literal["normal", "full"] = "normal"
    patience_seconds: float = 60.0
    connections: int = 8
