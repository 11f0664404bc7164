"""Projects and resources: on which repositories the users of a server may run plans.

A resource is a directory of the server's machine, or a git remote that workers on any machine can reach.
Somebody may name one, but never a path or an address of their own: what a request can say is a name.

Git remotes as resources of plans: how a plan names one.

A plan that works on a directory names its path. One that works on a remote names address and branch, and no
path: every machine has a mirror of its own, somewhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from urllib.parse import urlsplit

from cleveragents.access.model.user import Role
from cleveragents.core.errors import InvalidName

__all__ = [
    "DEFAULT_PROJECT",
    "SCHEME",
    "TO_BRANCH",
    "Member",
    "Project",
    "RemoteAddress",
    "Resource",
    "ResourceKind",
    "branch_of",
    "ensure_branch",
    "ensure_name",
    "ensure_remote",
    "ensure_safe_branch",
    "ensure_safe_remote",
    "is_name",
    "new_branch",
    "remote_of",
    "resource_of",
]


DEFAULT_PROJECT = "default"
"""The project of plans that name none. It always exists."""
_SHOWN = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")
# No host or account begins with a dash: programs that are given one would take it for an option.
_REMOTE = re.compile(
    r"(https|ssh|git|file)://(?!-|[^/]*@-)[^\s\x00-\x1f]+"
    r"|(?!-)[A-Za-z0-9_.-]+@(?!-)[A-Za-z0-9.-]+:(?!-)[^\s\x00-\x1f]+"
)

TO_BRANCH = "to_branch"
"""Where a plan's request says which new branch its result is pushed to."""

SCHEME = "git+"
"""How a plan's resource begins that is a remote."""
_HEADS = "refs/heads/"
_PLAN = "{plan}"


class ResourceKind(str, Enum):
    """Where a resource is: a directory of this machine, or a git repository elsewhere."""

    DIRECTORY = "directory"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Project:
    """Repositories that belong together. No more than `max_parallel` jobs of it run at once, anywhere."""

    name: str
    description: str
    created_at: datetime
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A user in a project, by name, with the role they have there."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Resource:
    """A repository that plans may run on. `location` is a path or an address; `branch` is what plans on a
    remote begin with, and where they are applied to; `home` names the state directory on whose machine a
    directory is."""

    name: str
    project: str
    kind: ResourceKind
    location: str
    created_at: datetime
    branch: str | None = None
    home: str | None = None


def is_name(text: str) -> bool:
    """Whether a project or a resource can have this name: short, lower case, of letters, digits and `._-`."""
    return _NAME.fullmatch(text) is not None


def ensure_name(what: str, name: str) -> None:
    """`InvalidName` unless a project or a resource can have this name."""
    if not is_name(name):
        raise InvalidName(what, _short(name), "letters, digits and ._-, in lower case, at most 64 of them")


def ensure_branch(branch: str) -> None:
    """`InvalidName` unless git takes it for the name of a branch, wherever that is said."""
    ensure_safe_branch(branch)
    if branch == "HEAD" or branch.startswith("refs/"):  # guard: else nobody can push to another branch
        raise InvalidName("branch", branch, "a name alone, neither HEAD nor with refs/ before it")
    parts = branch.split("/")
    if any(part.startswith(".") or part.endswith(".lock") for part in parts):  # guard: git has no such branch
        raise InvalidName("branch", branch, "names between slashes that do not begin with . or end in .lock")


def ensure_safe_branch(branch: str) -> None:
    """`InvalidName` if git could take it for something else, such as an option; for what is kept already."""
    wrong = ".." in branch or "//" in branch or branch.endswith((".lock", "/", "."))
    if wrong or not _BRANCH.fullmatch(branch):  # guard: it is handed to git
        raise InvalidName("branch", _short(branch), "letters, digits and _./+-, as git allows them")


def ensure_remote(location: str) -> None:
    """`InvalidName` unless it is an address that git asks over the network or in a file, and people can read;
    or if there is a password in it, which everybody would see who may look at a plan."""
    ensure_safe_remote(location)
    if location.startswith("file://") and not location.startswith("file:///"):
        raise InvalidName(
            "remote", _short(location), "a file:// address with a whole path: file:///srv/x.git"
        )
    if not location.isprintable():  # guard: it would be shown as another than it is
        raise InvalidName("remote", _short(location), "an address without invisible characters")


def ensure_safe_remote(location: str) -> None:
    """`InvalidName` if git would run a program for it, or it holds a password; for what is kept already."""
    if not _REMOTE.fullmatch(location) or "::" in location:  # guard: ext::… runs a program
        allowed = "https://…, ssh://…, git://…, file:///… or user@host:path"
        raise InvalidName("remote", _short(location), allowed)
    _ensure_no_secret(location)


def _short(text: str) -> str:
    """As a line has room for it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _ensure_no_secret(location: str) -> None:
    scheme, _, rest = location.partition("://")
    try:
        parts = urlsplit(location) if rest else None
    except ValueError:
        raise InvalidName("remote", scheme, "an address that can be read as a URL") from None
    if parts is None or "@" not in parts.netloc:
        return
    name, secret = parts.username, parts.password
    # Over ssh a name alone is the account; elsewhere it is as good as a password, as tokens are given so.
    if secret is not None or (name is not None and scheme != "ssh"):  # guard: it would be shown and logged
        place = f"{scheme}://{parts.netloc.rpartition('@')[2]}"
        allowed = "without name and password, because all users see it; use ssh, or a credential helper"
        raise InvalidName("remote", place, allowed)


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """A repository elsewhere, and the branch that plans begin with and are applied to."""

    url: str
    branch: str

    @property
    def ref(self) -> str:
        return f"{_HEADS}{self.branch}"

    @property
    def shown(self) -> str:
        """The address for people: who logs in, and with what, is not theirs to read."""
        scheme, found, rest = self.url.partition("://")
        if not found:
            return self.url
        host, slash, path = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"

    def __str__(self) -> str:
        return f"{SCHEME}{self.url}#{self.branch}"


def remote_of(resource: str) -> RemoteAddress | None:
    """What a plan's resource names, if it is a remote; None for a directory. `InvalidName`."""
    if not resource.startswith(SCHEME):
        return None
    url, _, branch = resource.removeprefix(SCHEME).rpartition("#")
    ensure_safe_remote(url)
    ensure_safe_branch(branch)
    return RemoteAddress(url, branch)


def branch_of(ref: str) -> str:
    """The branch that a ref is of."""
    return ref.removeprefix(_HEADS)


def new_branch(asked: str, plan_id: str) -> str:
    """The branch that is meant: `{plan}` in it stands for the plan's id. `InvalidName`."""
    branch = asked.replace(_PLAN, plan_id)
    ensure_branch(branch)
    return branch


def resource_of(resource: Resource) -> str:
    """What a plan that runs on it has for its `resource`: a path, or `git+ADDRESS#BRANCH`. `InvalidName`."""
    if resource.kind is ResourceKind.DIRECTORY:
        return resource.location
    address = RemoteAddress(resource.location, resource.branch or "")
    ensure_remote(address.url)
    ensure_branch(address.branch)
    return str(address)
