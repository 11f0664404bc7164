"""Projects and resources: the repositories on which users of a server may run plans.

A resource is a directory of the server's machine, or a git remote that workers on any machine can reach. A
request contains the name of a resource, never a path or an address.

A plan stores its resource as a path, or as the address and branch of a remote. The path of a remote's mirror
is not stored, because it differs between machines.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum
from urllib.parse import urlsplit

from msgspec import Struct

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
"""The default project of plans. It always exists."""
_SHOWN = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")
# No host or account begins with a dash: a program would take it for an option.
_REMOTE = re.compile(
    r"(https|ssh|git|file)://(?!-|[^/]*@-)[^\s\x00-\x1f]+"
    r"|(?!-)[A-Za-z0-9_.-]+@(?!-)[A-Za-z0-9.-]+:(?!-)[^\s\x00-\x1f]+"
)

TO_BRANCH = "to_branch"
"""The field of a plan's request with the new branch for its result."""

SCHEME = "git+"
"""The prefix of a plan's resource that is a remote."""
_HEADS = "refs/heads/"
_PLAN = "{plan}"


class ResourceKind(str, Enum):
    """The kind of a resource: a directory of this machine, or a git repository elsewhere."""

    DIRECTORY = "directory"
    REMOTE = "remote"


class Project(Struct, frozen=True):
    """A group of repositories. At most `max_parallel` of its jobs run in parallel, on all machines."""

    name: str
    description: str
    created_at: datetime
    max_parallel: int | None = None


class Member(Struct, frozen=True):
    """A member of a project, by name, with their role."""

    name: str
    role: Role


class Resource(Struct, frozen=True):
    """A repository for plans. `location` is a path or an address; `branch` is the base and target of plans on
    a remote. For a directory, `home` is the state directory of its machine.
    """

    name: str
    project: str
    kind: ResourceKind
    location: str
    created_at: datetime
    branch: str | None = None
    home: str | None = None


def is_name(text: str) -> bool:
    """Return whether the name is valid for a project or resource: short, of lower-case letters, digits and
    `._-`.
    """
    return _NAME.fullmatch(text) is not None


def ensure_name(what: str, name: str) -> None:
    """Raise `InvalidName` unless the name is valid for a project or resource."""
    if not is_name(name):
        raise InvalidName(what, _short(name), "at most 64 lower-case letters, digits and ._-")


def ensure_branch(branch: str) -> None:
    """Raise `InvalidName` unless git accepts the name as a branch in every context."""
    ensure_safe_branch(branch)
    if branch == "HEAD" or branch.startswith("refs/"):  # guard: git would push to another ref
        raise InvalidName("branch", branch, "a branch name, not HEAD and without refs/")
    parts = branch.split("/")
    if any(part.startswith(".") or part.endswith(".lock") for part in parts):  # guard: git refuses these
        raise InvalidName("branch", branch, "a name whose parts do not begin with . or end in .lock")


def ensure_safe_branch(branch: str) -> None:
    """Raise `InvalidName` if git could read the name as something other than a branch, such as an option.
    Used for stored branches; `ensure_branch` is stricter.
    """
    wrong = ".." in branch or "//" in branch or branch.endswith((".lock", "/", "."))
    if wrong or not _BRANCH.fullmatch(branch):  # guard: it is passed to git
        raise InvalidName("branch", _short(branch), "letters, digits and _./+- in a form that git allows")


def ensure_remote(location: str) -> None:
    """Raise `InvalidName` unless the location is a git address over the network or of a file, in visible
    characters.

    An address with a password is refused: all users who may see a plan would see the password.
    """
    ensure_safe_remote(location)
    if location.startswith("file://") and not location.startswith("file:///"):
        raise InvalidName(
            "remote", _short(location), "a file:// address with an absolute path: file:///srv/x.git"
        )
    if not location.isprintable():  # guard: it would look like another address
        raise InvalidName("remote", _short(location), "an address without invisible characters")


def ensure_safe_remote(location: str) -> None:
    """Raise `InvalidName` if the address could make git run a program, or if it contains a password. Used for
    stored addresses; `ensure_remote` is stricter.
    """
    if not _REMOTE.fullmatch(location) or "::" in location:  # guard: ext::… runs a program
        allowed = "https://…, ssh://…, git://…, file:///… or user@host:path"
        raise InvalidName("remote", _short(location), allowed)
    _ensure_no_secret(location)


def _short(text: str) -> str:
    """Shorten the text for one line."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _ensure_no_secret(location: str) -> None:
    scheme, _, rest = location.partition("://")
    try:
        parts = urlsplit(location) if rest else None
    except ValueError:
        raise InvalidName("remote", scheme, "a valid URL") from None
    if parts is None or "@" not in parts.netloc:
        return
    name, secret = parts.username, parts.password
    # Over ssh a user name is the account; elsewhere it may be a token.
    if secret is not None or (name is not None and scheme != "ssh"):  # guard: it would be shown and logged
        place = f"{scheme}://{parts.netloc.rpartition('@')[2]}"
        allowed = (
            "an address without user name and password, because all users see it; "
            "use ssh or a credential helper"
        )
        raise InvalidName("remote", place, allowed)


class RemoteAddress(Struct, frozen=True):
    """A git repository elsewhere, and the branch that is the base and target of plans."""

    url: str
    branch: str

    @property
    def ref(self) -> str:
        return f"{_HEADS}{self.branch}"

    @property
    def shown(self) -> str:
        """The address for people, without credentials."""
        scheme, found, rest = self.url.partition("://")
        if not found:
            return self.url
        host, slash, path = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"

    def __str__(self) -> str:
        return f"{SCHEME}{self.url}#{self.branch}"


def remote_of(resource: str) -> RemoteAddress | None:
    """Return the remote of a plan's resource; None for a directory. Raises `InvalidName`."""
    if not resource.startswith(SCHEME):
        return None
    url, _, branch = resource.removeprefix(SCHEME).rpartition("#")
    ensure_safe_remote(url)
    ensure_safe_branch(branch)
    return RemoteAddress(url, branch)


def branch_of(ref: str) -> str:
    """Return the branch of a ref."""
    return ref.removeprefix(_HEADS)


def new_branch(asked: str, plan_id: str) -> str:
    """Return the branch name with `{plan}` replaced by the plan's id. Raises `InvalidName`."""
    branch = asked.replace(_PLAN, plan_id)
    ensure_branch(branch)
    return branch


def resource_of(resource: Resource) -> str:
    """Return the resource as plans store it: a path, or `git+ADDRESS#BRANCH`. Raises `InvalidName`."""
    if resource.kind is ResourceKind.DIRECTORY:
        return resource.location
    address = RemoteAddress(resource.location, resource.branch or "")
    ensure_remote(address.url)
    ensure_branch(address.branch)
    return str(address)
