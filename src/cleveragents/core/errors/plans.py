"""Errors of plans, actions, policies, trust, changesets and jobs."""

from __future__ import annotations

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
    "ResultChanged",
    "RethinkNeeded",
    "StaleFence",
    "StaleFile",
    "StalePlan",
    "TreeTooLarge",
    "UnknownAction",
    "UnknownChangeset",
    "UnknownCheckpoint",
    "UnknownComment",
    "UnknownDecision",
    "UnknownFile",
    "UnknownJob",
    "UnknownJobKind",
    "UnknownPlan",
]


class UnknownPlan(InvalidRequest):
    """The store has no plan with this id."""

    message = "there is no plan {plan_id!r}"
    plan_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.list", text="List the plans"),)


class AmbiguousPlan(InvalidRequest):
    """An abbreviated id matches several plans."""

    plan_id: str
    matches: tuple[str, ...] = ()

    def __str__(self) -> str:
        matches = ", ".join(self.matches)
        return f"{self.plan_id!r} matches several plans: {matches}; use more characters of the id"


class IllegalPlanMove(InvalidRequest):
    """The state machine of a plan does not allow this transition."""

    message = "plan {plan_id} is {standing} and cannot become {wanted}"
    plan_id: str
    standing: str
    wanted: str


class PlanError(InvalidRequest):
    """The plan cannot do this in its current state."""

    message = "plan {plan_id}: {reason}"
    plan_id: str
    reason: str
    remedies: tuple[Remedy, ...] = ()


class TreeTooLarge(PlanError):
    """The plan cannot have another sub-plan: it is nested too deeply, or already has too many sub-plans."""


class CallDenied(PlanError):
    """A person denied the call."""


class StalePlan(Conflict):
    """The plan changed after it was read."""

    message = "plan {plan_id} is no longer at version {version}; nothing was changed, reload it and try again"
    plan_id: str
    version: int


class ResultChanged(Conflict):
    """The result of the plan is not the one that was seen or requested."""

    message = (
        "the result of plan {plan_id} has changed since you saw it; nothing was applied, look at it again"
    )
    exit_code = 3

    plan_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.diff", self.plan_id, text="Show the new diff"),)


class StaleFile(Conflict):
    """The file has changed since the lines to comment on were seen."""

    message = "{path} has changed since you saw it: reload the diff"
    plan_id: str
    path: str


class NeedsHuman(Conflict):
    """The plan waits for a person."""

    message = "plan {plan_id} waits for you: {what}"
    exit_code = 3

    plan_id: str
    what: str
    remedies: tuple[Remedy, ...] = ()


class ActorAsks(NeedsHuman):
    """An actor asks a person a question. `question_id` identifies the question; an answer applies only to
    that question.
    """

    question_id: str = ""
    choices: tuple[str, ...] = ()


class PlanFailed(Conflict):
    """The plan ended with an error."""

    message = "plan {plan_id} failed: {problem}"
    exit_code = 1

    plan_id: str
    problem: str
    remedies: tuple[Remedy, ...] = ()


class RethinkNeeded(Conflict):
    """The result shows that the strategy was wrong. The plan returns to the Strategize phase without waiting
    for a person.
    """

    message = "plan {plan_id} needs a new strategy: {findings}"

    plan_id: str
    findings: str


class UnknownDecision(InvalidRequest):
    """The plan has no decision with this number."""

    message = "plan {plan_id} has no decision {number}; it has {count}"
    plan_id: str
    number: int
    count: int

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.tree", self.plan_id, text="List the decisions"),) if self.count else ()


class UnknownComment(InvalidRequest):
    """The plan has no comment with this number."""

    message = "plan {plan_id} has no comment {number}; it has {count}"
    plan_id: str
    number: int
    count: int

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.comments", self.plan_id, text="List the comments"),) if self.count else ()


class UnknownFile(InvalidRequest):
    """The plan did not change this file."""

    message = "plan {plan_id} did not change {path!r}; its diff lists the changed files"
    plan_id: str
    path: str


class UnknownCheckpoint(InvalidRequest):
    """The plan has no call with this number, and so no checkpoint before it."""

    message = "plan {plan_id} has no call {checkpoint}"
    plan_id: str
    checkpoint: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("plan.log", self.plan_id, text="List the calls"),)


class UnknownAction(InvalidRequest):
    """There is no action with this name."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"there is no action {self.name!r}{hint}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("action.list", text="List the actions"),)


class ActionExists(InvalidRequest):
    """An action with this name already exists."""

    message = "action {name!r} already exists; delete it first, or replace it"
    name: str


class InvalidAction(InvalidRequest):
    """The YAML is not a valid action. `problems` lists every mistake with its line."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is not a valid action: {'; '.join(self.problems)}"


class InvalidArguments(InvalidRequest):
    """The arguments do not match those that the action declares."""

    message = "action {action}: {problem}"
    action: str
    problem: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (
            Remedy("action.show", options={"name": self.action}, text="Show the arguments of the action"),
        )


class InvalidGoals(InvalidRequest):
    """The YAML is not a valid list of goals. `problems` lists every mistake with its line."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is not a valid list of goals: {'; '.join(self.problems)}"


class NotTrusted(Conflict):
    """A file of the repository would run code and is not trusted.

    `resource` is the name of the repository for clients that do not know its path. `confirm` is true if a
    person asked to trust the file but has not confirmed it.
    """

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
        return (Remedy("trust", options=options, text="Read the file, then trust it"),)


class PolicyDenied(InvalidRequest):
    """The policy denies the operation."""

    message = "{what} is denied by the policy ({profile}: {capability})"
    what: str
    profile: str
    capability: str


class NetworkNotDenied(PolicyDenied):
    """The policy denies the network, and a command could use it because commands are not isolated."""

    message = (
        "{what} cannot run: profile {profile} denies the network, and without bubblewrap the network cannot "
        "be denied; "
        "install bubblewrap, or choose a profile that does not deny the network, such as supervised"
    )


class NotIsolated(InvalidRequest):
    """A server or worker would run the commands of other users' plans without isolation."""

    message = "commands of plans would run without isolation: {problem}; {remedy}"
    problem: str
    remedy: str


class NoActiveChangeset(PlanError):
    """A change cannot be recorded: no changeset is open."""

    reason: str = "no changeset is active; call start_changeset() first"


class AmbiguousChangeset(PlanError):
    """Several changesets are open and none is current, so the changeset for a change is unknown."""

    reason: str = "several changesets are active, and none of them is current in this task"
    active: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"plan {self.plan_id}: {self.reason} ({', '.join(self.active)}); pass changeset=… to choose one"
        )


class ForeignChangeset(PlanError):
    """The changeset belongs to another plan."""

    message = "plan {plan_id}: {reason} ({changeset_id}); pass a handle of this plan"
    reason: str = "the changeset belongs to another plan"
    changeset_id: str = ""


class ChangesetClosed(InvalidRequest):
    """The changeset is closed and cannot be changed."""

    message = "changeset {changeset_id} is closed; start a new one to record more changes"
    changeset_id: str


class UnknownChangeset(InvalidRequest):
    """The store has no changeset with this id."""

    message = "there is no changeset {changeset_id!r}"
    changeset_id: str


class DuplicateKey(InvalidRequest):
    """An idempotency key was reused with different content."""

    message = "key {key!r} was used for different content; use a new key"
    key: str


class UnknownJob(InvalidRequest):
    """The store has no job with this id."""

    message = "there is no job {job_id!r}"
    job_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("job.list", text="List the jobs"),)


class UnknownJobKind(InvalidRequest):
    """No handler is registered for a job's kind."""

    kind: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"no handler for jobs of kind {self.kind!r} (known: {known})"


class IllegalJobMove(InvalidRequest):
    """The state machine of a job does not allow this transition."""

    message = "job {job_id} is {state} and cannot become {wanted}"
    job_id: str
    state: str
    wanted: str


class JobAlreadyEnded(Conflict):
    """The job ended before the request; nothing was changed."""

    message = "job {job_id} already {state}; nothing was changed"
    exit_code = 1  # trying again will not help

    job_id: str
    state: str


class StaleFence(Conflict):
    """This worker lost its lease on the job to another worker, so its write was refused."""

    message = (
        "job {job_id}: fencing token {fence} is out of date, another worker owns the job; "
        "the write was refused, stop working on it"
    )
    job_id: str
    fence: int


class HandlerFailed(Fault):
    """The handler of a job raised an exception; the job stores this error."""

    message = "the {kind} handler failed: {problem}"
    kind: str
    problem: str
