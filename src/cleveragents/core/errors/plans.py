"""Plans, their moves and what they wait for.

Actions, policies and trust.

Plans and their changesets.

Jobs, their workers and their handlers.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Conflict, Fault, InvalidRequest
from cleveragents.core.errors.remedy import OptionValue, Remedy

__all__ = [
    "ActionExists",
    "ActorAsks",
    "AmbiguousChangeset",
    "AmbiguousPlan",
    "CallDenied",
    "ChangesetClosed",
    "DuplicateKey",
    "ForeignChangeset",
    "HandlerFailed",
    "IllegalJobMove",
    "IllegalPlanMove",
    "InvalidAction",
    "InvalidArguments",
    "InvalidGoals",
    "JobAlreadyEnded",
    "NeedsHuman",
    "NetworkNotDenied",
    "NoActiveChangeset",
    "NotIsolated",
    "NotTrusted",
    "PlanError",
    "PlanFailed",
    "PolicyDenied",
    "RethinkNeeded",
    "StaleFence",
    "StalePlan",
    "TreeTooLarge",
    "UnknownAction",
    "UnknownChangeset",
    "UnknownCheckpoint",
    "UnknownDecision",
    "UnknownFile",
    "UnknownJob",
    "UnknownJobKind",
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
class PlanError(InvalidRequest):
    """The plan cannot do what was asked in its present situation."""

    message = "plan {plan_id}: {reason}"
    plan_id: str
    reason: str
    remedies: tuple[Remedy, ...] = ()


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


@dataclass(eq=False)
class UnknownAction(InvalidRequest):
    """No action of that name exists here."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"there is no action {self.name!r}{hint}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("action.list", text="List the actions"),)


@dataclass(eq=False)
class ActionExists(InvalidRequest):
    """An action of that name exists already."""

    message = "there is an action {name!r} already; delete it first, or replace it"
    name: str


@dataclass(eq=False)
class InvalidAction(InvalidRequest):
    """The YAML is not an action. Every mistake is named, with its line, all at once."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is not a valid action: {'; '.join(self.problems)}"


@dataclass(eq=False)
class InvalidArguments(InvalidRequest):
    """The arguments do not fit the action's."""

    message = "action {action}: {problem}"
    action: str
    problem: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("action.show", options={"name": self.action}, text="Show its arguments"),)


@dataclass(eq=False)
class InvalidGoals(InvalidRequest):
    """The YAML is no list of goals. Every mistake is named, with its line, all at once."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is no list of goals that can be run: {'; '.join(self.problems)}"


@dataclass(eq=False)
class NotTrusted(Conflict):
    """Something that the repository brings along would run, and nobody has said that it may. `resource` is
    the repository's name for whoever does not know it by its path; `confirm` says that trusting it was asked
    for and not confirmed."""

    message = "{what} comes with the repository and is not trusted"
    exit_code = 3

    what: str
    path: str
    resource: str | None = None
    confirm: bool = False

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        options: dict[str, OptionValue] = {"force": True} if self.confirm else {}
        options |= {"path": self.path} if self.resource is None else {"resource": self.resource}
        return (Remedy("trust", options=options, text="Read it, then trust it"),)


@dataclass(eq=False)
class PolicyDenied(InvalidRequest):
    """The policy forbids it."""

    message = "{what} is denied by the policy ({profile}: {capability})"
    what: str
    profile: str
    capability: str


@dataclass(eq=False)
class NetworkNotDenied(PolicyDenied):
    """The policy denies the network, and a command could use it: nothing isolates commands here."""

    message = (
        "{what} cannot run: profile {profile} denies the network, and without bubblewrap the network cannot "
        "be denied; "
        "install bubblewrap, or choose a profile that does not deny the network, such as supervised"
    )


@dataclass(eq=False)
class NotIsolated(InvalidRequest):
    """Other people's plans are to be run, and nothing isolates their commands."""

    message = "commands of plans would not be isolated: {problem}; {remedy}"
    problem: str
    remedy: str


@dataclass(eq=False)
class NoActiveChangeset(PlanError):
    """A change was to be recorded, and no changeset is open."""

    reason: str = "no changeset is active; call start_changeset() first"


@dataclass(eq=False)
class AmbiguousChangeset(PlanError):
    """Several changesets are open and none is current here: filing the change would be a guess."""

    reason: str = "several changesets are active and none is current here"
    active: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"plan {self.plan_id}: {self.reason} ({', '.join(self.active)}); "
            "pass changeset=… to say which one is meant"
        )


@dataclass(eq=False)
class ForeignChangeset(PlanError):
    """A plan records only into changesets of its own."""

    message = "plan {plan_id}: {reason} ({changeset_id}); pass a handle of this plan"
    reason: str = "the changeset belongs to another plan"
    changeset_id: str = ""


@dataclass(eq=False)
class ChangesetClosed(InvalidRequest):
    """A closed changeset is immutable."""

    message = "changeset {changeset_id} is closed; start a new one to record more changes"
    changeset_id: str


@dataclass(eq=False)
class UnknownChangeset(InvalidRequest):
    """No changeset of that id exists in this store."""

    message = "there is no changeset {changeset_id!r}"
    changeset_id: str


@dataclass(eq=False)
class DuplicateKey(InvalidRequest):
    """An idempotency key came back with different content: a retry must repeat what it retries."""

    message = "key {key!r} was used before for something else; use a fresh key"
    key: str


@dataclass(eq=False)
class UnknownJob(InvalidRequest):
    """No job of that id exists in this store."""

    message = "there is no job {job_id!r}"
    job_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("job.list", text="List the jobs"),)


@dataclass(eq=False)
class UnknownJobKind(InvalidRequest):
    """No handler is registered for a job's kind."""

    kind: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"no handler for jobs of kind {self.kind!r} (known: {known})"


@dataclass(eq=False)
class IllegalJobMove(InvalidRequest):
    """The state machine of a job has no such move."""

    message = "job {job_id} is {state} and cannot become {wanted}"
    job_id: str
    state: str
    wanted: str


@dataclass(eq=False)
class JobAlreadyEnded(Conflict):
    """The job had ended before the request came; nothing was changed."""

    message = "job {job_id} already {state}; nothing was changed"
    exit_code = 1  # trying again will not help

    job_id: str
    state: str


@dataclass(eq=False)
class StaleFence(Conflict):
    """The job belongs to somebody else now: this worker lost its lease, and its write was refused."""

    message = (
        "job {job_id}: fencing token {fence} is out of date, another worker owns the "
        "job; the write was refused, stop working on it"
    )
    job_id: str
    fence: int


@dataclass(eq=False)
class HandlerFailed(Fault):
    """A job's handler raised; the job carries this as its durable error."""

    message = "the {kind} handler failed: {problem}"
    kind: str
    problem: str
