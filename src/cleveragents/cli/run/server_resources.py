"""The resource of a server that corresponds to the current repository."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.api.views import every

if TYPE_CHECKING:
    from cleveragents.api.client import Client

__all__ = ["no_resource", "resource_here", "same_remote"]

_SECONDS = 10.0
_SHORT_FORM = re.compile(r"(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^/].*|/.*)")
_URL = re.compile(r"[a-z+]+://(?:[^@/]*@)?(?P<host>[^/:]+)(?::[0-9]+)?/(?P<path>.*)")


def resource_here(
    client: Client,
    prefix: str,
    named: str | None,
    directory: str | None = None,
    *,
    otherwise: str = "pass --resource NAME",
) -> str:
    """Return the named resource. Without a name, return the only resource that has the path or a remote of
    the current repository; if there are several, return the resource with the checked-out branch.

    Raises `click.UsageError` if no resource or more than one matches; `otherwise` is the remedy in the
    message.
    """
    if named is not None:
        return named
    root, no_work_tree = _root(directory)
    remotes = _remotes(root)
    known = list(every(lambda after: client.resources.list(after=after)))
    found = [
        one
        for one in known
        if one.location == str(root) or any(same_remote(one.location, remote) for remote in remotes)
    ]
    if len(found) > 1:
        branch = _branch(root)
        found = [one for one in found if one.branch == branch] or found
    if len(found) == 1:
        return found[0].name
    if found:
        several = ", ".join(one.name for one in found)
        raise click.UsageError(f"several resources match this repository: {several}; {otherwise}")
    names = [one.name for one in known]
    raise click.UsageError(no_resource(names, prefix, otherwise, no_work_tree))


def no_resource(known: Sequence[str], prefix: str, otherwise: str, why: str = "") -> str:
    """Return the error for a repository that no resource matches, with the reason and a remedy."""
    if not known:
        return f"the server has no resources; add one with `{prefix} resource add NAME --project PROJECT`"
    because = f": {why}" if why else ""
    there = ", ".join(known)
    return f"no resource of the server matches this repository{because}; {otherwise} (resources: {there})"


def same_remote(one: str, other: str) -> bool:
    """Return whether two URLs name the same repository, by any protocol."""
    return _place(one) == _place(other)


def _place(address: str) -> str:
    text = address.strip().removeprefix("file://")
    found = _URL.fullmatch(text) or _SHORT_FORM.fullmatch(text)
    named = f"{found['host'].lower()}/{found['path'].lstrip('/')}" if found else text
    return named.rstrip("/").removesuffix(".git")


def _root(directory: str | None) -> tuple[Path, str]:
    """Return the repository, and the reason why a local plan could not use it, or an empty string. (A server
    may still run the plan on its own files.)
    """
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource

    here = Path.cwd() if directory is None else Path(directory)
    if not here.is_dir():
        raise click.UsageError(f"{here} is not a directory")
    try:
        return find_resource(here, seconds=_SECONDS)[0], ""
    except SandboxRefused as refused:
        # Without remedies for local plans: the server has its own files.
        return here.resolve(), refused.reason.partition(";")[0]


def _remotes(root: Path) -> list[str]:
    told = _asked(root, "config", "--get-regexp", r"^remote\..*\.url$")
    return [line.partition(" ")[2] for line in told.splitlines()]


def _branch(root: Path) -> str:
    return _asked(root, "symbolic-ref", "--short", "HEAD").strip()


def _asked(root: Path, *words: str) -> str:
    """Return the output of git; empty without git or outside a repository."""
    from cleveragents.core.errors import GitFailed
    from cleveragents.git.plumbing import run_git, user_environment, within

    try:
        told = run_git(*words, environment=user_environment(), directory=root, seconds_left=within(_SECONDS))
    except GitFailed:
        return ""
    return os.fsdecode(told)
