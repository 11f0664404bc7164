"""`agents plan show|watch|log`, asked of a server."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from cleveragents.api.wording import on_one_line
from cleveragents.api.workers import isolation_in_words
from cleveragents.cli.client.accounts import (
    Account,
    as_local,
    error_of,
    exit_code_of,
    is_done,
    is_running,
    next_steps,
    tell_changes,
    tell_next,
    tell_reason,
    told_account,
)
from cleveragents.cli.client.plan.following import PlansFollower, moment_now
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, ago, counted, progress
from cleveragents.cli.plan import reading as local
from cleveragents.cli.plan import watch as local_watch
from cleveragents.cli.plan.sections import (
    CALL_COLUMNS,
    first_line,
    section,
    show_changes,
    show_checks,
    show_sub_plans,
)
from cleveragents.cli.render.narrow import steps_in_lines
from cleveragents.cli.session import Session

__all__ = ["show_plan", "watch_plan"]


def _show_plan(session: Session, plan_id: str, output: Output) -> None:
    account = connected(session).get(f"/plans/{plan_id}")
    if output.for_programs:
        output.record(as_local(account))
        return
    output.record(_heading(account))
    show_sub_plans(output, account)
    show_changes(output, account)
    section(output, "what it did", account["calls"], CALL_COLUMNS, cut="what", spare="changed")
    show_checks(output, account)
    steps = next_steps(account, prefix_of(session))
    if steps:
        output.title("what next")
        for line in steps_in_lines(steps, sys.stdout):
            click.echo(line)


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


def _heading(account: Account) -> dict[str, Any]:
    """What people want to know first; what there is not is left out."""
    waiting = account["waiting_for"] if isinstance(account["waiting_for"], dict) else {}
    since = ago(datetime.fromisoformat(account["updated"]), datetime.now(UTC))
    works_on = account["resource"]
    said = {
        "plan": account["id"],
        "goal": on_one_line(account["goal"]),
        "state": account["meaning"],
        "waits for": on_one_line(str(waiting.get("what") or "")) if account["state"] == "waiting" else None,
        "error": first_line(error_of(account, "")) if account["state"] != "applied" else None,
        "part of": account["parent"],
        "works on": f"{works_on}, which is out of reach" if account["out_of_reach"] else works_on,
        "pushed to" if account["state"] in ("applied", "undone") else "pushes to": account["branch"],
        "resource": account["resource_name"],
        "project": account["project"],
        "profile": account["request"].get("profile"),
        "isolation": isolation_in_words(account.get("isolation")),
        "spent": _spent(account["spending"]),
        "created": account["created"],
        "updated": f"{account['updated']} ({since})",
        "sandbox": account["sandbox"],
        "notes": "; ".join(account["notes"]),
        "review": account["review_problem"],
    }
    return {name: value for name, value in said.items() if value}


def _spent(spending: Account) -> str | None:
    if spending["model_calls"] is None:
        return None
    price = "price not known" if spending["usd"] is None else f"${spending['usd']:.4f}"
    calls, tokens = counted(spending["model_calls"], "model call"), counted(spending["tokens"], "token")
    return f"{calls}, {tokens}, {price}"


show_plan = client_command(local.show_plan, _show_plan)
watch_plan = client_command(local_watch.watch_plan, _watch_plan)
