"""Decisions: what was asked, what was chosen, and why. They form a tree; nothing in it is ever erased."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from cleveragents.core.json_value import JsonValue

__all__ = ["Alternative", "Decision", "DecisionState", "NewDecision"]


class DecisionState(str, Enum):
    """Whether it still holds."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Alternative:
    """What could have been chosen, and why it was not."""

    choice: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NewDecision:
    """A decision to be kept. `parent` is the number of the decision that led to it.

    `confidence` is between 0 and 1; None where nobody said. `checkpoint` is the number of the tool call
    before which it was made: what going back to it restores. `context` is what was known then.
    """

    question: str
    choice: str
    rationale: str = ""
    alternatives: tuple[Alternative, ...] = ()
    confidence: float | None = None
    parent: int | None = None
    made_by: str = ""
    checkpoint: int | None = None
    context: JsonValue = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision as the store holds it; `number` counts from 1 within its plan."""

    plan_id: str
    number: int
    made: NewDecision
    state: DecisionState
    created_at: datetime
