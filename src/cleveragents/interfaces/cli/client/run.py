"""`agents run`, carried out by a server: made there, followed and decided about here."""

from __future__ import annotations

import sys
from typing import Any

import click

from cleveragents.domain.action_arguments import Argument, ArgumentType, parsed
from cleveragents.domain.budget import Limits
from cleveragents.domain.json_value import freeze, thaw
from cleveragents.interfaces.cli import run as local
from cleveragents.interfaces.cli.client.accounts import Account
from cleveragents.interfaces.cli.client.places import resource_here
from cleveragents.interfaces.cli.client.plan_deciding import Deciding, decide, told_at_the_end, work_on
from cleveragents.interfaces.cli.client.plan_decisions import given_limits
from cleveragents.interfaces.cli.client.plan_following import Moment, moment_now
from cleveragents.interfaces.cli.client.selection import connected, prefix_of
from cleveragents.interfaces.cli.client.server_client import ServerClient
from cleveragents.interfaces.cli.client.twins import client_command
from cleveragents.interfaces.cli.goals_file import text_of_stdin
from cleveragents.interfaces.cli.narrow import steps_in_lines
from cleveragents.interfaces.cli.output import Output, progress
from cleveragents.interfaces.cli.session import Session

__all__ = ["run"]

_NOT_HERE = ("start", "include", "file", "going_on", "here")
_resource = click.Option(
    ["--resource"], metavar="NAME", help="What it works on; else the one that is the repository you are in."
)

_to_branch = click.Option(
    ["--to-branch"],
    metavar="NAME",
    help="Of a git remote: the result is pushed to this new branch; {plan} in it stands for the plan's id.",
)


def _run(
    session: Session,
    words: tuple[str, ...],
    action: str | None,
    pairs: tuple[str, ...],
    checks: tuple[str, ...],
    invariants: tuple[str, ...],
    profile: str | None,
    goal: str | None,
    yes: bool,
    message: str | None,
    only_review: bool,
    model: str | None,
    actor: str | None,
    limits: Limits,
    parallel: int | None,
    background: bool,
    resource: str | None,
    to_branch: str | None,
    output: Output,
) -> None:
    if yes and only_review:
        raise click.UsageError("--yes applies the result, --review leaves it; say one of them")
    client = connected(session)
    body = {
        "resource": resource_here(client, resource),
        **_wanted(client, words, action, pairs, goal, resource),
        "actor": actor,
        "model": model,
        "profile": profile,
        "checks": list(checks),
        "invariants": list(invariants),
        "limits": given_limits(limits),
        "max_parallel": parallel,
        # What is to be committed is applied when the message is told, and not before.
        "to_branch": to_branch,
        "apply": "review" if only_review or message is not None else "auto" if yes else None,
    }
    deciding = Deciding(client, prefix_of(session), output, yes, only_review, message)
    after = moment_now(client)
    account = client.post("/plans", body)
    if background:
        _tell_started(deciding, account)
    else:
        _run_here(deciding, account, after)


def _run_here(deciding: Deciding, account: Account, after: Moment) -> None:
    with told_at_the_end(deciding, account["id"]):
        decide(deciding, work_on(deciding, account, after=after))


def _tell_started(deciding: Deciding, account: Account) -> None:
    name = account["id"]
    progress(f"plan {name} runs on {deciding.client.url}")
    said = (("watch", "follows it"), ("show", "says where it stands"), ("cancel", "stops it"))
    steps = [(f"{deciding.prefix} plan {step} {name}", what) for step, what in said]
    if deciding.message is not None:
        progress("it is not applied by itself: `plan apply --commit` does both")
    for line in steps_in_lines(steps, sys.stderr):
        progress(line)
    told = {"plan": name, "goal": account["goal"], "state": account["state"], "server": deciding.client.url}
    deciding.output.record(told)


def _wanted(
    client: ServerClient,
    words: tuple[str, ...],
    action: str | None,
    pairs: tuple[str, ...],
    goal: str | None,
    resource: str | None,
) -> dict[str, Any]:
    if action is None:
        if pairs:
            raise click.UsageError("--arg is for an --action; say the goal in words")
        said = text_of_stdin("the goal on stdin") if words == ("-",) else " ".join(words)
        if not said.strip():
            raise click.UsageError('say what is wanted: `agents run "Add a --json flag to the export"`')
        return {"goal": said.strip()}
    found = client.get(f"/actions/{action}", resource=resource)
    known = [
        Argument(
            name=one["name"],
            type=ArgumentType(one["type"]),
            default=None if one["required"] else freeze(one["default"]),
            description=one["description"],
            rest=one["rest"],
        )
        for one in found["arguments"]
    ]
    arguments = thaw(parsed(action, known, pairs, words))
    return {"action": action, "arguments": arguments, "goal": goal}


run = client_command(local.run, _run, without=_NOT_HERE, more=(_resource, _to_branch))
