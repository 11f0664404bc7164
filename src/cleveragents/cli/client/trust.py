"""`agents trust`, asked of a server: what a resource of it brings along, by its name.

A path is one of this machine. Where a server was only set, and not said, that is what is meant.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleveragents.cli.admin import trust as local
from cleveragents.cli.asking import confirmed
from cleveragents.cli.client.selection import connected, prefix_of, said_server
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, counted, printable, progress

if TYPE_CHECKING:
    from cleveragents.cli.client.server_client import ServerClient
    from cleveragents.cli.session import Session

__all__ = ["trust"]


class _NotRead(click.ClickException):
    """Nobody is there who could read it."""

    exit_code = 3


def _trust(
    session: Session,
    path: Path,
    resource: str | None,
    yes: bool,
    listing: bool,
    revoke: bool,
    output: Output,
) -> None:
    ctx = click.get_current_context()
    if listing and revoke:
        raise click.UsageError("--list shows, --revoke takes away; say one of them")
    if resource is None and said_server(ctx) is None:
        words = {"resource": None, "yes": yes, "listing": listing, "revoke": revoke}
        ctx.invoke(local.trust, path=path, output=output, **words)
        return
    if listing:
        rows = list(connected(session).pages("/trust"))
        output.table(rows, ["path", "trusted", "digest"], empty="nothing is trusted")
        return
    if resource is None or "/" in resource:
        raise click.UsageError("a server has no PATH of yours: --resource NAME names what it has")
    if revoke:
        _revoke(connected(session), resource, output)
    else:
        _give(session, connected(session), resource, yes, output)


def _revoke(client: ServerClient, resource: str, output: Output) -> None:
    gone = client.post(f"/resources/{resource}/trust/revoke")["paths"]
    output.table([{"path": name} for name in gone], ["path"], empty=f"nothing at {resource} was trusted")
    if gone:
        progress(f"no longer trusted: {counted(len(gone), 'file')}")


def _give(session: Session, client: ServerClient, resource: str, yes: bool, output: Output) -> None:
    survey = client.get(f"/resources/{resource}/trust")
    for one in survey["refused"]:
        progress(f"not trusted: {one['path']} {one['why']}")
    pending = [file for file in survey["files"] if not file["trusted"]]
    if pending:
        _preview(resource, pending)
        if not yes and not _confirmed(session, resource, len(pending)):
            progress("nothing was trusted")
            raise click.exceptions.Exit(1)
        # What was shown is what is trusted: the server refuses what changed meanwhile.
        seen = [{"path": file["path"], "digest": file["digest"]} for file in pending]
        client.post(f"/resources/{resource}/trust", {"files": seen})
    empty = f"{resource} brings nothing along that would need trust"
    output.table([_row(file) for file in survey["files"]], ["path", "size", "state"], empty=empty)


def _preview(resource: str, pending: list[dict[str, Any]]) -> None:
    progress(f"{resource} brings along:")
    for file in pending:
        progress(f"  {printable(file['path'])} ({file['size']} bytes)")
        for line in file["preview"]:
            progress(f"      {printable(line)}")
    progress(local.WHAT_COUNTS)


def _confirmed(session: Session, resource: str, count: int) -> bool:
    if not sys.stdin.isatty():
        said = f"what {resource} brings along ({counted(count, 'file')}) is not trusted"
        remedy = f"read it, then say `{prefix_of(session)} trust --resource {resource} --yes`"
        raise _NotRead(f"{said}; {remedy}")
    return confirmed(f"Trust {counted(count, 'file')}, as they are now?")


def _row(file: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": file["path"],
        "size": file["size"],
        "state": "trusted already" if file["trusted"] else "trusted",
        "digest": file["digest"],
    }


trust = client_command(local.trust, _trust)
