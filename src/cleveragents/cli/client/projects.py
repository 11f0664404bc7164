"""`agents project` and `agents resource`, asked of a server."""

from __future__ import annotations

from pathlib import Path

import click

from cleveragents.cli.admin import project as local_project
from cleveragents.cli.admin import resource as local_resource
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import ClientGroup, client_command
from cleveragents.cli.output import Output, progress
from cleveragents.cli.session import Session
from cleveragents.core.errors import UnknownProject, UnknownResource, UnknownUser

__all__ = ["project", "resource"]

_MEMBER = {"name": UnknownProject, "user": UnknownUser}


def _add_project(
    session: Session, name: str, description: str, max_parallel: int | None, output: Output
) -> None:
    body = {"name": name, "description": description, "max_parallel": max_parallel}
    added = connected(session).post("/projects", body)
    more = f"`{prefix_of(session)} resource add NAME --project {name}` says what plans may run on"
    progress(f"{name} is added; {more}")
    output.record(added)


def _list_projects(session: Session, output: Output) -> None:
    rows = list(connected(session).pages("/projects"))
    columns = ["name", "max_parallel", "resources", "description"]
    output.table(rows, columns, empty="there are no projects; `agents project add NAME` adds one")


def _remove_project(session: Session, name: str) -> None:
    connected(session).delete(f"/projects/{name}")
    progress(f"{name} is removed")


def _list_members(session: Session, name: str, output: Output) -> None:
    local_project.show_members(list(connected(session).pages(f"/projects/{name}/members")), name, output)


def _add_member(session: Session, name: str, user: str, role: str, output: Output) -> None:
    output.record(connected(session).put(f"/projects/{name}/members/{user}", {"role": role}))


def _remove_member(session: Session, name: str, user: str) -> None:
    connected(session).delete(f"/projects/{name}/members/{user}")
    progress(f"{user} is no longer a member of {name}")


def _add_resource(
    session: Session,
    name: str,
    project: str,
    path: Path | None,
    remote: str | None,
    branch: str | None,
    no_check: bool,
    output: Output,
) -> None:
    if (remote is None) == (path is None):
        raise click.UsageError("say --remote URL, or --path with a directory of the server's machine")
    body = {"name": name, "project": project, "remote": remote, "branch": branch, "check": not no_check}
    added = connected(session).post("/resources", {**body, "path": None if path is None else str(path)})
    if warning := added.pop("warning", None):
        progress(f"warning: {warning}; --no-check says not to ask")
    progress(f"{name} is added: plans may run on {added['location']}")
    output.record(added)


def _list_resources(session: Session, project: str | None, output: Output) -> None:
    rows = list(connected(session).pages("/resources", project=project))
    columns = ["name", "project", "kind", "location", "branch"]
    empty = "there are no resources; `agents resource add NAME --project PROJECT` adds one"
    output.table(rows, columns, empty=empty, cut=["location"], spare=["kind", "branch", "project"])


def _remove_resource(session: Session, name: str) -> None:
    connected(session).delete(f"/resources/{name}")
    progress(f"{name} is removed; nothing in its repository was changed")


project = ClientGroup(
    local_project.project,
    {
        "add": client_command(local_project.add_project, _add_project),
        "list": client_command(local_project.list_projects, _list_projects),
        "remove": client_command(
            local_project.remove_project, _remove_project, named={"name": UnknownProject}
        ),
        "members": client_command(local_project.list_members, _list_members, named=_MEMBER),
        "add-member": client_command(local_project.add_member, _add_member, named=_MEMBER),
        "remove-member": client_command(local_project.remove_member, _remove_member, named=_MEMBER),
    },
)
resource = ClientGroup(
    local_resource.resource,
    {
        "add": client_command(local_resource.add_resource, _add_resource),
        "list": client_command(local_resource.list_resources, _list_resources),
        "remove": client_command(
            local_resource.remove_resource, _remove_resource, named={"name": UnknownResource}
        ),
    },
)
