"""Where plans are kept, and what belongs to them: tool calls, checks, reviews.

What is seen of a plan while it runs, for those who watch it from elsewhere.

When the calls of a tree of plans ran: tools' and models', of every plan of it.

Where actions come from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from cleveragents.access.model.project import DEFAULT_PROJECT
from cleveragents.access.model.user import ProjectScope
from cleveragents.changes.model.review import Review
from cleveragents.core.actions.model import Action, CheckRun
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.policy import Isolation
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Plan, PlanState, Standing
from cleveragents.storage.answers import Claim

__all__ = [
    "ActionListing",
    "ActionOrigin",
    "ActionStore",
    "CallStore",
    "CallTimes",
    "CheckStore",
    "NewPlan",
    "OutputPiece",
    "PlanFacts",
    "PlanOutput",
    "PlanStore",
    "ReviewStore",
    "Run",
    "StoredAction",
    "TreeCalls",
    "TreeLimits",
]


@dataclass(frozen=True, slots=True)
class NewPlan:
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
    """What a move changes besides the standing; what is None stays, except that a move clears error and
    what was waited for unless it says them. Of two isolations the weaker one is kept."""

    strategy: JsonValue = None
    waiting_for: JsonValue = None
    error: str | None = None
    job_id: str | None = None
    isolation: Isolation | None = None


class PlanStore(Protocol):
    """Plans. Every method is one atomic step, from any thread and process, kept with its event."""

    def create(self, new: NewPlan, *, now: datetime, claim: Claim | None = None) -> Plan:
        """A plan at `action/queued`; with a claim, kept as what was made for that request.
        `RequestUnderWay` when somebody took the claim over: then there is none. `UnknownProject`."""
        ...

    def spawn(
        self, parent: Plan, new: NewPlan, key: str, limits: TreeLimits, *, now: datetime, fence: Fence
    ) -> Plan:
        """A sub-plan at `action/queued`; the one that is known by the key already, if there is one.

        One step with the counting: `TreeTooLarge`. Only for a parent that is being worked on by whoever has
        its job: `StalePlan`, `StaleFence`.
        """
        ...

    def children(self, plan_id: str) -> Sequence[Plan]:
        """Its sub-plans, in the order in which they were made."""
        ...

    def children_of(self, plan_ids: Collection[str]) -> Mapping[str, Sequence[Plan]]:
        """The same of each of these that has any, in one question."""
        ...

    def get(self, plan_id: str) -> Plan:
        """`UnknownPlan`."""
        ...

    def find(self, beginning: str, *, scope: ProjectScope = None) -> Plan:
        """The one plan in these projects whose id begins (or ends) so. `UnknownPlan`, `AmbiguousPlan`."""
        ...

    def list(
        self,
        *,
        states: Collection[PlanState] = (),
        resource: str | None = None,
        limit: int = 100,
        after: str | None = None,
        newest_first: bool = False,
        scope: ProjectScope = None,
    ) -> Sequence[Plan]:
        """The plans of these projects by id, in that order, those after that id, in any of the states (all,
        if none is named)."""
        ...

    def move(
        self,
        plan: Plan,
        wanted: Standing,
        facts: PlanFacts | None = None,
        *,
        now: datetime,
        fence: Fence | None = None,
    ) -> Plan:
        """The plan in its new standing, provided that nobody moved it since `plan` was read, and that whoever
        moves it for a job still has that job.

        `IllegalPlanMove`, `StalePlan`, `StaleFence`; then nothing changed.
        """
        ...

    def delete(self, plan: Plan, *, now: datetime, claim: Claim | None = None) -> None:
        """Forgets the plan, its sub-plans and all that belongs to them, but for what the audit log says; with
        a claim, also that it was made for that request: `RequestUnderWay` when somebody took the claim over.
        `StalePlan`; `PlanError` while one of them runs."""
        ...


class CallStore(Protocol):
    """Tool calls of plans, numbered from 1 without a gap; every method is one atomic step."""

    def add(
        self,
        plan_id: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str | None,
        state: CallState,
        now: datetime,
        digest: str | None = None,
    ) -> ToolCall:
        """The next call; `digest` names the exact arguments that a person is asked to approve."""
        ...

    def move(
        self,
        call: ToolCall,
        state: CallState,
        *,
        now: datetime,
        changeset_id: str | None = None,
        result: JsonValue = None,
        error: str | None = None,
    ) -> ToolCall:
        """The call in its new state, provided it still is in the one it was read in; else `StalePlan`."""
        ...

    def answer(
        self, plan_id: str, number: int, approval: str, *, now: datetime, by: str | None = None
    ) -> ToolCall:
        """`granted` or `denied`, for a call that asked; the first answer stays. The event says who gave it,
        if that is known."""
        ...

    def of_plan(self, plan_id: str) -> Sequence[ToolCall]:
        """All calls, in order."""
        ...

    def of_step(self, plan_id: str, step: str | None) -> Sequence[ToolCall]:
        """The calls that were added for the step, in order; what it costs does not depend on the others."""
        ...


class CheckStore(Protocol):
    """What checks said."""

    def record(self, run: CheckRun) -> None: ...

    def of_plan(self, plan_id: str) -> Sequence[CheckRun]:
        """Oldest first."""
        ...


class ReviewStore(Protocol):
    """What the reviewer left out of a plan's result."""

    def set(self, review: Review, *, now: datetime) -> None:
        """Replaces an earlier verdict on the same subject."""
        ...

    def of_plan(self, plan_id: str) -> Sequence[Review]: ...


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
class Run:
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
    run: Run | None = None


class TreeCalls(Protocol):
    """Reads the calls of all plans of a tree at one moment."""

    def of_tree(self, root_id: str) -> Sequence[CallTimes]:
        """In no order. Left out is what nobody knows the end of: calls that were lost with their worker."""
        ...


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


class ActionStore(Protocol):
    """The user's own actions, by name. Every method is one atomic step, from any thread and process."""

    def put(self, name: str, document: str, *, replace: bool = False) -> None:
        """Keeps it. `ActionExists` unless `replace`."""
        ...

    def get(self, name: str) -> StoredAction | None: ...

    def list(self) -> Sequence[StoredAction]:
        """All of them, by name."""
        ...

    def delete(self, name: str) -> bool:
        """Whether there was one."""
        ...
