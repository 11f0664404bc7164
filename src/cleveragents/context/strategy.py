"""The port for context strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cleveragents.context.model.context import ContextFragment, ContextRequest

__all__ = ["CancelSignal", "ContextStrategy"]


class CancelSignal(Protocol):
    """The part of a cancellation token that a strategy reads."""

    @property
    def is_cancelled(self) -> bool: ...


class ContextStrategy(Protocol):
    """One way to find relevant code. It runs on threads of the executor and may be called concurrently.

    It should check `cancelled` regularly; otherwise it is abandoned at its deadline.
    """

    @property
    def name(self) -> str: ...

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        """Return fragments, best first; empty if nothing is found. Any exception counts as a failure."""
        ...
