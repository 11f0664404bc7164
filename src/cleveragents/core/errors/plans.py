"""Plans, their moves and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.changesets import PlanError
from cleveragents.core.errors.families import Conflict, InvalidRequest
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "ActorAsks",
    "AmbiguousPlan",
    "CallDenied",
    "IllegalPlanMove",
    "NeedsHuman",
    "PlanFailed",
    "RethinkNeeded",
    "StalePlan",
    "TreeTooLarge",
    "UnknownCheckpoint",
    "UnknownDecision",
    "UnknownFile",
    "UnknownPlan",
]


@dataclass(eq=False)
class UnknownPlan(InvalidRequest):
    """No plan of that id exists in this store."""

    message = "there is no plan {plan_id!r}"
    plan_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.list", text="List the plans"),)


@dataclass(eq=False)
class AmbiguousPlan(InvalidRequest):
    """A shortened id fits several plans."""

    plan_id: str
    matches: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.plan_id!r} fits several plans: {', '.join(self.matches)}; write more of the id"


@dataclass(eq=False)
class IllegalPlanMove(InvalidRequest):
    """The state machine of a plan has no such move."""

    message = "plan {plan_id} is {standing} and cannot become {wanted}"
    plan_id: str
    standing: str
    wanted: str


@dataclass(eq=False)
class TreeTooLarge(PlanError):
    """The plan may have no further sub-plan: it lies too deep, or has too many."""


@dataclass(eq=False)
class CallDenied(PlanError):
    """A person was asked whether a call may be made, and said no."""


@dataclass(eq=False)
class StalePlan(Conflict):
    """Somebody else moved the plan since it was read."""

    message = "plan {plan_id} is no longer at version {version}; nothing was changed, look again and decide"
    plan_id: str
    version: int


@dataclass(eq=False)
class NeedsHuman(Conflict):
    """The plan goes no further without a person's decision."""

    message = "plan {plan_id} waits for you: {what}"
    exit_code = 3

    plan_id: str
    what: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class ActorAsks(NeedsHuman):
    """An actor asks a person. `question_id` names the question for good: an answer is to that one alone."""

    question_id: str = ""
    choices: tuple[str, ...] = ()


@dataclass(eq=False)
class PlanFailed(Conflict):
    """The plan ended with an error, which it carries."""

    message = "plan {plan_id} failed: {problem}"
    exit_code = 1

    plan_id: str
    problem: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class RethinkNeeded(Conflict):
    """What the plan came to shows that it was decided wrongly: it goes back to Strategize by itself."""

    message = "plan {plan_id} is to be thought through again: {findings}"

    plan_id: str
    findings: str


@dataclass(eq=False)
class UnknownDecision(InvalidRequest):
    """The plan has no such decision."""

    message = "plan {plan_id} has no decision {number}; it has {count}"
    plan_id: str
    number: int
    count: int

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.tree", self.plan_id, text="List its decisions"),) if self.count else ()


@dataclass(eq=False)
class UnknownFile(InvalidRequest):
    """The plan changed no such file."""

    message = "plan {plan_id} changed no file {path!r}; its diff lists the files it changed"
    plan_id: str
    path: str


@dataclass(eq=False)
class UnknownCheckpoint(InvalidRequest):
    """The plan has no such checkpoint."""

    message = "plan {plan_id} has no checkpoint {checkpoint}"
    plan_id: str
    checkpoint: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.log", self.plan_id, text="List its checkpoints"),)
