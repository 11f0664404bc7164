"""Strategies that find context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cleveragents.context.model.context import ContextFragment, ContextRequest

__all__ = ["CancelSignal", "ContextStrategy"]


class CancelSignal(Protocol):
    """The part of a cancellation token that a strategy looks at."""

    @property
    def is_cancelled(self) -> bool: ...


class ContextStrategy(Protocol):
    """One way to find what matters. It runs on a thread of the executor and may be called at once by several.

    It should look at `cancelled` now and then; one that does not is left behind at its deadline.
    """

    @property
    def name(self) -> str: ...

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        """Fragments, best first; empty if it has nothing to say. Any exception counts as its failure."""
        ...
