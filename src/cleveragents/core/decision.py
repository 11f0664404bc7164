"""Decisions of an agent: the question, the choice and the reasons. They form a tree that only grows."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec import Struct

from cleveragents.core.json_value import JsonValue

__all__ = ["Alternative", "Decision", "DecisionState", "NewDecision"]


class DecisionState(str, Enum):
    """Whether a decision is still in effect."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"


class Alternative(Struct, frozen=True):
    """An option that was not chosen, and the reason."""

    choice: str
    reason: str = ""


class NewDecision(Struct, frozen=True):
    """A decision to store. `parent` is the number of the decision that led to this decision.

    `confidence` is between 0 and 1, or None if unknown. `checkpoint` is the number of the tool call before
    which the decision was made; returning to the decision restores that checkpoint. `context` is the
    information that was available for the decision.
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


class Decision(Struct, frozen=True):
    """A stored decision; `number` counts from 1 within its plan."""

    plan_id: str
    number: int
    made: NewDecision
    state: DecisionState
    created_at: datetime
