"""`agents plan watch`, asked of a server."""

from __future__ import annotations

import click

from cleveragents.api.wording import on_one_line
from cleveragents.cli.client.accounts import (
    exit_code_of,
    is_done,
    is_running,
    tell_changes,
    tell_next,
    tell_reason,
    told_account,
)
from cleveragents.cli.client.plan.following import PlansFollower, moment_now
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, progress
from cleveragents.cli.plan import watch as local_watch
from cleveragents.cli.session import Session

__all__ = ["watch_plan"]


def _watch_plan(session: Session, plan_id: str, output: Output) -> None:
    client, prefix = connected(session), prefix_of(session)
    after = moment_now(client)
    account = client.get(f"/plans/{plan_id}")
    hint = "Ctrl-C ends the watching, not the plan"
    following = PlansFollower(client, [account], output, after=after, standings=True, hint=hint)
    try:
        following.say(account["id"], f"plan {account['id']}: {on_one_line(account['goal'])}")
        (account,) = following.to_rest()
    except KeyboardInterrupt:
        following.close()
        progress(f"the plan goes on; `{prefix} plan cancel {account['id']}` stops it")
        raise
    finally:
        following.close()
    if is_done(account):
        tell_changes(account)
    elif account["state"] != "applied" and not is_running(account):
        tell_reason(account)
    tell_next(account, prefix)
    told_account(output, account)
    code = exit_code_of(account)
    if code:
        raise click.exceptions.Exit(code)


watch_plan = client_command(local_watch.watch_plan, _watch_plan)
