"""Resources: the repositories for plans, and the location of their files."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.access.model.project import ResourceKind, ensure_branch, ensure_name, ensure_remote, is_name
from cleveragents.access.model.user import Role
from cleveragents.api.format import timestamp
from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.core.errors import AlreadyThere, InvalidResource, UnknownProject, UnknownResource

if TYPE_CHECKING:
    from cleveragents.access.model.project import Resource
    from cleveragents.access.store.sql_project_store import SqlProjectStore
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.app.container import Container
    from cleveragents.core.json_value import JsonValue

__all__ = [
    "DEFAULT_BRANCH",
    "AddedResourceView",
    "HttpResources",
    "LocalResources",
    "ResourceView",
    "Resources",
    "add_directory",
    "directory_of",
    "known_place_of",
    "place_of",
    "trusted_place_of",
]

DEFAULT_BRANCH = "main"

_FETCH_SECONDS = 60.0
"""The timeout of a remote in seconds. Shorter than for a plan, because a person waits."""


_CHECK_SECONDS = 20.0


@view
class ResourceView:
    """A repository for plans."""

    name: str = shown(examples=["shop-main"])
    project: str = shown(examples=["shop"])
    kind: ResourceKind = shown(examples=["remote"])
    location: str = shown("a path, or the address of a git repository", examples=["git@git.example:shop.git"])
    branch: str | None = shown("of a remote", examples=["main"])
    created: datetime = shown(examples=["2026-11-15T12:00:00Z"])


@view
class AddedResourceView(ResourceView):
    """An added resource."""

    warning: str | None = shown("why the remote could not be reached", examples=[None])


class Resources(Protocol):
    """The resources of the projects that the acting user can see."""

    def list(
        self, *, project: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[ResourceView]:
        """Return one page of resources, by name: those of the project, or all. Raises `UnknownProject`."""

    def add(
        self,
        name: str,
        project: str,
        *,
        path: str | None = None,
        remote: str | None = None,
        branch: str | None = None,
        check: bool = True,
    ) -> AddedResourceView:
        """Add a directory (an absolute `path` on the client's or the server's machine) or a git `remote`.

        With `check`, the remote must have the branch; a remote that does not respond is added with a
        `warning`, because workers elsewhere may reach it. Raises `AlreadyThere`, `InvalidName`,
        `InvalidResource`, `SandboxRefused`, `UnknownProject`, `NotAllowed`.
        """

    def remove(self, name: str) -> None:
        """Remove a resource: no new plan runs on it. Its files stay, and its plans continue.

        Raises `UnknownResource`; `NotAllowed` unless the user is an admin of the project.
        """


class LocalResources:
    """Resources in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._container = access.container

    def list(
        self, *, project: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[ResourceView]:
        if project is not None:
            self._access.project(project, Role.VIEWER)
        known = [view_of(ResourceView, _json_of(one)) for one in self._access.resources(project)]
        return page_of(known, lambda resource: resource.name, limit, after)

    def add(
        self,
        name: str,
        project: str,
        *,
        path: str | None = None,
        remote: str | None = None,
        branch: str | None = None,
        check: bool = True,
    ) -> AddedResourceView:
        self._access.ensure_server_admin()
        if (path is None) == (remote is None):
            raise InvalidResource("resource", name, "give either `path` or `remote`")
        warning: str | None = None
        if remote is not None:
            new = _NewRemote(name, project, remote, branch or DEFAULT_BRANCH, check)
            added, warning = _add_remote(self._container, new)
        else:
            place = _directory(name, path or "", branch)
            now = self._container.clock.now()
            added = add_directory(self._container.projects, name, project, place, now=now)
        return view_of(AddedResourceView, _json_of(added) | {"warning": warning})

    def remove(self, name: str) -> None:
        found = self._access.resource(name, Role.ADMIN)
        self._container.projects.remove_resource(found.name, now=self._container.clock.now())


class HttpResources:
    """Resources of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(
        self, *, project: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[ResourceView]:
        if project is not None and not is_name(project):
            raise UnknownProject(project)
        return self._http.page(ResourceView, "/resources", limit, after, project=project)

    def add(
        self,
        name: str,
        project: str,
        *,
        path: str | None = None,
        remote: str | None = None,
        branch: str | None = None,
        check: bool = True,
    ) -> AddedResourceView:
        ensure_name("resource", name)
        if not is_name(project):
            raise UnknownProject(project)
        body = {"name": name, "project": project, "path": path, "remote": remote, "branch": branch}
        return view_of(AddedResourceView, self._http.post("/resources", {**body, "check": check}))

    def remove(self, name: str) -> None:
        self._http.delete(resource_path(name))


def resource_path(name: str) -> str:
    """Return the path of a resource in the API. Raises `UnknownResource` if the name is invalid."""
    if not is_name(name):  # guard: not the address of something else
        raise UnknownResource(name)
    return f"/resources/{name}"


def _json_of(resource: Resource) -> dict[str, JsonValue]:
    return {
        "name": resource.name,
        "project": resource.project,
        "kind": resource.kind.value,
        "location": resource.location,
        "branch": resource.branch,
        "created": timestamp(resource.created_at),
    }


def _directory(name: str, path: str, branch: str | None) -> Path:
    if branch is not None:
        raise InvalidResource("resource", name, "`branch` is for a `remote`")
    if "\0" in path or not Path(path).is_absolute():  # guard: independent of the server's working directory
        raise InvalidResource("resource", name, "`path` must be absolute")
    return Path(path)


def _ensure_branch_there(container: Container, url: str, branch: str) -> None:
    """Raise `InvalidResource` if the remote lacks the branch, `RemoteUnreachable` if it does not respond in
    time.
    """
    from cleveragents.access.model.project import RemoteAddress
    from cleveragents.sandboxes.mirror import missing_branch

    ensure_remote(url)
    ensure_branch(branch)
    address = RemoteAddress(url, branch)
    mirrors = container.plan_parts.remotes.mirrors
    there = replace(mirrors, seconds=_CHECK_SECONDS).branches(address)
    if branch not in there:
        raise InvalidResource("remote", address.shown, missing_branch(address, there))


def add_directory(store: SqlProjectStore, name: str, project: str, path: Path, *, now: datetime) -> Resource:
    """Register the repository around `path`, or the directory itself.

    Raises `SandboxRefused` if no plan could run in it, and the errors of `SqlProjectStore.add_resource`.
    """
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource

    if path.exists() and not path.is_dir():  # guard: a file is never meant
        raise SandboxRefused(str(path), "not a directory")
    root, _ = find_resource(path)
    return store.add_resource(name, project, ResourceKind.DIRECTORY, str(root), now=now)


class _NewRemote(Struct, frozen=True):
    """A git remote to add. With `asked`, the branch is looked up at the remote first."""

    name: str
    project: str
    url: str
    branch: str
    asked: bool


def _add_remote(container: Container, new: _NewRemote) -> tuple[Resource, str | None]:
    """Register the remote. Return the resource, and a warning if the remote does not respond to this machine.
    (Other machines may reach it.)

    Raises `InvalidResource` if it responds but lacks the branch, and the errors of `add_resource`.
    """
    from cleveragents.core.errors import RemoteUnreachable

    store, warning = container.projects, None
    store.get(new.project)
    if any(known.name == new.name for known in store.resources()):  # before the remote is contacted
        raise AlreadyThere("resource", new.name)
    if new.asked:
        try:
            _ensure_branch_there(container, new.url, new.branch)
        except RemoteUnreachable as error:
            warning = str(error)
    now = container.clock.now()
    added = store.add_resource(
        new.name, new.project, ResourceKind.REMOTE, new.url, branch=new.branch, now=now
    )
    return added, warning


def directory_of(container: Container, resource: Resource) -> Path:
    """Return the directory of a resource. Raises `SandboxRefused` if it is on another machine or gone."""
    from cleveragents.core.errors import SandboxRefused

    path = Path(resource.location)
    if resource.home not in (None, container.home):  # guard: the same path here is another directory
        raise SandboxRefused(resource.location, "the directory is on another machine: ask a server there")
    if not path.is_dir():
        raise SandboxRefused(resource.location, "the directory no longer exists")
    return path


def known_place_of(container: Container, resource: Resource) -> Path | None:
    """Return the directory with the files of a resource, without contacting a remote. For a remote, the files
    are those of the last fetch on this machine; None if the remote was never fetched.

    Raises `SandboxRefused`.
    """
    from cleveragents.access.model.project import remote_of, resource_of

    address = remote_of(resource_of(resource))
    if address is None:
        return directory_of(container, resource)
    return container.plan_parts.remotes.mirrors.known(address)


def trusted_place_of(container: Container, resource: Resource) -> Path:
    """Return the key under which trust in the resource is stored.

    No remote or file is read, so that trust in a deleted repository can be revoked.
    """
    from cleveragents.access.model.project import remote_of, resource_of

    address = remote_of(resource_of(resource))
    if address is None:
        return Path(resource.location)
    return container.plan_parts.remotes.mirrors.all_checkouts(address)


def place_of(container: Container, resource: Resource) -> Path:
    """Return a directory of this machine with the files of the resource; for a remote, a checkout of its
    branch as it is now.

    Raises `RemoteUnreachable`, `SandboxRefused`.
    """
    from cleveragents.access.model.project import remote_of, resource_of

    address = remote_of(resource_of(resource))
    if address is None:
        return directory_of(container, resource)
    mirrors = replace(container.plan_parts.remotes.mirrors, seconds=_FETCH_SECONDS)
    return mirrors.checkout(address, mirrors.fetched(address))
