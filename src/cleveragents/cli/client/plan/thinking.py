"""`agents plan tree|explain|correct`, asked of a server."""

from __future__ import annotations

import sys
from typing import Any

import click

from cleveragents.cli.client.accounts import Account
from cleveragents.cli.client.plan.deciding import Deciding
from cleveragents.cli.client.plan.decisions import go_on
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, counted, printable, progress
from cleveragents.cli.plan import correct as plan_correct
from cleveragents.cli.session import Session

__all__ = ["correct_plan"]

Row = dict[str, Any]


def _correct_plan(
    session: Session,
    plan_id: str,
    number: int | None,
    guidance: str | None,
    append: bool,
    dry_run: bool,
    model: str | None,
    yes: bool,
    output: Output,
) -> None:
    plan_id, number = plan_correct.split_name(plan_id, number)
    plan_correct.ensure_sensible(number, guidance, append, dry_run)
    client, prefix = connected(session), prefix_of(session)
    path = f"/plans/{plan_id}/correct"
    undoing = None if append else client.post(path, {"decision": number, "dry_run": True})
    if dry_run:
        assert undoing is not None
        _show_undoing(output, undoing)
        if not output.for_programs:
            plan_correct.tell_of_trial(guidance)
        return
    words = sys.stdin.read() if guidance == "-" else guidance or ""
    body = {"decision": number, "guidance": words, "model": model}
    deciding = Deciding(client, prefix, output, yes=yes)
    go_on(deciding, plan_id, "correct", body, tell=lambda account: _tell_corrected(account, undoing))


def _tell_corrected(account: Account, undoing: Account | None) -> None:
    said = f"correction {account['corrections'][-1]['number']} of plan {account['id']}"
    if undoing is None:
        progress(f"{said}: heeded from now on, nothing is undone")
        return
    more = len(undoing["superseded"]) - 1
    what = f"decision {undoing['decision']} no longer holds"
    if more > 0:
        what += f", nor {'does' if more == 1 else 'do'} {more} that came of it"
    undone = "nothing was done for it yet"
    if undoing["checkpoint"] is not None:
        undone = f"back at checkpoint {undoing['checkpoint']}"
    progress(f"{said}: {what}; {undone}")
    for told, name in _ALSO:
        if undoing[name]:
            progress(printable(f"{told}: {', '.join(undoing[name])}"))


_ALSO = (
    ("kept edits by hand", "edits_kept"),
    ("undone edits by hand", "edits_lost"),
    ("sub-plans that go on", "sub_plans_kept"),
    ("cancelled sub-plans", "sub_plans"),
)


def _show_undoing(output: Output, undoing: Account) -> None:
    if output.for_programs:
        output.record(dict(undoing))
        return
    lines = ["superseded:"]
    lines += [f"  {one['number']}. {one['question']} → {one['choice']}" for one in undoing["superseded"]]
    if undoing["checkpoint"] is None:
        lines.append("undone: nothing; nothing was done for it yet")
    else:
        calls = counted(undoing["calls"], "call")
        lines.append(f"undone: {calls}, from checkpoint {undoing['checkpoint']} on")
        lines += [f"  step: {step}" for step in undoing["steps"]]
        by_hand = undoing["edits_lost"]
        lines += [f"  file: {path}{' (edited by hand)' * (path in by_hand)}" for path in undoing["files"]]
    lines += [f"kept: {path} (edited by hand)" for path in undoing["edits_kept"]]
    lines += [f"cancelled: sub-plan {child}" for child in undoing["sub_plans"]]
    lines += [f"goes on: sub-plan {child}" for child in undoing["sub_plans_kept"]]
    for line in lines:
        click.echo(printable(line))


correct_plan = client_command(plan_correct.correct_plan, _correct_plan)
