"""`agents plan cancel|delete`, carried out by a server."""

from __future__ import annotations

from cleveragents.cli.asking import ensure_confirmed
from cleveragents.cli.client.accounts import Account, is_running, told_account
from cleveragents.cli.client.plan.following import PlansFollower, moment_now
from cleveragents.cli.client.problems import ServerSaid
from cleveragents.cli.client.selection import connected
from cleveragents.cli.client.server_client import ServerClient
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, progress
from cleveragents.cli.plan import ending as local
from cleveragents.cli.plan.work import interactive
from cleveragents.cli.session import Session

__all__ = ["cancel_plan", "delete_plan"]


def _cancel_plan(session: Session, plan_id: str, reason: str, remove_sandbox: bool, output: Output) -> None:
    client = connected(session)
    account = _cancelled(client, client.get(f"/plans/{plan_id}"), reason, output)
    if remove_sandbox:
        client.delete(f"/plans/{account['id']}/sandbox")
        account = client.get(f"/plans/{account['id']}")
    told_account(output, account)


def _cancelled(client: ServerClient, before: Account, reason: str, output: Output) -> Account:
    """The plan, when nothing of it runs any more."""
    if before["state"] == "cancelled":
        why = (before["error"] or "").removeprefix("cancelled: ")
        progress(f"plan {before['id']} was cancelled already ({why}); nothing was changed")
        return before
    under_way = is_running(before)
    after = moment_now(client, before)
    if under_way:
        progress(f"stopping plan {before['id']} and its processes …")
    account: Account = client.post(f"/plans/{before['id']}/cancel", {"reason": reason})
    if is_running(account):
        hint = "Ctrl-C leaves it to the server"
        following = PlansFollower(client, [account], output, after=after, hint=hint)
        try:
            (account,) = following.to_rest()
        finally:
            following.close()
    if under_way:
        progress(f"plan {account['id']} is cancelled, and none of its processes is left")
    return account


def _delete_plan(session: Session, plan_id: str, yes: bool) -> None:
    client = connected(session)
    account = client.get(f"/plans/{plan_id}")
    path = f"/plans/{account['id']}"
    try:
        client.delete(path, force="true" if yes else None)
    except ServerSaid as said:
        if said.code != "needs-human":
            raise
        if not interactive():
            raise
        ensure_confirmed(f"{said.message}. Delete it?")
        client.delete(path, force="true")
    progress(f"plan {account['id']} is deleted")


cancel_plan = client_command(local.cancel_plan, _cancel_plan)
delete_plan = client_command(local.delete_plan, _delete_plan)
