"""Routes of projects, their members, their resources, and trust in files of a resource that can run code."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role
from cleveragents.api.projects import MemberView, ProjectView
from cleveragents.api.resources import DEFAULT_BRANCH, AddedResourceView, ResourceView
from cleveragents.api.trust import RevokedTrustView, TrustedFileView, TrustSurveyView
from cleveragents.api.views import Page
from cleveragents.server.access import (
    AdminClient,
    AnyClient,
    ProjectAdmin,
    ProjectViewer,
    ResourceAdmin,
    ResourceServerAdmin,
)
from cleveragents.server.parameters import NAME, After, Body, Limit, NamePath, StrictBody

__all__ = ["router"]

router = APIRouter(tags=["projects"])

UserName = Annotated[str, Path(max_length=64, description="of a user", examples=["ada"])]


InProject = Annotated[str | None, Query(max_length=64, description="only those of this", examples=["shop"])]
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FILE = ".cleveragents/actions/release.yaml"
_MOST_FILES = 10_000


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


class NewResource(BaseModel):
    """A repository that plans may run on: `path` or `remote`, one of them."""

    name: str = Field(max_length=64, pattern=NAME, examples=["shop-main"])
    project: str = Field(max_length=64, pattern=NAME, examples=["shop"])
    path: str | None = Field(
        None, max_length=4_096, description="a directory of the server's machine", examples=[None]
    )
    remote: str | None = Field(
        None,
        max_length=4_096,
        description="the address of a git repository, without a password",
        examples=["git@git.example:shop.git"],
    )
    branch: str | None = Field(
        None,
        max_length=200,
        description=f"what plans on a remote begin with and are applied to; {DEFAULT_BRANCH} if not said",
        examples=["main"],
    )
    check: bool = Field(default=True, description="asks a remote whether it has the branch", examples=[False])


@router.get("/resources", operation_id="listResources")
def list_resources(
    client: AnyClient, project: InProject = None, limit: Limit = 100, after: After = None
) -> Page[ResourceView]:
    """Lists the resources of your projects by name, or those of one project."""
    return client.resources.list(project=project, limit=limit, after=after)


@router.post("/resources", status_code=201, operation_id="addResource")
def add_resource(resource: NewResource, client: AdminClient) -> AddedResourceView:
    """Lets plans run on a repository: a directory of the server's machine, or a git remote that workers on
    any machine can reach.

    A remote is asked whether it has the branch; one that the server cannot reach is added with a `warning`.
    """
    return client.resources.add(
        resource.name,
        resource.project,
        path=resource.path,
        remote=resource.remote,
        branch=resource.branch,
        check=resource.check,
    )


@router.delete("/resources/{name}", status_code=204, operation_id="removeResource")
def remove_resource(name: NamePath, client: ResourceAdmin) -> None:
    """Lets no new plan run on a repository. Its files stay, and plans that run on it go on."""
    client.resources.remove(name)


class SeenFile(StrictBody):
    """A file, as it was shown."""

    path: str = Field(min_length=1, max_length=4096, examples=[_FILE])
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", examples=[_DIGEST])


class TrustBody(StrictBody):
    """What has been read, and may count."""

    files: list[SeenFile] = Field(min_length=1, max_length=_MOST_FILES)


@router.get("/trust", operation_id="listTrust")
def list_trust(client: AdminClient, limit: Limit = 100, after: After = None) -> Page[TrustedFileView]:
    """Lists all contents that are trusted, anywhere."""
    return client.trust.list(limit=limit, after=after)


@router.get("/resources/{name}/trust", operation_id="showBroughtAlong")
def show_brought_along(name: NamePath, client: ResourceAdmin) -> TrustSurveyView:
    """Shows what a repository brings along that counts only once it is trusted: its settings, actions,
    actors, skills and MCP servers. A git remote is asked for its branch."""
    return client.trust.survey(name)


@router.post("/resources/{name}/trust", operation_id="trustBroughtAlong")
def trust_brought_along(name: NamePath, body: TrustBody, client: ResourceServerAdmin) -> TrustSurveyView:
    """Trusts files of a repository, with the contents that were shown. If one of them has another by now,
    or is gone, nothing is trusted (409)."""
    return client.trust.give(name, [(one.path, one.digest) for one in body.files])


@router.post("/resources/{name}/trust/revoke", operation_id="revokeTrust")
def revoke_trust(name: NamePath, client: ResourceAdmin) -> RevokedTrustView:
    """Trusts nothing of a repository any more. Neither its files nor its remote are looked at."""
    return client.trust.revoke(name)
