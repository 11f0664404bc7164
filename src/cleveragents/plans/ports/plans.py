"""Where plans are kept, and what belongs to them: tool calls, checks, reviews.

What is seen of a plan while it runs, for those who watch it from elsewhere.

When the calls of a tree of plans ran: tools' and models', of every plan of it.

Where actions come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from cleveragents.access.model.project import DEFAULT_PROJECT
from cleveragents.core.actions.model import Action
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.policy import Isolation

__all__ = [
    "ActionListing",
    "ActionOrigin",
    "CallTimes",
    "OutputPiece",
    "PlanDraft",
    "PlanFacts",
    "PlanJobRun",
    "PlanOutput",
    "StoredAction",
    "TreeLimits",
]


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A plan to be made."""

    goal: str
    action: str
    resource: str
    request: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    project: str = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """How far a tree of plans may grow: `depth` below the root, `fan_out` sub-plans of one plan."""

    depth: int = 4
    fan_out: int = 32


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a move changes besides phase and state; what is None stays, except that a move clears error and
    what was waited for unless it says them. Of two isolations the weaker one is kept. An empty answer
    removes the old one."""

    strategy: JsonValue = None
    waiting_for: JsonValue = None
    error: str | None = None
    job_id: str | None = None
    isolation: Isolation | None = None
    answer: str | None = None


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


@dataclass(frozen=True, slots=True)
class PlanJobRun:
    """The job that works on a plan now: it was to be had from `since` on, and `seen` at work last."""

    since: datetime
    seen: datetime


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One call. Of one that asked for leave first, `ran_seconds` says how long it ran after that; one without
    an end is under way, or was interrupted: its plan's `run` tells, if there is one."""

    began: datetime
    ended: datetime | None = None
    asked: bool = False
    ran_seconds: float = 0.0
    run: PlanJobRun | None = None


class ActionOrigin(str, Enum):
    """Who brought an action. In this order: of two with one name the first counts."""

    BUILTIN = "builtin"
    USER = "user"
    REPOSITORY = "repository"


@dataclass(frozen=True, slots=True)
class StoredAction:
    """An action as the user gave it: YAML."""

    name: str
    document: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ActionListing:
    """An action that was found. `problem` says why it cannot be used; `trusted`, whether it may run."""

    name: str
    origin: ActionOrigin
    source: str
    trusted: bool
    action: Action | None = None
    problem: str | None = None
