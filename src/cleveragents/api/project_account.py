"""Projects and resources as they are shown, and how a directory of this machine becomes one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.access.model.project import Project, Resource, ResourceKind, ensure_branch, ensure_remote
from cleveragents.api.wording import timestamp
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from datetime import datetime

    from cleveragents.access.project_ports import ProjectStore
    from cleveragents.app.container import Container
    from cleveragents.core.json_value import JsonValue

__all__ = [
    "DEFAULT_BRANCH",
    "NewRemote",
    "add_directory",
    "add_remote",
    "directory_of",
    "ensure_branch_there",
    "place_of",
    "project_account",
    "resource_account",
    "trusted_place_of",
]

DEFAULT_BRANCH = "main"

_FETCH_SECONDS = 60.0
"""Whoever asks waits for the remote, so it is not waited for as long as a plan would."""


_CHECK_SECONDS = 20.0


def project_account(project: Project, resources: int) -> dict[str, JsonValue]:
    """A project as rows and JSON show it, with how many resources it has."""
    return {
        "name": project.name,
        "description": redact_text(project.description),  # of old ones, too
        "max_parallel": project.max_parallel,
        "resources": resources,
        "created": timestamp(project.created_at),
    }


def resource_account(resource: Resource) -> dict[str, JsonValue]:
    """A resource as rows and JSON show it."""
    return {
        "name": resource.name,
        "project": resource.project,
        "kind": resource.kind.value,
        "location": resource.location,
        "branch": resource.branch,
        "created": timestamp(resource.created_at),
    }


def ensure_branch_there(container: Container, url: str, branch: str) -> None:
    """`InvalidResource` if the remote answers and lacks the branch; `RemoteUnreachable` if it does not answer
    in a while, which others may have reached."""
    from cleveragents.access.model.remote import RemoteAddress
    from cleveragents.core.errors import InvalidResource
    from cleveragents.sandboxes.mirror import missing_branch

    ensure_remote(url)
    ensure_branch(branch)
    address = RemoteAddress(url, branch)
    mirrors = container.plan_parts.remotes.mirrors
    there = replace(mirrors, seconds=_CHECK_SECONDS).branches(address)
    if branch not in there:
        raise InvalidResource("remote", address.shown, missing_branch(address, there))


def add_directory(store: ProjectStore, name: str, project: str, path: Path, *, now: datetime) -> Resource:
    """Registers the repository that `path` lies in, or the directory itself. `SandboxRefused` where no plan
    could run, and whatever `ProjectStore.add_resource` refuses."""
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource

    if path.exists() and not path.is_dir():  # guard: nobody means what a file happens to lie in
        raise SandboxRefused(str(path), "it is no directory")
    root, _ = find_resource(path)
    return store.add_resource(name, project, ResourceKind.DIRECTORY, str(root), now=now)


@dataclass(frozen=True, slots=True)
class NewRemote:
    """A git remote that is to be a resource; where `asked`, it is asked whether it has the branch."""

    name: str
    project: str
    url: str
    branch: str = DEFAULT_BRANCH
    asked: bool = True


def add_remote(container: Container, new: NewRemote, *, now: datetime) -> tuple[Resource, str | None]:
    """Registers it; and a warning if it does not answer from here, for workers elsewhere may reach it all the
    same. `InvalidResource` if it answers and lacks the branch, and whatever `add_resource` refuses."""
    from cleveragents.core.errors import AlreadyThere, RemoteUnreachable

    store, warning = container.projects, None
    store.get(new.project)
    if any(known.name == new.name for known in store.resources()):  # before anybody is asked
        raise AlreadyThere("resource", new.name)
    if new.asked:
        try:
            ensure_branch_there(container, new.url, new.branch)
        except RemoteUnreachable as error:
            warning = str(error)
    added = store.add_resource(
        new.name, new.project, ResourceKind.REMOTE, new.url, branch=new.branch, now=now
    )
    return added, warning


def directory_of(container: Container, resource: Resource) -> Path:
    """Where the files of a resource are that is a directory. `SandboxRefused`: it is another machine's, or
    gone."""
    from cleveragents.core.errors import SandboxRefused

    path = Path(resource.location)
    if resource.home not in (None, container.home):  # guard: what has the same path here is something else
        raise SandboxRefused(resource.location, "it is on another machine: ask a server there")
    if not path.is_dir():
        raise SandboxRefused(resource.location, "there is no such directory any more")
    return path


def known_place_of(container: Container, resource: Resource) -> Path | None:
    """The same without asking a remote: its branch as it was last fetched here; None if it never was.
    `SandboxRefused`."""
    from cleveragents.access.model.remote import remote_of, resource_of

    address = remote_of(resource_of(resource))
    if address is None:
        return directory_of(container, resource)
    return container.plan_parts.remotes.mirrors.known(address)


def trusted_place_of(container: Container, resource: Resource) -> Path:
    """Under which it is kept what of the resource is trusted. Neither a remote nor a file is looked at, so
    that trust can be taken away whatever became of them."""
    from cleveragents.access.model.remote import remote_of, resource_of

    address = remote_of(resource_of(resource))
    if address is None:
        return Path(resource.location)
    return container.plan_parts.remotes.mirrors.all_checkouts(address)


def place_of(container: Container, resource: Resource) -> Path:
    """A directory of this machine with its files: of a remote, a checkout of its branch as it is now.
    `RemoteUnreachable`, `SandboxRefused`."""
    from cleveragents.access.model.remote import remote_of, resource_of

    address = remote_of(resource_of(resource))
    if address is None:
        return directory_of(container, resource)
    mirrors = replace(container.plan_parts.remotes.mirrors, seconds=_FETCH_SECONDS)
    return mirrors.checkout(address, mirrors.fetched(address))
