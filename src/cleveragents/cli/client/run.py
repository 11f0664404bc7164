"""`agents run`, carried out by a server: made there, followed and decided about here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.cli.client.accounts import Account
from cleveragents.cli.client.places import resource_here
from cleveragents.cli.client.plan.deciding import Deciding, decide, told_at_the_end, work_on
from cleveragents.cli.client.plan.decisions import given_limits
from cleveragents.cli.client.plan.following import Moment, moment_now
from cleveragents.cli.client.run_arguments import said_arguments
from cleveragents.cli.client.run_goals import GoalsFile, goals_in, run_goals
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.server_client import ServerClient
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, progress
from cleveragents.cli.render.narrow import steps_in_lines
from cleveragents.cli.run import command as local
from cleveragents.cli.run.goals_file import text_of_stdin
from cleveragents.cli.session import Session
from cleveragents.cli.yaml_input import yaml_content
from cleveragents.core.errors import ConfigurationError
from cleveragents.models.model.budget import Limits

__all__ = ["run"]

_REFUSED = {
    "include": "the files of this machine stay here; say --server local for them",
    "here": "say --server local to run it in this terminal",
}
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
    start: str,
    goal: str | None,
    yes: bool,
    message: str | None,
    only_review: bool,
    model: str | None,
    actor: str | None,
    limits: Limits,
    file: str | None,
    parallel: int | None,
    background: bool,
    resource: str | None,
    to_branch: str | None,
    output: Output,
) -> None:
    if yes and only_review:
        raise click.UsageError("--yes applies the result, --review leaves it; say one of them")
    goals = None if file is None else _goals_alone(file, words, pairs, action, goal, message)
    client = connected(session)
    place = resource_here(client, resource)
    body = {
        "resource": place,
        **_who(actor),
        "model": model,
        "profile": profile,
        "checks": list(checks),
        "invariants": list(invariants),
        "limits": given_limits(limits),
        "to_branch": to_branch,
        # As most servers know it: one that is older knows no other.
        **({} if start == "tree" else {"start": start}),
        # What is to be committed is applied when the message is told, and not before.
        "apply": "review" if only_review or message is not None else "auto" if yes else None,
    }
    deciding = Deciding(client, prefix_of(session), output, yes, only_review, message)
    if goals is not None and goals.yaml is None:
        _run_many(deciding, [{**body, "goal": one} for one in goals.lines], parallel, background)
        return
    wanted = _wanted(client, words, action, pairs, goal, place) if goals is None else {"goals": goals.yaml}
    after = moment_now(client)
    account = client.post("/plans", {**body, **wanted, "max_parallel": parallel})
    if background:
        _tell_started(deciding, [account])
    else:
        _run_here(deciding, account, after)


def _who(actor: str | None) -> dict[str, str | None]:
    """An actor of the server's by its name; one in a file of the user's goes along, with its prompts."""
    if actor is None or not is_actor_file(actor):
        return {"actor": actor}
    from cleveragents.api.actors import own_text

    yaml_content(Path(actor))  # what cannot be read is told as everywhere
    try:
        return {"actor_yaml": own_text(Path(actor))}
    except ValueError as problem:  # of a prompt's file, or of what is no text
        raise ConfigurationError(actor, str(problem)) from None


def _goals_alone(
    file: str,
    words: tuple[str, ...],
    pairs: tuple[str, ...],
    action: str | None,
    goal: str | None,
    message: str | None,
) -> GoalsFile:
    if words or pairs or action or goal:
        raise click.UsageError("-f FILE says what is wanted; leave the goal or the action out")
    goals = goals_in(file)
    if message is not None and goals.yaml is None:
        raise click.UsageError("--commit is for one goal; `agents plan apply PLAN --commit` does it later")
    return goals


def _run_many(
    deciding: Deciding, bodies: Sequence[Mapping[str, Any]], parallel: int | None, background: bool
) -> None:
    if not background:
        run_goals(deciding, bodies, parallel=parallel)
        return
    if parallel is not None:
        said = "--parallel needs somebody who waits; leave it or --background out"
        raise click.UsageError(f"{said} (`agents project add --max-parallel` bounds a project's plans)")
    made: list[Account] = []
    try:
        for body in bodies:
            account = deciding.client.post("/plans", body)
            made.append(account)
    finally:
        if made:  # guard: what was begun goes on, whatever became of the next
            _tell_started(deciding, made)


def _run_here(deciding: Deciding, account: Account, after: Moment) -> None:
    with told_at_the_end(deciding, account["id"]):
        decide(deciding, work_on(deciding, account, after=after))


def _tell_started(deciding: Deciding, accounts: Sequence[Account]) -> None:
    url, told = deciding.client.url, []
    for account in accounts:
        name = account["id"]
        progress(f"plan {name} runs on {url}")
        row = {"plan": name, "goal": account["goal"], "state": account["state"], "server": url}
        told.append({**({"id": name} if deciding.output.for_programs else {}), **row})
    named = accounts[0]["id"] if len(accounts) == 1 else "PLAN"
    said = (("watch", "follows it"), ("show", "says where it stands"), ("cancel", "stops it"))
    steps = [(f"{deciding.prefix} plan {step} {named}", what) for step, what in said]
    if deciding.message is not None:
        progress("it is not applied by itself: `plan apply --commit` does both")
    for line in steps_in_lines(steps, sys.stderr):
        progress(line)
    if len(told) == 1:
        deciding.output.record(told[0])
    else:
        deciding.output.table(told, ["plan", "state", "goal"], empty="", cut=["goal"])


def _wanted(
    client: ServerClient,
    words: tuple[str, ...],
    action: str | None,
    pairs: tuple[str, ...],
    goal: str | None,
    resource: str,
) -> dict[str, Any]:
    if action is None:
        if pairs:
            raise click.UsageError("--arg is for an --action; say the goal in words")
        said = text_of_stdin("the goal on stdin") if words == ("-",) else " ".join(words)
        if not said.strip():
            raise click.UsageError('say what is wanted: `agents run "Add a --json flag to the export"`')
        return {"goal": said.strip()}
    found = client.get(f"/actions/{action}", resource=resource)
    arguments = said_arguments(action, found["arguments"], pairs, words)
    return {"action": action, "arguments": arguments, "goal": goal}


run = client_command(local.run, _run, without=("going_on",), refused=_REFUSED, more=(_resource, _to_branch))
