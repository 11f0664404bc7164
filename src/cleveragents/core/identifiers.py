"""Identity as a parameter."""

from __future__ import annotations

from typing import Protocol

__all__ = ["IdentifierSource"]


class IdentifierSource(Protocol):
    """Gives ids (ULIDs): unique across processes, sortable by creation time. Any thread may ask."""

    def new(self) -> str:
        """An id nobody had before."""
        ...
