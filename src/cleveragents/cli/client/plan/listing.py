"""`agents plan list`, asked of a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cleveragents.cli.client.accounts import as_local, title_of
from cleveragents.cli.client.places import resource_here
from cleveragents.cli.client.selection import connected
from cleveragents.cli.client.server_client import ServerClient
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, ago, progress
from cleveragents.cli.plan import listing as local
from cleveragents.cli.session import Session

__all__ = ["list_plans"]

Rows = list[dict[str, Any]]


def _list_plans(
    session: Session,
    states: tuple[str, ...],
    here: bool,
    every: bool,
    limit: int,
    after: str | None,
    output: Output,
) -> None:
    client = connected(session)
    resource = resource_here(client, None, otherwise="leave --here out") if here else None
    query = {"state": list(states), "resource": resource, "all": "true" if every else None}
    if after is None:
        # One more than is shown says whether there are others.
        found = list(client.pages("/plans", at_most=limit + 1, **query))
        shown = found[:limit][::-1]
    else:
        found = _made_since(client, after, query)
        shown = found[:limit]
    rows = [_row(row, output) for row in _in_families(shown)]
    columns = ["id", "phase", "state", "updated", "goal"]
    if output.for_eyes:
        columns.remove("phase")  # an id and a goal need the room
    empty = local.none_listed(narrowed=bool(states or here or after))
    output.table(rows, columns, empty=empty, cut=["goal"], spare=["updated"])
    if len(found) > limit and after is None:
        progress(f"these are the latest {limit}; --limit shows more")
    elif len(found) > limit:
        progress(f"there may be more: --after {shown[-1]['id']}")


def _made_since(client: ServerClient, after: str, query: dict[str, Any]) -> Rows:
    """The oldest first. The server has the newest first, so all of them are asked for."""
    found: Rows = []
    for row in client.pages("/plans", **query):
        if row["id"] <= after:
            break
        found.append(row)
    return found[::-1]


def _in_families(rows: Sequence[dict[str, Any]]) -> Rows:
    """Sub-plans after their parents; those whose parent is not among them stay where they are."""
    known = {row["id"] for row in rows}
    children: dict[str | None, Rows] = {}
    for row in rows:
        children.setdefault(row["parent"] if row["parent"] in known else None, []).append(row)

    def family(parent: str | None) -> Rows:
        return [one for row in children.get(parent, ()) for one in (row, *family(row["id"]))]

    return family(None)


def _row(row: dict[str, Any], output: Output) -> dict[str, Any]:
    if output.for_programs:
        return as_local(row)
    shown = {**row, "goal": f"{'  ' * row['depth']}{title_of(row)}"}
    if output.for_eyes:
        moment = datetime.fromisoformat(row["updated"])
        shown |= {"updated": ago(moment, datetime.now(UTC)), "state": row["needs"] or row["state"]}
    return shown


list_plans = client_command(local.list_plans, _list_plans)
