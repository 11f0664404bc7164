"""`agents resource`: the repositories that users of a server may run plans on."""

from __future__ import annotations

from pathlib import Path

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

__all__ = ["resource"]

_PAGE = 1000


@click.group()
def resource() -> None:
    """Manage the repositories that users of a server may run plans on.

    \b
    Example:
      agents resource add shop-main --project shop
      agents resource list
    """


@resource.command("add")
@click.argument("name")
@click.option("--project", required=True, help="Project of the resource.")
@click.option(
    "--path",
    type=click.Path(path_type=Path),
    help="A directory in a repository of this machine. Default: the current directory.",
)
@click.option("--remote", metavar="URL", help="URL of a git repository that all workers can reach.")
@click.option("--branch", help="Branch of the remote for plans. Default: main.")
@click.option("--no-check", is_flag=True, help="Do not check that the remote has the branch.")
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
    """Register a repository for plans.

    The repository is a directory of this machine or a git remote. A URL with a password is refused, because
    all users see it: use ssh, or a git credential helper on the machines of the workers. A remote without the
    branch is refused; a remote that is unreachable from here is added with a warning.

    \b
    Example:
      agents resource add shop-main --project shop --path ~/src/shop
      agents resource add shop-far --project shop --remote git@git.example:shop.git --branch main
    """
    if remote is not None and path is not None:
        raise click.UsageError("pass --path or --remote, not both")
    if remote is None and branch is not None:
        raise click.UsageError("--branch needs --remote; plans in a directory start from its files")
    from cleveragents.api.views import as_json

    directory = _directory(session, path) if remote is None else None
    added = session.client().resources.add(
        name, project, path=directory, remote=remote, branch=branch, check=not no_check
    )
    fields = as_json(added)
    if warning := fields.pop("warning"):
        progress(f"warning: {warning}; pass --no-check to skip this check")
    progress(f"added {name}: plans may run on {added.location}")
    output.record(fields)


def _directory(session: Session, path: Path | None) -> str:
    """Return the directory to add. Default on this machine: the current directory."""
    from cleveragents.cli.servers import selected_url

    if selected_url(click.get_current_context(), session) is None:
        return str(Path.cwd() / (path or ""))
    if path is None:
        raise click.UsageError("pass --remote URL, or --path with a directory of the server's machine")
    return str(path)


@resource.command("list")
@click.option("--project", help="Only resources of this project.")
@format_option
@pass_session
def list_resources(session: Session, project: str | None, output: Output) -> None:
    """List resources and their locations.

    \b
    Example:
      agents resource list --project shop
    """
    from cleveragents.api.views import as_json, every
    from cleveragents.cli.servers import prefix_of

    resources = session.client().resources
    found = every(lambda after: resources.list(project=project, limit=_PAGE, after=after))
    rows = [as_json(one) for one in found]
    columns = ["name", "project", "kind", "location", "branch"]
    empty = f"no resources; add one with `{prefix_of(session)} resource add NAME --project PROJECT`"
    output.table(rows, columns, empty=empty, cut=["location"], spare=["kind", "branch", "project"])


@resource.command("remove")
@click.argument("name")
@pass_session
def remove_resource(session: Session, name: str) -> None:
    """Remove a repository from the resources. Its files stay, and running plans continue.

    \b
    Example:
      agents resource remove shop-main
    """
    session.client().resources.remove(name)
    progress(f"removed {name}; its repository is unchanged")
