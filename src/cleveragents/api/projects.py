"""Projects and their members."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from cleveragents.access.model.project import ensure_name, is_name
from cleveragents.access.model.user import Role, is_user_name
from cleveragents.api.format import timestamp
from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.core.errors import UnknownProject, UnknownUser
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.access.model.project import Project
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.core.json_value import JsonValue

__all__ = ["HttpProjects", "LocalProjects", "MemberView", "ProjectView", "Projects", "project_view"]


@view
class ProjectView:
    """A project."""

    name: str = shown(examples=["shop"])
    description: str = shown(examples=["the web shop"])
    max_parallel: int | None = shown(
        "maximum number of its jobs that run in parallel; null: no limit", examples=[4]
    )
    resources: int = shown("number of resources", examples=[2])
    created: datetime = shown(examples=["2026-11-15T12:00:00Z"])


@view
class MemberView:
    """A member of a project."""

    name: str = shown("name of the user", examples=["ada"])
    role: Role = shown("role in the project", examples=["operator"])


class Projects(Protocol):
    """The projects that the acting user can see, and their members."""

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[ProjectView]:
        """Return one page of projects, by name."""

    def add(self, name: str, *, description: str = "", max_parallel: int | None = None) -> ProjectView:
        """Add a project, with the acting user as its admin. Raises `AlreadyThere`, `InvalidName`,
        `NotAllowed`.
        """

    def remove(self, name: str) -> None:
        """Remove a project with its memberships.

        Raises `UnknownProject`, `NotAllowed`; `StillUsed` while it has resources or plans, and for `default`.
        """

    def members(self, name: str, *, limit: int = 100, after: str | None = None) -> Page[MemberView]:
        """Return one page of a project's members, by name. Raises `UnknownProject`."""

    def set_member(self, name: str, user: str, role: Role) -> MemberView:
        """Add a user to a project, or change their role in it. Takes effect with the user's next request.

        Raises `UnknownProject`, `UnknownUser`; `NotAllowed` unless the user is an admin of the project.
        """

    def remove_member(self, name: str, user: str) -> None:
        """Remove a user from a project. Takes effect with their next request. Errors as in `set_member`."""


class LocalProjects:
    """Projects in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._clock = access.container.clock
        self._store = access.container.projects
        self._members = access.container.members

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[ProjectView]:
        counts = Counter(resource.project for resource in self._store.resources())
        known = [project_view(one, counts[one.name]) for one in self._access.projects()]
        return page_of(known, lambda project: project.name, limit, after)

    def add(self, name: str, *, description: str = "", max_parallel: int | None = None) -> ProjectView:
        self._access.ensure_server_admin()
        creator = None if self._access.is_owner else self._access.user
        now = self._clock.now()
        added = self._store.add(name, description, max_parallel=max_parallel, now=now, creator=creator)
        return project_view(added, 0)

    def remove(self, name: str) -> None:
        self._access.ensure_server_admin()
        self._store.remove(name, now=self._clock.now())

    def members(self, name: str, *, limit: int = 100, after: str | None = None) -> Page[MemberView]:
        project = self._access.project(name, Role.VIEWER)
        found = [MemberView(name=one.name, role=one.role) for one in self._members.list(project.name)]
        return page_of(found, lambda member: member.name, limit, after)

    def set_member(self, name: str, user: str, role: Role) -> MemberView:
        project = self._access.project(name, Role.ADMIN)
        member = self._members.set(project.name, user, role, now=self._clock.now())
        return MemberView(name=member.name, role=member.role)

    def remove_member(self, name: str, user: str) -> None:
        project = self._access.project(name, Role.ADMIN)
        self._members.remove(project.name, user, now=self._clock.now())


class HttpProjects:
    """Projects of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[ProjectView]:
        return self._http.page(ProjectView, "/projects", limit, after)

    def add(self, name: str, *, description: str = "", max_parallel: int | None = None) -> ProjectView:
        ensure_name("project", name)
        body = {"name": name, "description": description, "max_parallel": max_parallel}
        return view_of(ProjectView, self._http.post("/projects", body))

    def remove(self, name: str) -> None:
        self._http.delete(_path(name))

    def members(self, name: str, *, limit: int = 100, after: str | None = None) -> Page[MemberView]:
        return self._http.page(MemberView, f"{_path(name)}/members", limit, after)

    def set_member(self, name: str, user: str, role: Role) -> MemberView:
        return view_of(MemberView, self._http.put(_member_path(name, user), {"role": role.value}))

    def remove_member(self, name: str, user: str) -> None:
        self._http.delete(_member_path(name, user))


def project_view(project: Project, resources: int) -> ProjectView:
    """Return the view of a project with its number of resources."""
    fields: dict[str, JsonValue] = {
        "name": project.name,
        "description": redact_text(project.description),  # also for old projects
        "max_parallel": project.max_parallel,
        "resources": resources,
        "created": timestamp(project.created_at),
    }
    return view_of(ProjectView, fields)


def _path(name: str) -> str:
    if not is_name(name):  # guard: not the address of something else
        raise UnknownProject(name)
    return f"/projects/{name}"


def _member_path(name: str, user: str) -> str:
    path = _path(name)
    if not is_user_name(user):  # guard: not the address of something else
        raise UnknownUser(user)
    return f"{path}/members/{user}"
