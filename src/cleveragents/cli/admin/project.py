"""`agents project`: projects of a server, with their repositories and members."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from cleveragents.api.project_account import project_account
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue

__all__ = ["member_fields", "project", "show_members"]


@click.group()
def project() -> None:
    """Manage projects: their members, and how many of their plans run at once.

    Users of a server see and change only what belongs to the projects they are members of. Plans that name no
    project belong to the project `default`.

    \b
    Example:
      agents project add shop --max-parallel 4
      agents resource add shop-main --project shop --path ~/src/shop
      agents project add-member shop ada --role operator
    """


@project.command("add")
@click.argument("name")
@click.option("--description", default="", help="What it is, for those who look at the list.")
@click.option(
    "--max-parallel",
    type=click.IntRange(1, 10_000),
    help="At most so many of its jobs run at once, on all machines together; no bound if not said.",
)
@format_option
@pass_session
def add_project(
    session: Session, name: str, description: str, max_parallel: int | None, output: Output
) -> None:
    """Add a project.

    NAME is of lower case letters, digits and ._-

    \b
    Example:
      agents project add shop --max-parallel 4 --description "the web shop"
    """
    container = session.container()
    added = container.projects.add(name, description, max_parallel=max_parallel, now=container.clock.now())
    progress(f"{name} is added; `agents resource add NAME --project {name}` says what plans may run on")
    output.record(project_account(added, 0))


@project.command("list")
@format_option
@pass_session
def list_projects(session: Session, output: Output) -> None:
    """List projects, with how many resources each has.

    \b
    Example:
      agents project list --format json
    """
    store = session.container().projects
    counts = Counter(resource.project for resource in store.resources())
    rows = [project_account(one, counts[one.name]) for one in store.list()]
    columns = ["name", "max_parallel", "resources", "description"]
    output.table(rows, columns, empty="there are no projects; `agents project add NAME` adds one")


@project.command("remove")
@click.argument("name")
@pass_session
def remove_project(session: Session, name: str) -> None:
    """Remove a project that has no resources and no plans any more.

    Its memberships end. The project `default` cannot be removed.

    \b
    Example:
      agents project remove shop
    """
    container = session.container()
    container.projects.remove(name, now=container.clock.now())
    progress(f"{name} is removed")


@project.command("members")
@click.argument("name")
@format_option
@pass_session
def list_members(session: Session, name: str, output: Output) -> None:
    """List the members of a project, with their roles.

    Server admins may act in every project and are listed only where they were added.

    \b
    Example:
      agents project members shop
    """
    rows = [member_fields(one.name, one.role.value) for one in session.container().members.list(name)]
    show_members(rows, name, output)


@project.command("add-member")
@click.argument("name")
@click.argument("user")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    show_default=True,
    help="What they may do in the project.",
)
@format_option
@pass_session
def add_member(session: Session, name: str, user: str, role: str, output: Output) -> None:
    """Add a user to a project, or change their role in it.

    A viewer reads, an operator also works with plans, an admin also manages the members of the project. It
    holds from the next request on.

    \b
    Example:
      agents project add-member shop ada --role operator
    """
    from cleveragents.access.model.user import Role

    container = session.container()
    member = container.members.set(name, user, Role(role), now=container.clock.now())
    output.record(member_fields(member.name, member.role.value))


@project.command("remove-member")
@click.argument("name")
@click.argument("user")
@pass_session
def remove_member(session: Session, name: str, user: str) -> None:
    """Remove a user from a project, from the next request on.

    \b
    Example:
      agents project remove-member shop ada
    """
    container = session.container()
    container.members.remove(name, user, now=container.clock.now())
    progress(f"{user} is no longer a member of {name}")


def member_fields(name: str, role: str) -> dict[str, JsonValue]:
    """A member as rows and JSON show it."""
    return {"name": name, "role": role}


def show_members(rows: list[dict[str, JsonValue]], project: str, output: Output) -> None:
    """Print the members of a project."""
    empty = f"{project} has no members; `agents project add-member {project} USER` adds one"
    output.table(rows, ["name", "role"], empty=empty)
