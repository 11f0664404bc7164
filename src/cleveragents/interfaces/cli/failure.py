"""What the user sees when a command fails: what happened and what to do, never a trace-back.

A deliberate error says both itself. For any other the details go to a file, without secrets, and the user is
told where it is: that file is what a bug report needs.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

import click

from cleveragents import __version__
from cleveragents.domain.redaction import redact_text
from cleveragents.errors import CleverAgentsError

__all__ = ["report", "report_usage"]

_LOG_BOUND = 1 << 20


def report(error: Exception) -> int:
    """Tells the user on stderr; returns the exit code."""
    if isinstance(error, CleverAgentsError):
        _say(str(error))
        return error.exit_code
    if isinstance(error, MemoryError):
        _say("there is not enough memory")
        return 75
    place = _keep_details(error)
    _say(f"something went wrong that should not have ({type(error).__name__}); the details are in {place}")
    return 1


def report_usage(error: click.ClickException) -> int:
    """Tells the user what is wrong with the command line, in the same words and form as everything else that
    goes wrong; returns the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # nothing was said, so all that can be said is shown
        return error.exit_code
    _say(_in_our_words(error.format_message()))
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        usage = context.command.get_usage(context).partition(": ")[2]
        click.echo(f"usage: {' '.join(usage.split())}; --help says more", err=True)
    return error.exit_code


def _in_our_words(said: str) -> str:
    """The library's sentences begin with a capital and end with a full stop; ours do neither."""
    text = re.sub(r"\. (?=Did you mean)", "; ", said).replace("; Did you mean", "; did you mean")
    first, rest = text[:1], text[1:]
    return (first.lower() if rest[:1].islower() else first) + rest.removesuffix(".")


def _say(message: str) -> None:
    from cleveragents.interfaces.cli.narrow import in_lines
    from cleveragents.interfaces.cli.output import colour, printable

    begins = "error: "
    click.secho(begins, fg="red", bold=True, nl=False, err=True, color=colour())
    for number, line in enumerate(redact_text(message).splitlines()):
        for piece in in_lines(printable(line), sys.stderr, taken=0 if number else len(begins)):
            click.echo(piece, err=True)


def _keep_details(error: Exception) -> str:
    trace = "".join(traceback.format_exception(error))
    heading = (
        f"{datetime.now(UTC).isoformat(timespec='seconds')} cleveragents {__version__} python {sys.version}"
    )
    command = f"command: {' '.join(sys.argv)}"
    details = redact_text(f"== {heading}\n{command}\n{trace}\n")
    try:
        return _append(_state_directory() / "errors.log", details)
    except (OSError, CleverAgentsError):
        descriptor, name = tempfile.mkstemp(prefix="cleveragents-error-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(details)
        return name


def _state_directory() -> Path:
    from cleveragents.infrastructure.configuration.loading import load_configuration

    return Path(load_configuration(os.environ, Path.cwd()).settings.state.directory)


def _append(path: Path, details: str) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_BOUND:
        path.replace(path.with_suffix(".log.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(details)
    return str(path)
