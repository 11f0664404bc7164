"""Routes of projects, members, resources, and trust in files of a resource that can run code."""

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

router = APIRouter(prefix="/api", tags=["projects"])

UserName = Annotated[str, Path(max_length=64, description="the name of a user", examples=["ada"])]


InProject = Annotated[str | None, Query(max_length=64, description="only this project", examples=["shop"])]
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FILE = ".cleveragents/actions/release.yaml"
_MOST_FILES = 10_000


class NewProject(Body):
    """A project to add."""

    name: str = Field(max_length=64, pattern=NAME, examples=["shop"])
    description: str = Field("", max_length=2_000, examples=["the web shop"])
    max_parallel: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="max jobs of the project in parallel, on all machines",
        examples=[4],
    )


class NewMember(BaseModel):
    """The role of a member."""

    role: Role = Field(examples=["operator"])


@router.get("/projects", operation_id="listProjects")
def list_projects(client: AnyClient, limit: Limit = 100, after: After = None) -> Page[ProjectView]:
    """List your projects by name; for a server admin, all projects."""
    return client.projects.list(limit=limit, after=after)


@router.post("/projects", status_code=201, operation_id="addProject")
def add_project(project: NewProject, client: AdminClient) -> ProjectView:
    """Add a project. You become its admin."""
    return client.projects.add(
        project.name, description=project.description, max_parallel=project.max_parallel
    )


@router.delete("/projects/{name}", status_code=204, operation_id="removeProject")
def remove_project(name: NamePath, client: AdminClient) -> None:
    """Remove a project without resources and plans. Its memberships end. The project `default` cannot be
    removed.
    """
    client.projects.remove(name)


@router.get("/projects/{name}/members", operation_id="listMembers")
def list_members(
    name: NamePath, client: ProjectViewer, limit: Limit = 100, after: After = None
) -> Page[MemberView]:
    """List the members of a project by name.

    Server admins have access to every project. They are listed only where they were added.
    """
    return client.projects.members(name, limit=limit, after=after)


@router.put("/projects/{name}/members/{user}", operation_id="setMember")
def set_member(name: NamePath, user: UserName, new: NewMember, client: ProjectAdmin) -> MemberView:
    """Add a user to a project, or change their role, from their next request on."""
    return client.projects.set_member(name, user, new.role)


@router.delete("/projects/{name}/members/{user}", status_code=204, operation_id="removeMember")
def remove_member(name: NamePath, user: UserName, client: ProjectAdmin) -> None:
    """Remove a user from a project, from their next request on. Open streams stop
    showing events of the project within a minute.
    """
    client.projects.remove_member(name, user)


class NewResource(BaseModel):
    """A repository for plans: either `path` or `remote`."""

    name: str = Field(max_length=64, pattern=NAME, examples=["shop-main"])
    project: str = Field(max_length=64, pattern=NAME, examples=["shop"])
    path: str | None = Field(
        None, max_length=4_096, description="a directory on the server's machine", examples=[None]
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
        description=f"base and target of plans on a remote; default: {DEFAULT_BRANCH}",
        examples=["main"],
    )
    check: bool = Field(default=True, description="check that the remote has the branch", examples=[False])


@router.get("/resources", operation_id="listResources")
def list_resources(
    client: AnyClient, project: InProject = None, limit: Limit = 100, after: After = None
) -> Page[ResourceView]:
    """List the resources of your projects by name, or those of one project."""
    return client.resources.list(project=project, limit=limit, after=after)


@router.post("/resources", status_code=201, operation_id="addResource")
def add_resource(resource: NewResource, client: AdminClient) -> AddedResourceView:
    """Add a repository for plans: a directory on the server's machine, or a git remote that all workers can
    reach.

    The server checks that the remote has the branch. A remote that the server cannot reach is added with a
    `warning`.
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
    """Remove a repository: no new plans can start on it. Its files stay, and running plans continue."""
    client.resources.remove(name)


class SeenFile(StrictBody):
    """A file, with the digest of the content that the user saw."""

    path: str = Field(min_length=1, max_length=4096, examples=[_FILE])
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", examples=[_DIGEST])


class TrustBody(StrictBody):
    """The files to trust."""

    files: list[SeenFile] = Field(min_length=1, max_length=_MOST_FILES)


@router.get("/trust", operation_id="listTrust")
def list_trust(client: AdminClient, limit: Limit = 100, after: After = None) -> Page[TrustedFileView]:
    """List all trusted contents of all repositories."""
    return client.trust.list(limit=limit, after=after)


@router.get("/resources/{name}/trust", operation_id="showBroughtAlong")
def show_brought_along(name: NamePath, client: ResourceAdmin) -> TrustSurveyView:
    """Show the config of a repository that needs trust: settings, actions, actors, skills and MCP servers.

    They have no effect until they are trusted. For a git remote, the branch is read.
    """
    return client.trust.survey(name)


@router.post("/resources/{name}/trust", operation_id="trustBroughtAlong")
def trust_brought_along(name: NamePath, body: TrustBody, client: ResourceServerAdmin) -> TrustSurveyView:
    """Trust files of a repository with the contents that were shown. If one of them has changed or is gone,
    nothing is trusted (409).
    """
    return client.trust.give(name, [(one.path, one.digest) for one in body.files])


@router.post("/resources/{name}/trust/revoke", operation_id="revokeTrust")
def revoke_trust(name: NamePath, client: ResourceAdmin) -> RevokedTrustView:
    """Revoke the trust in all files of a repository. Neither its files nor its remote are read."""
    return client.trust.revoke(name)
