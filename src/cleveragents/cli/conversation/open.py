"""`agents` without a command: the terminal app, or a session line by line."""

from __future__ import annotations

import click

__all__ = ["open_conversation"]


def open_conversation(ctx: click.Context, *, continues: bool, plain: bool) -> None:
    """Open the terminal app, or a session line by line: with `plain`, without a terminal, or in a terminal
    that cannot move its cursor or does not use UTF-8.

    Without a terminal, `continues` or `plain` is required; otherwise raises `click.UsageError`, with the help
    if no option is given.
    """
    from cleveragents.cli.output import progress
    from cleveragents.cli.terminal_app.start import foreign_encoding, has_terminal, is_dumb, open_app

    terminal = has_terminal()
    if not (terminal or continues or plain):
        if ctx.params["overrides"] or ctx.params["server"]:
            raise click.UsageError("Missing command.")
        raise click.exceptions.NoArgsIsHelpError(ctx)
    if terminal and not plain and not is_dumb():
        encoding = foreign_encoding()
        if encoding is None:
            open_app(ctx.obj, continues=continues)
            return
        progress(f"the terminal app needs UTF-8, and this terminal uses {encoding}")
        progress("  set LANG to a UTF-8 locale to use the app; this session is line by line")
    from cleveragents.cli.conversation.line_session import continue_latest, start_session
    from cleveragents.models.model.budget import BudgetLimits

    if continues:
        continue_latest(ctx.obj)
    else:
        ctx.invoke(start_session, limits=BudgetLimits())
