"""The server, its users, projects and workers.

What somebody asked for and cannot have, whoever asks and however.

Configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Conflict, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "AlreadyThere",
    "ConfigurationError",
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
    "StillUsed",
    "TooManyRequests",
    "UnknownProject",
    "UnknownResource",
    "UnknownUser",
]


@dataclass(eq=False)
class InvalidName(InvalidRequest):
    """A name, a branch or an address that cannot be one."""

    message = "{name!r} cannot be a {what}; it should be {allowed}"
    what: str
    name: str
    allowed: str


@dataclass(eq=False)
class InvalidResource(InvalidRequest):
    """A project or a resource that cannot be added, or not be used for this."""

    message = "{what} {name!r} will not do: {problem}"
    what: str
    name: str
    problem: str


@dataclass(eq=False)
class UnknownUser(InvalidRequest):
    """There is no such user, or no such token of theirs."""

    message = "there is no user or token {name!r}"
    name: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("user.list", text="List the users"),)


@dataclass(eq=False)
class UnknownProject(InvalidRequest):
    """There is no such project."""

    message = "there is no project {name!r}"
    name: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("project.list", text="List the projects"),)


@dataclass(eq=False)
class UnknownResource(InvalidRequest):
    """There is no such resource."""

    message = "there is no resource {name!r}"
    name: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("resource.list", text="List the resources"),)


@dataclass(eq=False)
class AlreadyThere(InvalidRequest):
    """Something of that name exists."""

    message = "there is a {what} {name!r} already; remove it first, or choose another name"
    what: str
    name: str


@dataclass(eq=False)
class StillUsed(Conflict):
    """It cannot be removed: something needs it."""

    message = "{what} {name!r} is still used: {by}"
    exit_code = 1
    what: str
    name: str
    by: str


@dataclass(eq=False)
class ChangedMeanwhile(Conflict):
    """Files that were to be trusted have another content than the one that was shown."""

    message = "not as it was shown: {files}; look at it again"
    files: str


@dataclass(eq=False)
class NotAuthenticated(InvalidRequest):
    """The server does not know who asks."""

    message = "the server wants a token that it knows: {remedy}"
    exit_code = 1
    remedy: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class NotAllowed(InvalidRequest):
    """Who asks may not do this."""

    message = "this needs the role {needed}, and {name} is {role}; an admin can change that"
    exit_code = 1
    name: str
    role: str
    needed: str


@dataclass(eq=False)
class KeyReused(InvalidRequest):
    """An idempotency key came with another request than before."""

    message = "the idempotency key {key!r} came with another request before; take a new one for each"
    key: str


@dataclass(eq=False)
class RequestUnderWay(Conflict):
    """The same request, with the same idempotency key, is being worked on."""

    message = "the request with the idempotency key {key!r} is still being worked on; ask again in a while"
    key: str


@dataclass(eq=False)
class PortTaken(Unavailable):
    """The server cannot listen where it should."""

    message = "cannot listen on {address}: {problem}"
    exit_code = 1
    address: str
    problem: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class TooManyRequests(Unavailable):
    """Somebody asks more often than the server allows."""

    message = "too many requests; try again in {seconds:.0f} s"
    seconds: float


@dataclass(eq=False)
class ServerUnreachable(Unavailable):
    """No server answers where one should be."""

    message = "no server answers at {url}: {problem}; look whether it runs, or work here with --server local"
    url: str
    problem: str


@dataclass(eq=False)
class ServerFailed(Conflict):
    """The server answered that it could not: what it said, with its own code."""

    message = "the server says: {problem}"
    exit_code = 1
    problem: str
    code: str
    status: int
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class EngineUnavailable(Unavailable):
    """The engine that runs jobs cannot be reached."""

    message = "the job engine {engine} cannot be reached: {problem}"
    engine: str
    problem: str


@dataclass(eq=False)
class RemoteMoved(Conflict):
    """The branch of a remote is no longer where it was; nothing was pushed."""

    message = "{branch} of {location} moved meanwhile; nothing was pushed, apply it again to merge with it"
    location: str
    branch: str


@dataclass(eq=False)
class RemoteHeld(RemoteMoved):
    """Another push to the branch is under way, or was when it died; nothing was pushed."""

    message = "another push holds {branch} of {location}; nothing was pushed, apply it again ({problem})"
    problem: str


@dataclass(eq=False)
class RequestRefused(InvalidRequest):
    """The request contradicts itself, or asks for what its subject does not have. `where` says in which of
    its fields, as the API calls them: `limits.usd`."""

    message = "this cannot be asked for: {problem}"
    problem: str
    where: str | None = None
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class ConfigurationError(InvalidRequest):
    """A setting is unknown, malformed or out of range."""

    message = "{source}: {problem}"
    source: str
    problem: str
    remedies: tuple[Remedy, ...] = ()
