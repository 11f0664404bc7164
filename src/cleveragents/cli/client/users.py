"""`agents user`, asked of a server."""

from __future__ import annotations

from typing import Any

import click

from cleveragents.cli.admin import user as local
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import ClientGroup, client_command
from cleveragents.cli.output import Output, progress
from cleveragents.cli.session import Session
from cleveragents.core.errors import UnknownUser

__all__ = ["user"]

_NAMED = {"name": UnknownUser}


def _add_user(session: Session, name: str, role: str, project: str | None, output: Output) -> None:
    new = {"name": name, "role": role, "project": project}
    output.record(_shown(connected(session).post("/users", new), output))
    progress(f"`{prefix_of(session)} user token {name}` makes a token for them")


def _list_users(session: Session, output: Output) -> None:
    client = connected(session)
    rows = [
        {**_shown(row, output), "tokens": len(list(client.pages(f"/users/{row['name']}/tokens")))}
        for row in client.pages("/users")
    ]
    output.table(rows, ["name", "role", "projects", "tokens", "created"], empty="there are no users yet")


def _remove_user(session: Session, name: str) -> None:
    connected(session).delete(f"/users/{name}")
    progress(f"{name} was removed; their tokens are worthless from now on")


def _change_role(session: Session, name: str, role: str, output: Output) -> None:
    changed = connected(session).patch(f"/users/{name}", {"role": role})
    output.record(_shown(changed, output))


def _token(
    session: Session,
    name: str,
    label: str,
    days: int | None,
    listing: bool,
    revoke: str | None,
    alone: bool,
    output: Output,
) -> None:
    if listing and revoke:
        raise click.UsageError("--list shows, --revoke takes away; say one of them")
    if alone and not revoke:
        raise click.UsageError("--alone belongs to --revoke")
    client = connected(session)
    if listing:
        rows = list(client.pages(f"/users/{name}/tokens"))
        columns = ["id", "kind", "label", "created", "expires"]
        output.table(rows, columns, empty=f"{name} has no tokens", cut=["label"])
    elif revoke:
        client.delete(f"/tokens/{revoke}", alone=alone or None)
        progress(local.revoked_in_words(name, revoke, alone=alone))
    else:
        made = client.post(f"/users/{name}/tokens", {"label": label, "days": days})
        if output.for_programs:
            output.record(made)
            return
        click.echo(made["token"])
        progress(f"this is the only time that it is shown; `--revoke {made['id']}` makes it worthless")


def _shown(row: dict[str, Any], output: Output) -> dict[str, Any]:
    # A server of an older version knows no roles in projects.
    return local.user_fields(row["name"], row["role"], row["created"], row.get("projects", {}), output)


user = ClientGroup(
    local.user,
    {
        "add": client_command(local.add_user, _add_user),
        "list": client_command(local.list_users, _list_users),
        "remove": client_command(local.remove_user, _remove_user, named=_NAMED),
        "role": client_command(local.change_role, _change_role, named=_NAMED),
        "token": client_command(local.token, _token, named=_NAMED),
    },
)
