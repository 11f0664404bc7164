"""Errors of the server, users, projects, resources, remotes and the configuration."""

from __future__ import annotations

from cleveragents.core.errors.families import Conflict, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "AlreadyThere",
    "ConfigurationError",
    "ConversationBusy",
    "EngineUnavailable",
    "InvalidName",
    "InvalidResource",
    "KeyReused",
    "NotAllowed",
    "NotAuthenticated",
    "PortTaken",
    "RemoteHeld",
    "RemoteMoved",
    "RequestRefused",
    "RequestUnderWay",
    "ServerFailed",
    "ServerUnreachable",
    "StaleTurn",
    "StillUsed",
    "TooManyRequests",
    "UnknownConversation",
    "UnknownProject",
    "UnknownResource",
    "UnknownRule",
    "UnknownUser",
]


class InvalidName(InvalidRequest):
    """A name, a branch or an address is malformed."""

    message = "{name!r} is not a valid {what}; it should be {allowed}"
    what: str
    name: str
    allowed: str


class InvalidResource(InvalidRequest):
    """A project or a resource cannot be added, or cannot be used for this operation."""

    message = "cannot use {what} {name!r}: {problem}"
    what: str
    name: str
    problem: str


class UnknownUser(InvalidRequest):
    """There is no user or token with this name."""

    message = "there is no user or token {name!r}"
    name: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("user.list", text="List the users"),)


class UnknownProject(InvalidRequest):
    """There is no project with this name."""

    message = "there is no project {name!r}"
    name: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("project.list", text="List the projects"),)


class UnknownResource(InvalidRequest):
    """There is no resource with this name."""

    message = "there is no resource {name!r}"
    name: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("resource.list", text="List the resources"),)


class UnknownRule(InvalidRequest):
    """There is no approval rule with this id."""

    message = "there is no rule {rule_id!r}"
    rule_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("policy.list", text="List the rules"),)


class UnknownConversation(InvalidRequest):
    """There is no conversation with this id."""

    message = "there is no session {conversation_id!r}"
    conversation_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("session.list", text="List the sessions"),)


class ConversationBusy(Conflict):
    """Another turn of the conversation runs; a conversation has one turn at a time."""

    message = "session {conversation_id} is busy: turn {turn} is running; wait for it, or stop it"
    exit_code = 75
    conversation_id: str
    turn: int


class StaleTurn(Conflict):
    """Another process continued the turn, so a write of this process was refused."""

    message = "session {conversation_id}: another process continued turn {turn}; the write was refused"
    conversation_id: str
    turn: int


class AlreadyThere(InvalidRequest):
    """An object with this name already exists."""

    message = "{what} {name!r} already exists; remove it first, or choose another name"
    what: str
    name: str


class StillUsed(Conflict):
    """The object cannot be removed, because it is still in use."""

    message = "{what} {name!r} is still in use: {by}"
    exit_code = 1
    what: str
    name: str
    by: str


class ChangedMeanwhile(Conflict):
    """Files to trust changed after they were shown."""

    message = "changed after you saw them: {files}; review them again"
    files: str


class NotAuthenticated(InvalidRequest):
    """The request has no valid token."""

    message = "the server needs a valid token; {remedy}"
    exit_code = 1
    remedy: str
    remedies: tuple[Remedy, ...] = ()


class NotAllowed(InvalidRequest):
    """The role of the user does not allow the operation."""

    message = "the role {needed} is required, and {name} has the role {role}; ask an admin to change it"
    exit_code = 1
    name: str
    role: str
    needed: str


class KeyReused(InvalidRequest):
    """An idempotency key was reused for a different request."""

    message = "idempotency key {key!r} was used for another request; use a new key for each request"
    key: str


class RequestUnderWay(Conflict):
    """A request with the same idempotency key is still running."""

    message = "the request with idempotency key {key!r} is still running; try again later"
    key: str


class PortTaken(Unavailable):
    """The server cannot listen on its address."""

    message = "cannot listen on {address}: {problem}"
    exit_code = 1
    address: str
    problem: str
    remedies: tuple[Remedy, ...] = ()


class TooManyRequests(Unavailable):
    """The client exceeded the request rate of the server."""

    message = "too many requests; try again in {seconds:.0f} s"
    seconds: float


class ServerUnreachable(Unavailable):
    """No server answers at the configured URL."""

    message = (
        "no server answers at {url}: {problem}; check that it runs, or pass --server local to work without it"
    )
    url: str
    problem: str


class ServerFailed(Conflict):
    """The server answered with an error that this version does not know."""

    message = "the server answered: {problem}"
    exit_code = 1
    problem: str
    code: str
    status: int
    remedies: tuple[Remedy, ...] = ()


class EngineUnavailable(Unavailable):
    """The job engine does not answer."""

    message = "cannot reach the job engine {engine}: {problem}"
    engine: str
    problem: str


class RemoteMoved(Conflict):
    """The branch of a remote moved; nothing was pushed."""

    message = "{branch} of {location} moved; nothing was pushed, apply the plan again to merge with it"
    location: str
    branch: str


class RemoteHeld(RemoteMoved):
    """Another push, running or crashed, holds the lock on the branch; nothing was pushed."""

    message = (
        "another push has locked {branch} of {location} ({problem}); nothing was pushed, apply the plan again"
    )
    problem: str


class RequestRefused(InvalidRequest):
    """The request contradicts itself, or asks for something impossible.

    `where` names the field in the API, for example `limits.usd`.
    """

    message = "invalid request: {problem}"
    problem: str
    where: str | None = None
    remedies: tuple[Remedy, ...] = ()


class ConfigurationError(InvalidRequest):
    """A setting is unknown, malformed or out of range."""

    message = "{source}: {problem}"
    source: str
    problem: str
    remedies: tuple[Remedy, ...] = ()
