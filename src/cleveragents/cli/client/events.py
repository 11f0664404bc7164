"""`agents events tail|verify`, asked of a server."""

from __future__ import annotations

from typing import Any

import click

from cleveragents.cli.admin import events as local
from cleveragents.cli.client.following import Follower
from cleveragents.cli.client.selection import connected
from cleveragents.cli.client.server_client import ServerClient
from cleveragents.cli.client.twins import ClientGroup, client_command
from cleveragents.cli.output import Output
from cleveragents.cli.session import Session

__all__ = ["events"]

_OWN_ANCHOR = "the server compares the log with its own audit.anchor; run the command on the server"
_COLUMNS = ["position", "time", "type", "subject", "facts"]


def _tail(
    session: Session, follow: bool, after: int | None, limit: int, type_name: str | None, output: Output
) -> None:
    from cleveragents.core.event import EventType

    wanted = None if type_name is None else EventType.parse(type_name).value
    client = connected(session)
    # Before the look: what comes meanwhile is followed.
    end = client.get("/events", limit=1)["items"]
    looked_until = end[-1]["position"] if end else 0
    rows = _some(client, after, limit, wanted)
    output.table(rows, _COLUMNS, empty="there are no such events")
    if follow:
        last = rows[-1]["position"] if rows else max(after or 0, looked_until)
        for frame in Follower(client, last).frames():
            if frame.kind and frame.kind != "output" and wanted in (None, frame.kind):
                output.line(dict(frame.data), _COLUMNS)


def _some(client: ServerClient, after: int | None, limit: int, wanted: str | None) -> list[dict[str, Any]]:
    """The first `limit` events after a position or, without one, the last."""
    if after is None and limit <= 1000:
        found: list[dict[str, Any]] = client.get("/events", limit=limit, type=wanted)["items"]
        return found
    if after is not None:
        return list(client.pages("/events", at_most=limit, after=after, type=wanted))
    return list(client.pages("/events", after=0, type=wanted))[-limit:]


def _verify(session: Session, output: Output) -> None:
    report = connected(session).get("/events/verification")
    local.show_verification({"anchors": [], **report}, output)  # an older server does not know anchors
    if not report["ok"]:
        raise click.exceptions.Exit(1)


events = ClientGroup(
    local.events,
    {
        "tail": client_command(local.tail, _tail),
        "verify": client_command(
            local.verify,
            _verify,
            refused=dict.fromkeys(("targets", "public_keys", "without_head"), _OWN_ANCHOR),
        ),
    },
    refused={
        "adopt": "who attests the log has to be at the machine that keeps it; say it there",
        "anchor": "the signing key is on the machine that keeps the log; run the command there",
    },
)
