"""Git remotes as resources of plans: how a plan names one.

A plan that works on a directory names its path. One that works on a remote names address and branch, and no
path: every machine has a mirror of its own, somewhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.access.model.project import (
    Resource,
    ResourceKind,
    ensure_branch,
    ensure_remote,
    ensure_safe_branch,
    ensure_safe_remote,
)

__all__ = [
    "SCHEME",
    "TO_BRANCH",
    "RemoteAddress",
    "branch_of",
    "new_branch",
    "remote_of",
    "resource_of",
]

TO_BRANCH = "to_branch"
"""Where a plan's request says which new branch its result is pushed to."""

SCHEME = "git+"
"""How a plan's resource begins that is a remote."""

_HEADS = "refs/heads/"
_PLAN = "{plan}"


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
