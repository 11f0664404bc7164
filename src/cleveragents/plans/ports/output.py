"""What is seen of a plan while it runs, for those who watch it from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["OutputPiece", "PlanOutput"]


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """Some of it, at its place. `kind`: progress (lines for people), output (what commands print), model
    (what actors say as they say it), node (JSON: which `actor` is at which `node` of its graph now; with an
    `event`, that it is `thinking`, its model being the `text`, or that a call is `tool_done`, and how)."""

    plan_id: str
    number: int
    kind: str
    text: str
    written_at: datetime


class PlanOutput(Protocol):
    """Pieces of plans' output, numbered from 1 for each plan; every method is one atomic step.

    It is bounded: of a plan that printed more than that, the oldest pieces are gone, and their numbers with
    them. Secrets are masked before anything is kept.
    """

    def append(self, plan_id: str, pieces: Sequence[tuple[str, str]], *, now: datetime) -> None:
        """Keeps these kinds and texts, in order."""
        ...

    def read(self, plan_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[OutputPiece]:
        """Pieces with a number above `after`, in order."""
        ...

    def last(self, plan_id: str) -> int:
        """The number of the last piece; 0 where there is none."""
        ...
