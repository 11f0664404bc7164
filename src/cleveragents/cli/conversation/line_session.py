"""`agents session start|resume` and `agents --continue`: a session in the terminal, line by line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from cleveragents.cli.budget_options import budget_options, given_limits
from cleveragents.cli.completion import complete_model
from cleveragents.cli.output import Output, Styled, progress, write
from cleveragents.cli.session import Session, pass_session
from cleveragents.conversations.model import TurnState, goal_of
from cleveragents.core.errors import CleverAgentsError
from cleveragents.models.model.budget import BudgetLimits

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.core.errors import Remedy
    from cleveragents.models.model.attachment import Attachment

__all__ = ["continue_latest", "latest_session", "resume_session", "run_session", "start_session"]

_PROMPT = "> "
_HELP = """\
/plan GOAL    start a plan with this goal, without asking the model
/plans        list the plans of this session
/attach FILE  attach an image or a PDF to your next message; without FILE, detach all
/rename TITLE change the title of this session
/budget USD   raise the budget; also `50000 tokens`, `20 steps`, `10m time`; alone, show the budget
/compact      summarise the old turns for later prompts
/help         show these commands
/quit         leave the session, as Ctrl-D does
Ctrl-C stops the answer and keeps the session. An empty line continues a turn that was not answered."""


@click.command("start")
@click.option("--in", "directory", metavar="DIRECTORY", help="Talk about the repository of this directory.")
@click.option("--resource", metavar="NAME", help="Talk about this resource of the server.")
@click.option(
    "--model",
    metavar="PROVIDER/NAME",
    shell_complete=complete_model,
    help="Model. Default: models.default.",
)
@click.option("--profile", metavar="NAME", help="Profile of the plans. Default: plan.profile.")
@budget_options
@pass_session
def start_session(
    session: Session,
    directory: str | None,
    resource: str | None,
    model: str | None,
    profile: str | None,
    limits: BudgetLimits,
) -> None:
    """Start a session in this terminal.

    Type a question or a request; Ctrl-C stops the answer, Ctrl-D leaves. Plans run in the background. Each
    line of stdin is one message if it is not a terminal; an unknown command is reported, the next lines are
    still sent, and the exit code is 2. The limits apply to the model calls of the session,
    and to each of its plans. --timeout limits each turn.

    \b
    Example:
      agents session start
      agents session start --model openai/gpt-4.1 --max-usd 2
    """
    from cleveragents.cli.conversation.place import new_request

    client = session.client()
    request = new_request(session, client, directory, resource, model, given_limits(limits), profile)
    run_session(client, client.conversations.create(request).id)


@click.command("resume")
@click.argument("session_id", metavar="[SESSION]", required=False)
@pass_session
def resume_session(session: Session, session_id: str | None) -> None:
    """Continue a session in this terminal.

    Without SESSION, continue the latest one of this repository. A turn that was interrupted continues after
    its last finished call when you send an empty line. Plans of the session that no process runs any more
    continue in the background.

    \b
    Example:
      agents session resume
      agents session resume 7QX2
    """
    client = session.client()
    if session_id is None:
        continue_latest(session, client)
    else:
        run_session(client, client.conversations.get(session_id).id)


def continue_latest(session: Session, client: Client | None = None) -> None:
    """Continue the latest session of the current repository. Raises `click.UsageError` if there is none."""
    client = client or session.client()
    run_session(client, latest_session(session, client))


def latest_session(session: Session, client: Client) -> str:
    """Return the latest session of the current repository with at least one turn. (A session without turns
    may belong to an open editor, which deletes it when it closes.) Raises `click.UsageError` if there is
    none.
    """
    from cleveragents.cli.conversation.place import repository_of

    found = [
        one for one in client.conversations.list(resource=repository_of(session, client)).items if one.turns
    ]
    if not found:
        raise click.UsageError("this repository has no session; start one with `agents session start`")
    return max(found, key=lambda one: one.updated).id


def run_session(client: Client, session_id: str) -> None:
    """Read messages and show the answers, until the input ends.

    An unknown command does not end the session. If the input is not a terminal, the exit code is then 2.
    """
    from cleveragents.cli.conversation.follow import run_plans

    terminal = sys.stdin.isatty()
    if terminal:
        _greet(client, session_id)
    # The terminal that started these plans may have been killed before it gave them a process.
    found = client.conversations.get(session_id)
    run_plans(client, found.plans, report=False)
    if not found.calls_tools:
        _say_limits_of_model()
    attached: list[Attachment] = []
    understood = True
    while True:
        try:
            line = _read_line(terminal)
        except KeyboardInterrupt:
            write("", err=True)
            progress("Ctrl-D leaves the session")
            continue
        if line is None or line.strip() == "/quit":
            break
        with suppress(KeyboardInterrupt):  # Ctrl-C stops the answer, not the session
            understood &= _answer(client, session_id, line.strip(), terminal, attached)
    if not terminal and not understood:  # a script learns of it by the exit code
        raise click.exceptions.Exit(2)
    if terminal:
        progress(f"left session {session_id}; continue with `agents session resume {session_id}`")


def _greet(client: Client, session_id: str) -> None:
    from cleveragents.cli.conversation.sessions import print_turn

    found = client.conversations.get(session_id)
    progress(f"session {found.id} about {found.resource_name or found.resource}; /help shows the commands")
    last = client.conversations.turns(found.id, limit=1, after=str(max(0, found.turns - 1))).items
    for turn in last:
        print_turn(Output("plain"), turn)
        if turn.state.resumable:
            progress(f"turn {turn.number} was not answered; send an empty line to continue it")


def _say_limits_of_model() -> None:
    """Say what a model that calls no tools does not do."""
    from cleveragents.cli.servers import prefix_in

    prefix = prefix_in(click.get_current_context())
    progress("this model starts and changes no plans by itself: it only answers questions")
    progress("  /plan GOAL  start a plan")
    progress(f"  {prefix} plan correct PLAN --append --guidance TEXT  change a plan")


def _read_line(terminal: bool) -> str | None:
    """Return the next line; None at the end of the input."""
    if not terminal:
        return sys.stdin.readline() or None
    with suppress(ImportError):
        import_module("readline")  # lets `input` edit the line
    try:
        return input(_PROMPT)
    except EOFError:
        write("", err=True)
        return None


def _answer(client: Client, session_id: str, line: str, terminal: bool, attached: list[Attachment]) -> bool:
    """Run the command of a line, or send the line with the files that are attached so far and show the
    answer. Return False for an unknown command.
    """
    try:
        if line.startswith("/") and goal_of(line) is None:
            return _command(client, session_id, line, attached)
        if line:
            client.conversations.send(session_id, line, attachments=attached)
            attached.clear()
        elif client.conversations.get(session_id).state in (None, TurnState.ANSWERED):
            return True
        else:
            client.conversations.resume(session_id)
        _show(client, session_id, terminal)
    except CleverAgentsError as error:
        if not terminal:  # a script learns of it by the exit code
            raise
        _say_failure(str(error), error.remedies)
    return True


def _show(client: Client, session_id: str, terminal: bool) -> None:
    from cleveragents.cli.conversation.follow import follow_turn, run_plans

    try:
        turn = follow_turn(client, session_id, streamed=True)
    except KeyboardInterrupt:
        write("")
        progress("stopped; send an empty line to continue, or another message")
        raise
    write("")
    if turn.state is not TurnState.ANSWERED:
        _say_failure(turn.error or f"the turn is {turn.state.value}", turn.remedies)
        progress("  Send an empty line to continue the turn.")
    run_plans(client, turn.plans)
    if turn.state is not TurnState.ANSWERED and not terminal:  # a script learns of it by the exit code
        raise click.exceptions.Exit(1)


def _command(client: Client, session_id: str, line: str, attached: list[Attachment]) -> bool:
    from cleveragents.cli.failure import say_error

    name, _, argument = line.partition(" ")
    if line == "/help":
        write(_HELP, err=True)
    elif name == "/attach":
        from cleveragents.cli.conversation.attachments import attached_files

        attached[:] = attached_files([argument.strip()], attached) if argument else ()
        names = ", ".join(one.name for one in attached)
        progress(f"your next message has: {names}" if names else "your next message has no attachments")
    elif line == "/plans":
        _list_plans(client, session_id)
    elif name == "/rename" and argument.strip():
        progress(f"this session is named {client.conversations.rename(session_id, argument).title}")
    elif name == "/budget":
        _budget(client, session_id, argument)
    elif line == "/compact":
        found = client.conversations.compact(session_id)
        progress(
            f"turns up to {found.compacted} are summarised" if found.compacted else "nothing to summarise"
        )
    else:
        say_error(f"unknown command {name}; /help shows the commands")
        return False
    return True


def _budget(client: Client, session_id: str, argument: str) -> None:
    from cleveragents.cli.conversation.budget import budget_facts, typed_limits

    sessions = client.conversations
    limits = typed_limits(argument) if argument.strip() else None
    found = sessions.get(session_id) if limits is None else sessions.raise_budget(session_id, limits)
    for name, value in budget_facts(found).items():
        progress(f"{name.ljust(12)} {value}")


def _say_failure(message: str, remedies: Sequence[Remedy]) -> None:
    """Print an error and its remedies."""
    from cleveragents.cli.failure import say_error
    from cleveragents.cli.render.remedies import prompt_lines
    from cleveragents.cli.servers import prefix_in

    say_error(message)
    for line in prompt_lines(remedies, prefix_in(click.get_current_context())):
        progress(line)


def _list_plans(client: Client, session_id: str) -> None:
    plans = client.conversations.get(session_id).plans
    if not plans:
        progress("this session has started no plan")
    for plan_id in plans:
        with suppress(CleverAgentsError):  # deleted meanwhile
            plan = client.plans.summary(plan_id)
            write(Styled(plan.status.value.ljust(10), bold=True), f" {plan.id}  {plan.goal}")
