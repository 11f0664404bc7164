"""Errors and foreign text as the app shows them: without terminal escapes, markup or secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click import ClickException
from textual.widgets import TextArea

from cleveragents.cli.render.remedies import remedy_lines
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.control_characters import escape_controls
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from textual.app import App
    from textual.document._document import EditResult
    from textual.document._edit import Edit

__all__ = ["SafeTextArea", "error_text", "notify_error", "pasted", "plain"]

_ERROR_SECONDS = 12.0


def plain(text: str) -> str:
    """Return foreign text that cannot control the terminal. Line feeds stay."""
    return escape_controls(text, keep_lines=True)


def pasted(text: str) -> str:
    """Return pasted text that cannot control the terminal, with line feeds only between its lines."""
    return plain(text.replace("\r\n", "\n").replace("\r", "\n"))


class SafeTextArea(TextArea):
    """A text field that cannot control the terminal: control characters of a file name are shown escaped."""

    def edit(self, edit: Edit) -> EditResult:
        edit.text = pasted(edit.text)
        return super().edit(edit)


def error_text(error: Exception, prefix: str = "agents") -> str:
    """Return the message of an error, then one line for each remedy. Commands begin with `prefix`."""
    if isinstance(error, CleverAgentsError):
        lines = [str(error), *remedy_lines(error.remedies, prefix)]
    elif isinstance(error, ClickException):
        lines = [error.format_message()]
    else:
        from cleveragents.config.error_log import record_error

        place = record_error(error, "the terminal app", None)
        lines = [f"internal error ({type(error).__name__}); the details are in {place}"]
    return plain(redact_text("\n".join(lines)))


def notify_error(app: App[None], error: Exception, prefix: str = "agents") -> None:
    """Show an error as a notice. Any thread may call it."""
    text = error_text(error, prefix)
    app.notify(text, title="Error", severity="error", timeout=_ERROR_SECONDS, markup=False)
