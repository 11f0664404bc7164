"""ULIDs."""

from __future__ import annotations

from ulid import ULID

__all__ = ["UlidSource"]


class UlidSource:
    """`IdentifierSource` giving ULIDs. Stateless: 80 random bits make them unique without a lock."""

    def new(self) -> str:
        return str(ULID())
