"""`agents run -f FILE`, carried out by a server: a plan for each goal, so many at once, followed together."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from cleveragents.cli.client.accounts import (
    Account,
    as_local,
    error_of,
    exit_code_of,
    tell_next,
    title_of,
)
from cleveragents.cli.client.plan.deciding import Deciding, who_needs_somebody
from cleveragents.cli.client.plan.following import PlansFollower, moment_now, on_server
from cleveragents.cli.client.problems import ServerSaid
from cleveragents.cli.output import progress
from cleveragents.cli.plan.outcome import INTERRUPTED, NEEDS_HUMAN, joint_exit_code, short_ids
from cleveragents.core.errors import CleverAgentsError

__all__ = ["GoalsFile", "goals_in", "run_goals"]


@dataclass(frozen=True, slots=True)
class GoalsFile:
    """Goals of a file: one to a line, or the YAML of some that belong together."""

    lines: Sequence[str] = ()
    yaml: str | None = None


def goals_in(file: str) -> GoalsFile:
    """What it holds; - is stdin. `click.UsageError` if it cannot be read."""
    from cleveragents.cli.run.goals import is_goals_document
    from cleveragents.cli.run.goals_file import read_goals, text_of, text_of_stdin

    typed = text_of_stdin("the goals on stdin") if file == "-" else None
    if is_goals_document(file, typed):
        return GoalsFile(yaml=text_of(file) if typed is None else typed)
    return GoalsFile(read_goals(file, typed))


def run_goals(deciding: Deciding, bodies: Sequence[Mapping[str, Any]], *, parallel: int | None) -> None:
    """Has the server work on all of them, at most `parallel` at once, and tells what came of each. Nobody is
    asked: what needs a person rests. Exits as `agents run -f` does here."""
    client, waiting = deciding.client, deque(bodies)
    hint = "Ctrl-C stops them all"
    following = PlansFollower(client, [], deciding.output, after=moment_now(client), alone=False, hint=hint)

    made: list[str] = []

    def begin_next() -> None:
        if waiting:
            account = client.post("/plans", waiting.popleft())
            made.append(account["id"])
            following.add(account)

    interrupted = False
    try:
        try:
            for _ in range(parallel or len(bodies)):
                begin_next()
            accounts = following.to_rest(rested=begin_next)
        except KeyboardInterrupt:
            interrupted = True
            accounts = following.stopped(deciding.prefix)
    except (CleverAgentsError, ServerSaid):
        following.close()
        for plan_id in made:  # guard: what was begun goes on, whatever became of the next
            progress(on_server(plan_id, deciding.prefix))
        raise
    finally:
        following.close()
    _tell(deciding, accounts)
    codes = [exit_code_of(account, only_review=deciding.only_review) for account in accounts]
    for account, code in zip(accounts, codes, strict=True):
        _tell_what_next(deciding, account, code)
    code = INTERRUPTED if interrupted else joint_exit_code(codes)
    if code:
        raise click.exceptions.Exit(code)


def _tell(deciding: Deciding, accounts: Sequence[Account]) -> None:
    output = deciding.output
    if output.for_programs:
        output.table([as_local(account) for account in accounts], [], empty="")
        return
    shorts = short_ids([account["id"] for account in accounts])
    rows = [
        {
            "plan": shorts[account["id"]] if output.for_eyes else account["id"],
            "state": account["meaning"],
            "files": len(account["changes"]),
            "tokens": account["spending"]["tokens"],
            "goal": title_of(account),
        }
        for account in accounts
    ]
    columns = ["plan", "state", "files", "tokens", "goal"]
    output.table(rows, columns, empty="", cut=["goal", "state"], spare=["tokens", "files"])


def _tell_what_next(deciding: Deciding, account: Account, code: int) -> None:
    if code == NEEDS_HUMAN:
        for one in who_needs_somebody(deciding.client, account):
            progress(f"plan {one['id']} needs you: {title_of(one)}")
            tell_next(one, deciding.prefix)
    elif code:
        progress(f"plan {account['id']}: {error_of(account, 'it failed')}")
        tell_next(account, deciding.prefix)
