"""`agents trust`: what a repository brings along, and whether it may count."""

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
_WHAT_COUNTS = "Actions, actors, skills, .mcp.json and .worktreeinclude count once trusted; others never do."


@click.command()
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option("--resource", metavar="NAME", help="What that resource brings along, instead of PATH.")
@click.option("--yes", is_flag=True, help="Trust it without asking; for scripts.")
@click.option("--list", "listing", is_flag=True, help="Show all that is trusted, anywhere.")
@click.option("--revoke", is_flag=True, help="Trust nothing at or below PATH any more.")
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
    """Trust what the repository at PATH brings along.

    A repository's .cleveragents.toml, .mcp.json, actions, checks and skills run nothing and loosen nothing
    until you trust them. You are shown what they would run. Trust is given to their content as it is now:
    when a file changes, you are asked again. PATH may also be a single file.

    With --resource it is what a resource of the server brings along; of a git remote, its branch as it is
    now. What is trusted there counts for plans on that remote, on every machine that shares the database.

    \b
    Example:
      agents trust
      agents trust --resource shop-far
      agents trust --list
      agents trust --revoke ~/src/project
    """
    if listing and revoke:
        raise click.UsageError("--list shows, --revoke takes away; say one of them")
    from cleveragents.api.trust import LocalTrust

    client = _client(session, resource).trust
    if listing:
        _show_all(client, output)
        return
    place: Path | str = path if resource is None else resource
    if resource is None and not isinstance(client, LocalTrust):
        raise click.UsageError("a server has no PATH of yours: --resource NAME names what it has")
    if revoke:
        gone = client.revoke(place).paths
        output.table([{"path": name} for name in gone], ["path"], empty=f"nothing at {place} was trusted")
        if gone:
            progress(f"no longer trusted: {counted(len(gone), 'file')}")
    else:
        _trust(client, place, yes, output)


def _client(session: Session, resource: str | None) -> Client:
    """Return the client to ask. A path is one of this machine, unless `--server` was said: where a server was
    only set, this machine is meant."""
    from cleveragents.api.client import LocalClient
    from cleveragents.cli.servers import given_server

    if resource is None and given_server(click.get_current_context()) is None:
        return LocalClient(session.container())
    return session.client()


def _show_all(trust: Trust, output: Output) -> None:
    from cleveragents.api.views import as_json, every

    rows = [as_json(one) for one in every(lambda after: trust.list(limit=_PAGE, after=after))]
    output.table(rows, ["path", "trusted", "digest"], empty="nothing is trusted")


def _trust(trust: Trust, place: Path | str, yes: bool, output: Output) -> None:
    survey = trust.survey(place)
    for one in survey.refused:
        progress(f"not trusted: {printable(one.path)} {one.why}")
    pending = [file for file in survey.files if not file.trusted]
    if pending:
        _preview(survey.resource, pending)
        if not yes and not _confirmed(survey.resource, len(pending), place):
            progress("nothing was trusted")
            raise click.exceptions.Exit(1)
        # What was shown is what is trusted: what changed meanwhile is refused.
        trust.give(place, [(file.path, file.digest) for file in pending])
    empty = f"{survey.resource} brings nothing along that would need trust"
    output.table([_row(file) for file in survey.files], ["path", "size", "state"], empty=empty)


def _preview(name: str, pending: list[UntrustedFileView]) -> None:
    progress(f"{name} brings along:")
    for file in pending:
        progress(f"  {printable(file.path)} ({file.size} bytes)")
        for line in file.preview:
            progress(f"      {printable(line)}")
    progress(_WHAT_COUNTS)


def _confirmed(name: str, count: int, place: Path | str) -> bool:
    from cleveragents.core.errors import NotTrusted

    if not sys.stdin.isatty():
        resource = None if isinstance(place, Path) else place
        raise NotTrusted(f"what {name} brings along ({counted(count, 'file')})", name, resource, confirm=True)
    return confirmed(f"Trust {counted(count, 'file')}, as they are now?")


def _row(file: UntrustedFileView) -> dict[str, JsonValue]:
    return {
        "path": file.path,
        "size": file.size,
        "state": "trusted already" if file.trusted else "trusted",
        "digest": file.digest,
    }
