"""What the user sees when a command fails: what happened and what to do, never a trace-back.

A deliberate error says both itself. For any other the details go to a file, without secrets, and the user is
told where it is: that file is what a bug report needs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

import click

from cleveragents import __version__
from cleveragents.domain.redaction import redact_text
from cleveragents.errors import CleverAgentsError

__all__ = ["report"]

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


def _say(message: str) -> None:
    from cleveragents.interfaces.cli.output import colour, printable

    click.secho("error: ", fg="red", bold=True, nl=False, err=True, color=colour())
    click.echo(printable(redact_text(message)), err=True)


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
