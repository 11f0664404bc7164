"""`agents project`: projects of a server, with their repositories and members."""

from __future__ import annotations

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

__all__ = ["project"]

_PAGE = 1000


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
    from cleveragents.api.views import as_json
    from cleveragents.cli.servers import prefix_of

    added = session.client().projects.add(name, description=description, max_parallel=max_parallel)
    more = f"`{prefix_of(session)} resource add NAME --project {name}` says what plans may run on"
    progress(f"{name} is added; {more}")
    output.record(as_json(added))


@project.command("list")
@format_option
@pass_session
def list_projects(session: Session, output: Output) -> None:
    """List projects, with how many resources each has.

    \b
    Example:
      agents project list --format json
    """
    from cleveragents.api.views import as_json, every
    from cleveragents.cli.servers import prefix_of

    projects = session.client().projects
    rows = [as_json(one) for one in every(lambda after: projects.list(limit=_PAGE, after=after))]
    columns = ["name", "max_parallel", "resources", "description"]
    empty = f"there are no projects; `{prefix_of(session)} project add NAME` adds one"
    output.table(rows, columns, empty=empty)


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
    session.client().projects.remove(name)
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
    from cleveragents.api.views import as_json, every
    from cleveragents.cli.servers import prefix_of

    projects = session.client().projects
    rows = [as_json(one) for one in every(lambda after: projects.members(name, limit=_PAGE, after=after))]
    empty = f"{name} has no members; `{prefix_of(session)} project add-member {name} USER` adds one"
    output.table(rows, ["name", "role"], empty=empty)


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
    from cleveragents.api.views import as_json

    output.record(as_json(session.client().projects.set_member(name, user, Role(role))))


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
    session.client().projects.remove_member(name, user)
    progress(f"{user} is no longer a member of {name}")
