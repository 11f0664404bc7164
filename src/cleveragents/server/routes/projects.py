"""Projects: their repositories, their members, and how many of their jobs run at once."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from cleveragents.access.model.project import Member
from cleveragents.access.model.user import Role
from cleveragents.api.project_account import project_account
from cleveragents.server.access import AdministeredProject, AnyUser, ReadProject, ServerAdmin
from cleveragents.server.accounts import NAME, Body, NamePath, account_as
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.service import Here

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


class ProjectAccount(BaseModel):
    """A project."""

    name: str = Field(examples=["shop"])
    description: str = Field(examples=["the web shop"])
    max_parallel: int | None = Field(description="null: no bound", examples=[4])
    resources: int = Field(description="how many it has", examples=[2])
    created: str = Field(examples=["2026-11-15T12:00:00Z"])


class MemberAccount(BaseModel):
    """A member of a project."""

    name: str = Field(description="of the user", examples=["ada"])
    role: Role = Field(description="in the project", examples=["operator"])


class NewMember(BaseModel):
    """The role of a member."""

    role: Role = Field(examples=["operator"])


@router.get("/projects", operation_id="listProjects")
def list_projects(
    here: Here, access: AnyUser, limit: Limit = 100, after: After = None
) -> Listing[ProjectAccount]:
    """Lists your projects by name; for a server admin, all projects."""
    counts = Counter(resource.project for resource in here.container.projects.resources())
    known = [account_as(ProjectAccount, project_account(one, counts[one.name])) for one in access.projects()]
    return piece_of(known, lambda project: project.name, limit, after)


@router.post("/projects", status_code=201, operation_id="addProject")
def add_project(project: NewProject, here: Here, access: ServerAdmin) -> ProjectAccount:
    """Adds a project, and makes you its admin."""
    container = here.container
    added = container.projects.add(
        project.name,
        project.description,
        max_parallel=project.max_parallel,
        now=container.clock.now(),
        creator=access.user,
    )
    return account_as(ProjectAccount, project_account(added, 0))


@router.delete("/projects/{name}", status_code=204, operation_id="removeProject")
def remove_project(name: NamePath, here: Here, access: ServerAdmin) -> None:
    """Removes a project that has no resources and no plans any more; its memberships end. The project
    `default` stays."""
    here.container.projects.remove(name, now=here.container.clock.now())


@router.get("/projects/{name}/members", operation_id="listMembers")
def list_members(
    project: ReadProject, here: Here, limit: Limit = 100, after: After = None
) -> Listing[MemberAccount]:
    """Lists the members of a project by name. Server admins may act in every project and are listed only
    where they were added."""
    found = here.container.members.list(project.name)
    return piece_of([_member(one) for one in found], lambda member: member.name, limit, after)


@router.put("/projects/{name}/members/{user}", operation_id="setMember")
def set_member(project: AdministeredProject, user: UserName, new: NewMember, here: Here) -> MemberAccount:
    """Adds a user to a project, or changes their role in it, from their next request on."""
    container = here.container
    return _member(container.members.set(project.name, user, new.role, now=container.clock.now()))


@router.delete("/projects/{name}/members/{user}", status_code=204, operation_id="removeMember")
def remove_member(project: AdministeredProject, user: UserName, here: Here) -> None:
    """Removes a user from a project, from their next request on. A stream that is open shows nothing more of
    the project within a minute."""
    here.container.members.remove(project.name, user, now=here.container.clock.now())


def _member(member: Member) -> MemberAccount:
    return MemberAccount(name=member.name, role=member.role)
