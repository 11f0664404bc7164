"""Routes of projects and their members."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role
from cleveragents.api.projects import MemberView, ProjectView
from cleveragents.api.views import Page
from cleveragents.server.access import (
    AdminClient,
    AnyClient,
    ProjectAdmin,
    ProjectViewer,
)
from cleveragents.server.accounts import NAME, Body, NamePath
from cleveragents.server.listing import After, Limit

__all__ = ["router"]

router = APIRouter(tags=["projects"])

UserName = Annotated[str, Path(max_length=64, description="of a user", examples=["ada"])]


class NewProject(Body):
    """A project to be added."""

    name: str = Field(max_length=64, pattern=NAME, examples=["shop"])
    description: str = Field("", max_length=2_000, examples=["the web shop"])
    max_parallel: int | None = Field(
        None, ge=1, le=10_000, description="at most so many of its jobs run at once, anywhere", examples=[4]
    )


class NewMember(BaseModel):
    """The role of a member."""

    role: Role = Field(examples=["operator"])


@router.get("/projects", operation_id="listProjects")
def list_projects(client: AnyClient, limit: Limit = 100, after: After = None) -> Page[ProjectView]:
    """Lists your projects by name; for a server admin, all projects."""
    return client.projects.list(limit=limit, after=after)


@router.post("/projects", status_code=201, operation_id="addProject")
def add_project(project: NewProject, client: AdminClient) -> ProjectView:
    """Adds a project, and makes you its admin."""
    return client.projects.add(
        project.name, description=project.description, max_parallel=project.max_parallel
    )


@router.delete("/projects/{name}", status_code=204, operation_id="removeProject")
def remove_project(name: NamePath, client: AdminClient) -> None:
    """Removes a project that has no resources and no plans any more; its memberships end. The project
    `default` stays."""
    client.projects.remove(name)


@router.get("/projects/{name}/members", operation_id="listMembers")
def list_members(
    name: NamePath, client: ProjectViewer, limit: Limit = 100, after: After = None
) -> Page[MemberView]:
    """Lists the members of a project by name. Server admins may act in every project and are listed only
    where they were added."""
    return client.projects.members(name, limit=limit, after=after)


@router.put("/projects/{name}/members/{user}", operation_id="setMember")
def set_member(name: NamePath, user: UserName, new: NewMember, client: ProjectAdmin) -> MemberView:
    """Adds a user to a project, or changes their role in it, from their next request on."""
    return client.projects.set_member(name, user, new.role)


@router.delete("/projects/{name}/members/{user}", status_code=204, operation_id="removeMember")
def remove_member(name: NamePath, user: UserName, client: ProjectAdmin) -> None:
    """Removes a user from a project, from their next request on. A stream that is open shows nothing more of
    the project within a minute."""
    client.projects.remove_member(name, user)
