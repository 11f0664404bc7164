"""How a database is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DatabaseOptions"]


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """`durability` "normal": what was acknowledged survives kill -9; "full": a power cut, too.

    A busy database is tried again for `patience_seconds`; at most `connections` read at once.
    """

    durability: Literal["normal", "full"] = "normal"
    patience_seconds: float = 60.0
    connections: int = 8
