"""`agents project`: projects of a server, with their repositories and members."""

from __future__ import annotations

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

__all__ = ["project"]

_PAGE = 1000


@click.group()
def project() -> None:
    """Manage projects, their members and their concurrency limits.

    Users of a server see and change only the projects they are members of. Plans without a project belong to
    the project `default`.

    \b
    Example:
      agents project add shop --max-parallel 4
      agents resource add shop-main --project shop --path ~/src/shop
      agents project add-member shop ada --role operator
    """


@project.command("add")
@click.argument("name")
@click.option("--description", default="", help="Description for lists.")
@click.option(
    "--max-parallel",
    type=click.IntRange(1, 10_000),
    help="Maximum number of jobs in parallel, on all machines together. Default: no limit.",
)
@format_option
@pass_session
def add_project(
    session: Session, name: str, description: str, max_parallel: int | None, output: Output
) -> None:
    """Add a project.

    NAME consists of lower-case letters, digits and ._-

    \b
    Example:
      agents project add shop --max-parallel 4 --description "the web shop"
    """
    from cleveragents.api.views import as_json
    from cleveragents.cli.servers import prefix_of

    added = session.client().projects.add(name, description=description, max_parallel=max_parallel)
    more = f"add repositories with `{prefix_of(session)} resource add NAME --project {name}`"
    progress(f"added {name}; {more}")
    output.record(as_json(added))


@project.command("list")
@format_option
@pass_session
def list_projects(session: Session, output: Output) -> None:
    """List projects with their number of resources.

    \b
    Example:
      agents project list --format json
    """
    from cleveragents.api.views import as_json, every
    from cleveragents.cli.servers import prefix_of

    projects = session.client().projects
    rows = [as_json(one) for one in every(lambda after: projects.list(limit=_PAGE, after=after))]
    columns = ["name", "max_parallel", "resources", "description"]
    empty = f"no projects; add one with `{prefix_of(session)} project add NAME`"
    output.table(rows, columns, empty=empty)


@project.command("remove")
@click.argument("name")
@pass_session
def remove_project(session: Session, name: str) -> None:
    """Remove a project without resources and plans.

    Its memberships end. The project `default` cannot be removed.

    \b
    Example:
      agents project remove shop
    """
    session.client().projects.remove(name)
    progress(f"removed {name}")


@project.command("members")
@click.argument("name")
@format_option
@pass_session
def list_members(session: Session, name: str, output: Output) -> None:
    """List the members of a project and their roles.

    Server admins may act in every project; they are listed only where they are members.

    \b
    Example:
      agents project members shop
    """
    from cleveragents.api.views import as_json, every
    from cleveragents.cli.servers import prefix_of

    projects = session.client().projects
    rows = [as_json(one) for one in every(lambda after: projects.members(name, limit=_PAGE, after=after))]
    empty = f"{name} has no members; add one with `{prefix_of(session)} project add-member {name} USER`"
    output.table(rows, ["name", "role"], empty=empty)


@project.command("add-member")
@click.argument("name")
@click.argument("user")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    show_default=True,
    help="Role in the project.",
)
@format_option
@pass_session
def add_member(session: Session, name: str, user: str, role: str, output: Output) -> None:
    """Add a user to a project, or change their role in it.

    A viewer reads, an operator also works with plans, an admin also manages members. The role applies from
    the next request.

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
    """Remove a user from a project. Takes effect with the next request.

    \b
    Example:
      agents project remove-member shop ada
    """
    session.client().projects.remove_member(name, user)
    progress(f"removed {user} from {name}")
