"""`agents session`: the group of commands on sessions."""

from __future__ import annotations

import click

from cleveragents.cli.lazy import LazyGroup

__all__ = ["session"]

_HERE = "cleveragents.cli.conversation"

_COMMANDS = {
    "start": (f"{_HERE}.line_session:start_session", "Start a session in this terminal."),
    "list": (f"{_HERE}.sessions:list_sessions", "List sessions, the latest last."),
    "show": (f"{_HERE}.sessions:show_session", "Show the turns of a session."),
    "resume": (f"{_HERE}.line_session:resume_session", "Continue a session in this terminal."),
    "fork": (f"{_HERE}.sessions:fork_session", "Copy a session up to a turn."),
    "rename": (f"{_HERE}.sessions:rename_session", "Change the title of a session."),
    "budget": (f"{_HERE}.sessions:session_budget", "Show or raise the budget of a session."),
    "compact": (f"{_HERE}.sessions:compact_session", "Summarise the old turns of a session."),
    "delete": (f"{_HERE}.sessions:delete_session", "Delete a session; its plans stay."),
}


@click.group(cls=LazyGroup, lazy_commands=_COMMANDS)
def session() -> None:
    """Talk with an assistant about a repository.

    The assistant answers questions from the files and the history, and turns requests into plans. You review
    and apply their results. Name a session by its id, or by a unique beginning or end of it.

    \b
    Example:
      agents session start
      agents session list
      agents session resume 7QX2
    """
