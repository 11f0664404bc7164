"""`agents session list|show|fork|rename|budget|compact|delete`: sessions, here or on a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cleveragents.api.views import as_json, every
from cleveragents.cli.budget_options import budget_options, given_limits
from cleveragents.cli.output import Output, Styled, ago, format_option, progress, write
from cleveragents.cli.session import Session, pass_session
from cleveragents.conversations.model import TurnState
from cleveragents.models.model.budget import BudgetLimits

if TYPE_CHECKING:
    from cleveragents.api.conversations.client import ConversationView, TurnView

__all__ = [
    "compact_session",
    "delete_session",
    "fork_session",
    "list_sessions",
    "print_turn",
    "rename_session",
    "session_budget",
    "show_session",
]

_LISTED = 20
_session_argument = click.argument("session_id", metavar="SESSION")


@click.command("list")
@click.option("--all", "every_one", is_flag=True, help="List the sessions of all repositories.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=_LISTED, show_default=True, help="Maximum number."
)
@format_option
@pass_session
def list_sessions(session: Session, every_one: bool, limit: int, output: Output) -> None:
    """List sessions, the latest last.

    \b
    Example:
      agents session list
      agents session list --all --format json
    """
    from cleveragents.cli.conversation.place import repository_of

    client = session.client()
    place = None if every_one else repository_of(session, client)
    found = client.conversations.list(resource=place, limit=limit).items
    rows = [as_json(one) if output.machine_readable else _row(one) for one in reversed(found)]
    columns = ["session", "state", "turns", "updated", "title"]
    output.table(rows, columns, empty="no sessions; start one with `agents session start`", cut=["title"])


@click.command("show")
@_session_argument
@format_option
@pass_session
def show_session(session: Session, session_id: str, output: Output) -> None:
    """Show the turns of a session.

    \b
    Example:
      agents session show 7QX2
    """
    conversations = session.client().conversations
    found = conversations.get(session_id)
    turns = list(every(lambda after: conversations.turns(found.id, after=after)))
    if output.machine_readable:
        output.record({**as_json(found), "turns": [as_json(turn) for turn in turns]})
        return
    output.record(_facts(found))
    for turn in turns:
        print_turn(output, turn)


@click.command("fork")
@_session_argument
@click.option("--turn", type=click.IntRange(min=1), metavar="N", help="Last turn to copy. Default: all.")
@format_option
@pass_session
def fork_session(session: Session, session_id: str, turn: int | None, output: Output) -> None:
    """Copy a session up to a turn.

    The copy continues on its own; the session stays as it is, and keeps its plans.

    \b
    Example:
      agents session fork 7QX2 --turn 3
    """
    made = session.client().conversations.fork(session_id, turn=turn)
    output.record(as_json(made) if output.machine_readable else _facts(made))
    progress(f"  agents session resume {made.id}  continue the copy")


@click.command("rename")
@_session_argument
@click.argument("title", nargs=-1, required=True)
@pass_session
def rename_session(session: Session, session_id: str, title: tuple[str, ...]) -> None:
    """Change the title of a session.

    \b
    Example:
      agents session rename 7QX2 The session cookie
    """
    found = session.client().conversations.rename(session_id, " ".join(title))
    progress(f"session {found.id} is named {found.title}")


@click.command("budget")
@_session_argument
@budget_options
@format_option
@pass_session
def session_budget(session: Session, session_id: str, limits: BudgetLimits, output: Output) -> None:
    """Show the budget of a session, or raise its limits.

    A limit is a total, and can only be raised. --timeout limits each turn. To continue a turn that failed
    because of the budget, resume the session and send an empty line.

    \b
    Example:
      agents session budget 7QX2
      agents session budget 7QX2 --max-usd 5
    """
    from cleveragents.cli.conversation.budget import budget_facts

    conversations = session.client().conversations
    if limits == BudgetLimits():
        found = conversations.get(session_id)
    else:
        found = conversations.raise_budget(session_id, given_limits(limits))
    output.record(as_json(found) if output.machine_readable else {"session": found.id, **budget_facts(found)})


@click.command("compact")
@_session_argument
@format_option
@pass_session
def compact_session(session: Session, session_id: str, output: Output) -> None:
    """Summarise the old turns of a session.

    Later turns get the summary instead of the old turns, the recent turns, and the plans. All turns stay
    readable. This makes one model call.

    \b
    Example:
      agents session compact 7QX2
    """
    found = session.client().conversations.compact(session_id)
    output.record(as_json(found) if output.machine_readable else _facts(found))


@click.command("delete")
@_session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def delete_session(session: Session, session_id: str, yes: bool) -> None:
    """Delete a session; its plans stay.

    \b
    Example:
      agents session delete 7QX2
    """
    from cleveragents.cli.plan.work import interactive
    from cleveragents.cli.prompts import ensure_confirmed

    conversations = session.client().conversations
    found = conversations.get(session_id)
    if not yes and interactive():
        ensure_confirmed(f"Delete session {found.id} with its {found.turns} turns?")
    conversations.delete(found.id)
    progress(f"session {found.id} is deleted")


def print_turn(output: Output, turn: TurnView) -> None:
    """Print a turn for people: its author, the question and the answer."""
    write("")
    write(Styled(f"{turn.number}. {turn.by or 'you'}: {turn.question}", bold=output.human_readable))
    for one in turn.attachments:
        write(Styled(f"[attached {one.name}, {one.media_type.value}, {one.bytes:,} bytes]", dim=True))
    if turn.answer:
        output.markdown(turn.answer)
    if turn.state is not TurnState.ANSWERED:
        why = f": {turn.error}" if turn.error else ""
        write(Styled(f"[{turn.state.value}{why}]", fg="yellow"))
    for plan in turn.plans:
        write(Styled(f"[plan {plan}]", dim=True))


def _row(found: ConversationView) -> dict[str, str | int | None]:
    return {
        "session": found.id,
        "state": None if found.state is None else found.state.value,
        "turns": found.turns,
        "updated": ago(found.updated, datetime.now(UTC)),
        "title": found.title,
    }


def _facts(found: ConversationView) -> dict[str, str | int | None]:
    facts: dict[str, str | int | None] = {
        "session": found.id,
        "title": found.title,
        "state": None if found.state is None else found.state.value,
        "turns": found.turns,
        "repository": found.resource_name or found.resource,
        "model": found.model,
        "tokens": found.tokens,
        "plans": ", ".join(found.plans),
        "forked from": found.forked_from,
        "summarised up to turn": found.compacted or None,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}
