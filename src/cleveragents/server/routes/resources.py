"""Routes of resources: the repositories that plans may run on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.api.resources import DEFAULT_BRANCH, AddedResourceView, ResourceView
from cleveragents.api.views import Page
from cleveragents.server.access import AdminClient, AnyClient, ResourceAdmin
from cleveragents.server.accounts import NAME, NamePath
from cleveragents.server.listing import After, Limit

__all__ = ["router"]

router = APIRouter(tags=["projects"])

InProject = Annotated[str | None, Query(max_length=64, description="only those of this", examples=["shop"])]


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
