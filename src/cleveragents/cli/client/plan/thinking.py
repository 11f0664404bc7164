"""`agents plan tree|explain|correct`, asked of a server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cleveragents.api.wording import on_one_line
from cleveragents.cli.client.accounts import Account
from cleveragents.cli.client.plan.deciding import Deciding
from cleveragents.cli.client.plan.decisions import go_on
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, console, counted, printable, progress
from cleveragents.cli.plan import correct as plan_correct
from cleveragents.cli.plan import thinking as plan_thinking
from cleveragents.cli.session import Session

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["correct_plan", "explain_decision", "tree_of_plan"]

Row = dict[str, Any]


def _tree_of_plan(session: Session, plan_id: str, superseded_too: bool, output: Output) -> None:
    client = connected(session)
    every = list(client.pages(f"/plans/{plan_id}/decisions"))
    rows = [row for row in every if superseded_too or _is_shown(row)]
    if output.for_programs:
        output.table(rows, [], empty="")
        return
    if not rows:
        progress("nothing was decided in it: it has no strategist, or has not got that far")
        return
    from rich.tree import Tree

    account = client.get(f"/plans/{plan_id}")
    tree = Tree(printable(on_one_line(account["goal"])))
    _grow(tree, [row for row in rows if row["kind"] == "decision"], None)
    for row in rows:
        if row["kind"] == "correction":
            tree.add(printable(f"correction {row['number']}, in addition: {on_one_line(row['guidance'])}"))
    _grow_plans(tree, [row for row in rows if row["kind"] == "sub-plan"], account["id"])
    console(no_color=not output.for_eyes).print(tree)
    if any(row["kind"] == "decision" for row in rows):
        progress(f"`{prefix_of(session)} plan explain {account['id']} NUMBER` says why")
    hidden = sum(row["kind"] == "decision" for row in every) - sum(row["kind"] == "decision" for row in rows)
    if hidden:
        progress(f"superseded: {counted(hidden, 'decision')}; --all shows them, and what ended them")


def _is_shown(row: Row) -> bool:
    return row["kind"] == "sub-plan" or (row["kind"], row.get("state")) == ("decision", "active")


def _grow(tree: Tree, decisions: Sequence[Row], parent: int | None) -> None:
    numbers = {row["number"] for row in decisions}
    for row in decisions:
        # One whose parent is not shown hangs where the parent would.
        above = row["parent"] if row["parent"] in numbers else None
        if above == parent:
            _grow(tree.add(_line(row)), decisions, row["number"])


def _grow_plans(tree: Tree, rows: Sequence[Row], parent: str) -> None:
    for row in rows:
        if row["parent_plan"] == parent:
            needs = f"; needs {', '.join(row['needs'])}" if row["needs"] else ""
            named = f"sub-plan {row['id']}: {row['name']}" if row["id"] else f"sub-plan: {row['name']}"
            grown = tree.add(printable(f"{named} ({row['status']}{needs})"))
            if row["id"]:
                _grow_plans(grown, rows, row["id"])


def _line(row: Row) -> str:
    sure = "" if row["confidence"] is None else f" ({row['confidence']:.0%})"
    ended = row["superseded_by"]
    gone = ""
    if row["state"] != "active":
        said = f": {on_one_line(ended['guidance'])}" if ended and ended["decision"] == row["number"] else ""
        gone = f" [superseded by correction {ended['correction']}{said}]" if ended else " [superseded]"
    return printable(f"{row['number']}. {row['question']} → {row['choice']}{sure}{gone}")


def _explain_decision(session: Session, plan_id: str, number: int, output: Output) -> None:
    client = connected(session)
    row = client.get(f"/plans/{plan_id}/decisions/{number}")
    if output.for_programs:
        output.record(row)
        return
    fields = {"question": row["question"], "choice": row["choice"], "why": row["rationale"]}
    fields |= {
        f"instead of {place}": f"{other['choice']}: {other['reason']}" if other["reason"] else other["choice"]
        for place, other in enumerate(row["alternatives"], start=1)
    }
    fields["confidence"] = None if row["confidence"] is None else f"{row['confidence']:.0%}"
    fields["follows from"] = row["parent"]
    fields["decided by"] = row["made_by"]
    fields["decided at"] = row["created_at"]
    fields["carried out by"] = ", ".join(row["steps"])
    fields["state"] = row["state"]
    ended = row["superseded_by"]
    if ended is not None:
        fields["superseded by"] = f"correction {ended['correction']}: {on_one_line(ended['guidance'])}"
    output.record({name: value for name, value in fields.items() if value not in (None, "")})
    account = client.get(f"/plans/{plan_id}")
    if row["state"] == "active" and "correct" in account["can"]:
        correct = f"{prefix_of(session)} plan correct {account['id']} {number}"
        progress(f'`{correct} --guidance "…"` corrects it')


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


tree_of_plan = client_command(plan_thinking.tree_of_plan, _tree_of_plan)
explain_decision = client_command(plan_thinking.explain_decision, _explain_decision)
correct_plan = client_command(plan_correct.correct_plan, _correct_plan)
