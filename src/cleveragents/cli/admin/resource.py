"""`agents resource`: which repositories the users of a server may run plans on."""

from __future__ import annotations

from pathlib import Path

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

__all__ = ["resource"]

_PAGE = 1000


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
@click.option("--branch", help="What plans on a remote begin with and are applied to; main if not said.")
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
    from cleveragents.api.views import as_json

    directory = _directory(session, path) if remote is None else None
    added = session.client().resources.add(
        name, project, path=directory, remote=remote, branch=branch, check=not no_check
    )
    fields = as_json(added)
    if warning := fields.pop("warning"):
        progress(f"warning: {warning}; --no-check says not to ask")
    progress(f"{name} is added: plans may run on {added.location}")
    output.record(fields)


def _directory(session: Session, path: Path | None) -> str:
    """Return the directory to add; on this machine, it is the current one if none is said."""
    from cleveragents.cli.servers import selected_url

    if selected_url(click.get_current_context(), session) is None:
        return str(Path.cwd() / (path or ""))
    if path is None:
        raise click.UsageError("say --remote URL, or --path with a directory of the server's machine")
    return str(path)


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
    from cleveragents.api.views import as_json, every
    from cleveragents.cli.servers import prefix_of

    resources = session.client().resources
    found = every(lambda after: resources.list(project=project, limit=_PAGE, after=after))
    rows = [as_json(one) for one in found]
    columns = ["name", "project", "kind", "location", "branch"]
    empty = f"there are no resources; `{prefix_of(session)} resource add NAME --project PROJECT` adds one"
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
    session.client().resources.remove(name)
    progress(f"{name} is removed; nothing in its repository was changed")
