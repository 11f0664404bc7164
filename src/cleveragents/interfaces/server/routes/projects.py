"""Projects: repositories that belong together, and how many of their jobs run at once."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents.interfaces.desk.project_account import project_account
from cleveragents.interfaces.server.access import Admin, Viewer
from cleveragents.interfaces.server.accounts import NAME, NamePath, account_as
from cleveragents.interfaces.server.listing import After, Limit, Listing, piece_of
from cleveragents.interfaces.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["projects"])


class NewProject(BaseModel):
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


@router.get("/projects", operation_id="listProjects")
def list_projects(
    here: Here, who: Viewer, limit: Limit = 100, after: After = None
) -> Listing[ProjectAccount]:
    """Lists projects by name."""
    store = here.container.projects
    counts = Counter(resource.project for resource in store.resources())
    known = [account_as(ProjectAccount, project_account(one, counts[one.name])) for one in store.list()]
    return piece_of(known, lambda project: project.name, limit, after)


@router.post("/projects", status_code=201, operation_id="addProject")
def add_project(project: NewProject, here: Here, who: Admin) -> ProjectAccount:
    """Adds a project."""
    container = here.container
    added = container.projects.add(
        project.name, project.description, max_parallel=project.max_parallel, now=container.clock.now()
    )
    return account_as(ProjectAccount, project_account(added, 0))


@router.delete("/projects/{name}", status_code=204, operation_id="removeProject")
def remove_project(name: NamePath, here: Here, who: Admin) -> None:
    """Removes a project that has no resources any more."""
    here.container.projects.remove(name, now=here.container.clock.now())
