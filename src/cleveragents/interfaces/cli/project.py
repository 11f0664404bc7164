"""`agents project`: repositories that belong together, for the users of a server."""

from __future__ import annotations

from collections import Counter

import click

from cleveragents.interfaces.cli.output import Output, format_option, progress
from cleveragents.interfaces.cli.session import Session, pass_session
from cleveragents.interfaces.desk.project_account import project_account

__all__ = ["project"]


@click.group()
def project() -> None:
    """Say which repositories belong together, and how many of their plans run at once.

    \b
    Example:
      agents project add shop --max-parallel 4
      agents resource add shop-main --project shop --path ~/src/shop
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
    """Remove a project that has no resources any more.

    Plans that ran on its resources stay as they are.

    \b
    Example:
      agents project remove shop
    """
    container = session.container()
    container.projects.remove(name, now=container.clock.now())
    progress(f"{name} is removed")
