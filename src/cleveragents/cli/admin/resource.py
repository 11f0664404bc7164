"""`agents resource`: which repositories the users of a server may run plans on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.project_account import (
    DEFAULT_BRANCH,
    add_directory,
    ensure_branch_there,
    resource_account,
)
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.app.container import Container

__all__ = ["resource"]


@click.group()
def resource() -> None:
    """Say which repositories the users of a server may run plans on.

    \b
    Example:
      agents resource add shop-main --project shop
      agents resource list
    """


@resource.command("add")
@click.argument("name")
@click.option("--project", required=True, help="The project that it belongs to.")
@click.option(
    "--path",
    type=click.Path(path_type=Path),
    help="A directory of this machine; the repository that it lies in. The current one, if nothing is said.",
)
@click.option("--remote", metavar="URL", help="A git repository elsewhere, which workers anywhere can reach.")
@click.option(
    "--branch", help=f"What plans on a remote begin with and are applied to; {DEFAULT_BRANCH} if not said."
)
@click.option("--no-check", is_flag=True, help="Do not ask the remote whether it is there.")
@format_option
@pass_session
def add_resource(
    session: Session,
    name: str,
    project: str,
    path: Path | None,
    remote: str | None,
    branch: str | None,
    no_check: bool,
    output: Output,
) -> None:
    """Let plans run on a repository.

    It is a directory of this machine, or a git remote. An address that holds a password is refused, because
    all users see it: use ssh, or a credential helper of git on the machines where workers run. A remote is
    asked whether it has the branch; one that cannot be reached from here is added with a warning.

    \b
    Example:
      agents resource add shop-main --project shop --path ~/src/shop
      agents resource add shop-far --project shop --remote git@git.example:shop.git --branch main
    """
    if remote is not None and path is not None:
        raise click.UsageError("say --path or --remote, not both")
    if remote is None and branch is not None:
        raise click.UsageError("--branch is for a --remote; plans in a directory begin with what is there")
    container = session.container()
    now = container.clock.now()
    if remote is None:
        added = add_directory(container.projects, name, project, path or Path.cwd(), now=now)
    else:
        if not no_check:
            _check(container, remote, branch or DEFAULT_BRANCH)
        added = container.projects.add_resource(
            name, project, ResourceKind.REMOTE, remote, branch=branch or DEFAULT_BRANCH, now=now
        )
    progress(f"{name} is added: plans may run on {added.location}")
    output.record(resource_account(added))


def _check(container: Container, remote: str, branch: str) -> None:
    from cleveragents.core.errors import RemoteUnreachable

    try:
        ensure_branch_there(container, remote, branch)
    except RemoteUnreachable as error:
        # Workers on other machines may reach it all the same.
        progress(f"warning: {error}; --no-check says not to ask")


@resource.command("list")
@click.option("--project", help="Only those of this one.")
@format_option
@pass_session
def list_resources(session: Session, project: str | None, output: Output) -> None:
    """List resources, with where they are.

    \b
    Example:
      agents resource list --project shop
    """
    store = session.container().projects
    if project is not None:
        store.get(project)
    rows = [resource_account(one) for one in store.resources(project)]
    columns = ["name", "project", "kind", "location", "branch"]
    empty = "there are no resources; `agents resource add NAME --project PROJECT` adds one"
    output.table(rows, columns, empty=empty, cut=["location"], spare=["kind", "branch", "project"])


@resource.command("remove")
@click.argument("name")
@pass_session
def remove_resource(session: Session, name: str) -> None:
    """Let no new plan run on a repository; its files stay, and plans that run on it go on.

    \b
    Example:
      agents resource remove shop-main
    """
    container = session.container()
    container.projects.remove_resource(name, now=container.clock.now())
    progress(f"{name} is removed; nothing in its repository was changed")
