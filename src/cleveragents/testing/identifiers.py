"""Ids that a test can predict."""

from __future__ import annotations

from itertools import count

__all__ = ["CountingIdentifiers"]


class CountingIdentifiers:
    """`job-000001`, `job-000002`, …: passes the `IdentifierSource` contract within one process."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        # next() on itertools.count is a single C call: two threads never get the same number.
        self._numbers = count(1)

    def new(self) -> str:
        return f"{self._prefix}-{next(self._numbers):06d}"
