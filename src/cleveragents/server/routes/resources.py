"""Resources: which repositories plans may run on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import Role
from cleveragents.api.project_account import (
    DEFAULT_BRANCH,
    NewRemote,
    add_directory,
    add_remote,
    resource_account,
)
from cleveragents.core.errors import InvalidResource
from cleveragents.server.access import AdministeredResource, AnyUser, ServerAdmin
from cleveragents.server.accounts import NAME, account_as
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.service import Here

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


class ResourceAccount(BaseModel):
    """A resource."""

    name: str = Field(examples=["shop-main"])
    project: str = Field(examples=["shop"])
    kind: ResourceKind = Field(examples=["remote"])
    location: str = Field(examples=["git@git.example:shop.git"])
    branch: str | None = Field(description="of a remote", examples=["main"])
    created: str = Field(examples=["2026-11-15T12:00:00Z"])


class AddedResource(ResourceAccount):
    """A resource that was added."""

    warning: str | None = Field(description="why the server could not reach it", examples=[None])


@router.get("/resources", operation_id="listResources")
def list_resources(
    access: AnyUser, project: InProject = None, limit: Limit = 100, after: After = None
) -> Listing[ResourceAccount]:
    """Lists the resources of your projects by name, or those of one project."""
    if project is not None:
        access.project(project, Role.VIEWER)
    known = [account_as(ResourceAccount, resource_account(one)) for one in access.resources(project)]
    return piece_of(known, lambda resource: resource.name, limit, after)


@router.post("/resources", status_code=201, operation_id="addResource")
def add_resource(resource: NewResource, here: Here, access: ServerAdmin) -> AddedResource:
    """Lets plans run on a repository: a directory of the server's machine, or a git remote that workers on
    any machine can reach.

    A remote is asked whether it has the branch; one that the server cannot reach is added with a `warning`.
    """
    container = here.container
    warning: str | None = None
    now = container.clock.now()
    if (resource.path is None) == (resource.remote is None):
        raise InvalidResource("resource", resource.name, "say `path` or `remote`, one of them")
    if resource.remote is not None:
        branch = resource.branch or DEFAULT_BRANCH
        new = NewRemote(resource.name, resource.project, resource.remote, branch, resource.check)
        added, warning = add_remote(container, new, now=now)
    else:
        added = add_directory(
            container.projects, resource.name, resource.project, _directory(resource), now=now
        )
    return account_as(AddedResource, resource_account(added) | {"warning": warning})


@router.delete("/resources/{name}", status_code=204, operation_id="removeResource")
def remove_resource(resource: AdministeredResource, here: Here) -> None:
    """Lets no new plan run on a repository. Its files stay, and plans that run on it go on."""
    here.container.projects.remove_resource(resource.name, now=here.container.clock.now())


def _directory(resource: NewResource) -> Path:
    path = resource.path or ""
    if resource.branch is not None:
        raise InvalidResource("resource", resource.name, "`branch` is for a `remote`")
    if "\0" in path or not Path(path).is_absolute():  # guard: it depends on no directory of the server's
        raise InvalidResource("resource", resource.name, "`path` has to be absolute")
    return Path(path)
