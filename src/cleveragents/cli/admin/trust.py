"""`agents trust`: trusted config of repositories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.prompts import confirmed
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.trust import Trust, UntrustedFileView
    from cleveragents.core.json_value import JsonValue

__all__ = ["trust"]

_PAGE = 1000
_WHAT_COUNTS = "Trusted files: actions, actors, skills, .mcp.json and .worktreeinclude."


@click.command()
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option("--resource", metavar="NAME", help="Files of this resource, instead of PATH.")
@click.option("--yes", is_flag=True, help="Trust the files without asking, for scripts.")
@click.option("--list", "listing", is_flag=True, help="List all trusted files.")
@click.option("--revoke", is_flag=True, help="Revoke the trust of all files at or below PATH.")
@format_option
@pass_session
def trust(
    session: Session,
    path: Path,
    resource: str | None,
    yes: bool,
    listing: bool,
    revoke: bool,
    output: Output,
) -> None:
    """Trust the config files of the repository at PATH.

    Files of a repository that can run code (.mcp.json, actions, actors, checks, skills) have no
    effect until you trust them. The command shows what they would run. Trust covers their present content:
    a changed file needs trust again. PATH may also be a single file.

    With --resource, trust the files of a resource of the server; for a git remote, those of its branch as it
    is now. This trust applies to plans on the remote on every machine that shares the database.

    \b
    Example:
      agents trust
      agents trust --resource shop-far
      agents trust --list
      agents trust --revoke ~/src/project
    """
    if listing and revoke:
        raise click.UsageError("pass --list or --revoke, not both")
    from cleveragents.api.trust import LocalTrust

    client = _client(session, resource).trust
    if listing:
        _show_all(client, output)
        return
    place: Path | str = path if resource is None else resource
    if resource is None and not isinstance(client, LocalTrust):
        raise click.UsageError("PATH is on this machine; pass --resource NAME for a server")
    if revoke:
        gone = client.revoke(place).paths
        output.table([{"path": name} for name in gone], ["path"], empty=f"no trusted files at {place}")
        if gone:
            progress(f"revoked the trust of {counted(len(gone), 'file')}")
    else:
        _trust(client, place, yes, output)


def _client(session: Session, resource: str | None) -> Client:
    """Return the client for the command. A path refers to this machine unless `--server` is passed; the
    setting `server.address` alone does not count."""
    from cleveragents.api.client import LocalClient
    from cleveragents.cli.servers import given_server

    if resource is None and given_server(click.get_current_context()) is None:
        return LocalClient(session.container())
    return session.client()


def _show_all(trust: Trust, output: Output) -> None:
    from cleveragents.api.views import as_json, every

    rows = [as_json(one) for one in every(lambda after: trust.list(limit=_PAGE, after=after))]
    output.table(rows, ["path", "trusted", "digest"], empty="no trusted files")


def _trust(trust: Trust, place: Path | str, yes: bool, output: Output) -> None:
    survey = trust.survey(place)
    for one in survey.refused:
        progress(f"not trusted: {printable(one.path)} {one.why}")
    pending = [file for file in survey.files if not file.trusted]
    if pending:
        _preview(survey.resource, pending)
        if not yes and not _confirmed(survey.resource, len(pending), place):
            progress("no files were trusted")
            raise click.exceptions.Exit(1)
        # Trust covers the shown content: a file that changed since is refused.
        trust.give(place, [(file.path, file.digest) for file in pending])
    empty = f"{survey.resource} has no files that need trust"
    output.table([_row(file) for file in survey.files], ["path", "size", "state"], empty=empty)


def _preview(name: str, pending: list[UntrustedFileView]) -> None:
    progress(f"{name} needs trust for:")
    for file in pending:
        progress(f"  {printable(file.path)} ({file.size} bytes)")
        for line in file.preview:
            progress(f"      {printable(line)}")
    progress(_WHAT_COUNTS)


def _confirmed(name: str, count: int, place: Path | str) -> bool:
    from cleveragents.core.errors import NotTrusted

    if not sys.stdin.isatty():
        resource = None if isinstance(place, Path) else place
        raise NotTrusted(f"{counted(count, 'file')} of {name}", name, resource, confirm=True)
    return confirmed(f"Trust {counted(count, 'file')} in the present version?")


def _row(file: UntrustedFileView) -> dict[str, JsonValue]:
    return {
        "path": file.path,
        "size": file.size,
        "state": "already trusted" if file.trusted else "trusted",
        "digest": file.digest,
    }
