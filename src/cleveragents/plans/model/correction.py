"""Corrections: a person, or the plan itself, says that something was decided wrongly, or is to be heeded too.

Nothing is erased by one: what it supersedes stays, and so does the outcome that the plan had come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cleveragents.core.decision import Decision

__all__ = ["MOST_RETURNS", "Correction", "NewCorrection", "descendants"]

MOST_RETURNS = 3
"""How often a plan may go back to Strategize by itself; a person may always send it."""


@dataclass(frozen=True, slots=True)
class NewCorrection:
    """`decision` is the number of the one that was wrong; None where guidance is merely added. `superseded`
    are the numbers that no longer hold because of it; `checkpoint` is the call before which the plan goes on
    (None: nothing is undone), `outcome` the name of the tree that it had come to before."""

    guidance: str
    decision: int | None = None
    superseded: tuple[int, ...] = ()
    checkpoint: int | None = None
    outcome: str | None = None
    by_itself: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction as the store holds it; `number` counts from 1 within its plan."""

    plan_id: str
    number: int
    made: NewCorrection
    created_at: datetime


def descendants(decisions: Sequence[Decision], number: int) -> tuple[int, ...]:
    """The decision of that number and all that followed from it, by number."""
    found = {number}
    # A parent has a lower number than what follows from it.
    for decision in sorted(decisions, key=lambda one: one.number):
        if decision.made.parent in found:
            found.add(decision.number)
    return tuple(sorted(found))
