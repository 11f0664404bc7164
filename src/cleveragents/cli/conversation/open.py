"""`agents` without a command: the terminal app, or a session line by line."""

from __future__ import annotations

import click

__all__ = ["open_conversation"]


def open_conversation(ctx: click.Context, *, continues: bool, plain: bool) -> None:
    """Open the terminal app, or a session line by line: with `plain`, without a terminal, or in a terminal
    that cannot move its cursor.

    Without a terminal, `continues` or `plain` is required; otherwise raises `click.UsageError`, with the help
    if no option is given.
    """
    from cleveragents.cli.terminal_app.start import has_terminal, is_dumb, open_app

    terminal = has_terminal()
    if not (terminal or continues or plain):
        if ctx.params["overrides"] or ctx.params["server"]:
            raise click.UsageError("Missing command.")
        raise click.exceptions.NoArgsIsHelpError(ctx)
    if terminal and not plain and not is_dumb():
        open_app(ctx.obj, continues=continues)
        return
    from cleveragents.cli.conversation.line_session import continue_latest, start_session
    from cleveragents.models.model.budget import BudgetLimits

    if continues:
        continue_latest(ctx.obj)
    else:
        ctx.invoke(start_session, limits=BudgetLimits())
