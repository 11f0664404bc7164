"""`agents ask`: one question about a repository."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from cleveragents.api.views import as_json
from cleveragents.cli.budget_options import budget_options, given_limits
from cleveragents.cli.completion import complete_model
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session
from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import CleverAgentsError
from cleveragents.models.model.budget import BudgetLimits

if TYPE_CHECKING:
    from cleveragents.api.conversations.client import TurnView

__all__ = ["ask"]


@click.command()
@click.argument("words", nargs=-1, metavar="QUESTION")
@click.option("-f", "--file", metavar="FILE", help="Read the question from a file; `-` is stdin.")
@click.option("--in", "directory", metavar="DIRECTORY", help="Ask about the repository of this directory.")
@click.option("--resource", metavar="NAME", help="Ask about this resource of the server.")
@click.option("--session", "session_id", metavar="SESSION", help="Ask in this session. Default: a new one.")
@click.option(
    "--model",
    metavar="PROVIDER/NAME",
    shell_complete=complete_model,
    help="Model. Default: models.default.",
)
@click.option(
    "--attach", "paths", metavar="FILE", multiple=True, help="Attach an image or a PDF; may be repeated."
)
@budget_options
@format_option
@pass_session
def ask(
    session: Session,
    words: tuple[str, ...],
    file: str | None,
    directory: str | None,
    resource: str | None,
    session_id: str | None,
    model: str | None,
    paths: tuple[str, ...],
    limits: BudgetLimits,
    output: Output,
) -> None:
    """Ask a question about a repository, and print the answer.

    The assistant only reads: files that git does not ignore, and the history. It changes nothing and starts
    no plan. The answer goes to stdout, and progress to stderr if that is a terminal. QUESTION `-` reads it
    from stdin. The question is kept as a session; continue it with `agents --continue`.

    \b
    Example:
      agents ask "Where is the session cookie signed?"
      agents ask "What changed in the parser lately?" --max-tokens 50000 --format json
      agents ask "Which template draws this dialog?" --attach dialog.png
      git diff | agents ask -
    """
    from cleveragents.cli.context import question_of
    from cleveragents.cli.conversation.attachments import attached_files
    from cleveragents.cli.conversation.follow import follow_turn
    from cleveragents.cli.conversation.place import new_request

    question = question_of(" ".join(words) if words else None, file, command="ask")
    if not question.strip():  # before a session is created
        raise click.UsageError("the question is empty")
    attachments = attached_files(paths)
    client = session.client()
    conversations = client.conversations
    made = session_id is None
    if session_id is None:
        request = new_request(session, client, directory, resource, model, given_limits(limits))
        session_id = conversations.create(request).id
    elif (directory, resource, model, limits) != (None, None, None, BudgetLimits()):
        raise click.UsageError(
            "--session excludes --in, --resource, --model and limits; a session has its own"
        )
    try:
        conversations.send(session_id, question, read_only=True, attachments=attachments)
    except CleverAgentsError:
        if made:  # a question that was never asked leaves no session
            with suppress(CleverAgentsError):  # the first error says more; an accepted question stays
                conversations.delete(session_id, only_unused=True)
        raise
    try:
        turn = follow_turn(client, session_id, streamed=False, quiet=output.machine_readable)
    except KeyboardInterrupt:
        progress(f"stopped; continue with `agents session resume {session_id}`")
        raise
    if output.machine_readable:
        output.record(as_json(turn))
    elif turn.state is TurnState.ANSWERED:
        output.markdown(turn.answer)
    if turn.state is not TurnState.ANSWERED:
        _say_unanswered(session, turn)
        raise click.exceptions.Exit(1)


def _say_unanswered(session: Session, turn: TurnView) -> None:
    """Print why a question was not answered, and what to do."""
    from cleveragents.cli.failure import say_error
    from cleveragents.cli.render.remedies import remedy_lines
    from cleveragents.cli.servers import prefix_of

    prefix = prefix_of(session)
    say_error(f"the question was not answered: {turn.error or turn.state.value}")
    for line in remedy_lines(turn.remedies, prefix):
        progress(line)
    progress(f"  try again: {prefix} session resume {turn.conversation_id}")
