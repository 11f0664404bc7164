"""The records of plans: new plans, moves, output, call times and actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

from msgspec import Struct, field

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


class PlanDraft(Struct, frozen=True):
    """A plan to create."""

    goal: str
    action: str
    resource: str
    request: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    project: str = DEFAULT_PROJECT


class TreeLimits(Struct, frozen=True):
    """The limits of a tree of plans: `depth` below the root, `fan_out` sub-plans of one plan."""

    depth: int = 4
    fan_out: int = 32


class PlanFacts(Struct, frozen=True):
    """The facts that a move stores besides phase and state. A field that is None keeps the stored value,
    except that `error` and `waiting_for` are cleared. The weaker of the stored and the new isolation is kept.
    An empty answer or job id removes the stored one.
    """

    strategy: JsonValue = None
    waiting_for: JsonValue = None
    error: str | None = None
    job_id: str | None = None
    isolation: Isolation | None = None
    answer: str | None = None


class OutputPiece(Struct, frozen=True):
    """A numbered piece of a plan's output.

    `kind` is one of: progress (lines for people), output (of commands), model (text of actors as it arrives),
    node (a JSON object with the running `actor` and `node`). A node's `event` is `thinking`, with the model
    in `text`; `tool`, with the `tool` and its `arguments`; `tool_done`, with the outcome of the call; or, in
    a conversation, `plan`, with the id of a `plan` that it started or corrected.
    """

    plan_id: str
    number: int
    kind: str
    text: str
    written_at: datetime


class PlanOutput(Protocol):
    """The output of plans, in pieces numbered from 1 for each plan. Every method is atomic.

    The output of a plan is bounded: beyond the limit, its oldest pieces are dropped. Numbers are not reused.
    Secrets are masked before anything is stored.
    """

    def append(self, plan_id: str, pieces: Sequence[tuple[str, str]], *, now: datetime) -> None:
        """Append these pieces, each a kind and a text, in order."""
        ...

    def read(self, plan_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[OutputPiece]:
        """Return the pieces with a number above `after`, in order."""
        ...

    def last(self, plan_id: str) -> int:
        """Return the number of the last piece; 0 if there is none."""
        ...


class PlanJobRun(Struct, frozen=True):
    """The times of the current job of a plan: it can be claimed from `since` on, and its last heartbeat was
    at `seen`.
    """

    since: datetime
    seen: datetime


class CallTimes(Struct, frozen=True):
    """The times of one call. If the call needed approval, `ran_seconds` is its duration after the approval. A
    call without an end is running or was interrupted; `run`, the current job of the plan, distinguishes the
    two.
    """

    began: datetime
    ended: datetime | None = None
    asked: bool = False
    ran_seconds: float = 0.0
    run: PlanJobRun | None = None


class ActionOrigin(str, Enum):
    """The origin of an action. If several actions have the same name, the action with the first origin is
    used.
    """

    BUILTIN = "builtin"
    USER = "user"
    REPOSITORY = "repository"


class StoredAction(Struct, frozen=True):
    """An action as the user stored it, in YAML."""

    name: str
    document: str
    created_at: datetime


class ActionListing(Struct, frozen=True):
    """An action that was found. `problem` is the reason why it cannot be used; `trusted`: it may run."""

    name: str
    origin: ActionOrigin
    source: str
    trusted: bool
    action: Action | None = None
    problem: str | None = None
