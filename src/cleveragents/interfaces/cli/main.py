"""The entry point: `agents`.

Only click is imported here, and each command's module when it runs. Whatever goes wrong below ends in one
place, `failure.report`, so that a mistake of the user's never shows as a trace-back.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

import click

from cleveragents import __version__
from cleveragents.interfaces.cli.lazy import LazyGroup

__all__ = ["cli", "run"]

_HERE = "cleveragents.interfaces.cli"

_COMMANDS = {
    "demo": (f"{_HERE}.demo:demo", "Show it all at work, offline, without touching your state."),
    "jobs": (f"{_HERE}.jobs:jobs", "List, inspect and cancel jobs."),
    "events": (f"{_HERE}.events:events", "Follow and verify the audit log."),
    "config": (f"{_HERE}.config:config", "Show and change settings."),
    "doctor": (f"{_HERE}.doctor:doctor", "Check that everything needed is there and sound."),
}

_EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
_EXIT_TERMINATED = 128 + signal.SIGTERM


@click.group(
    cls=LazyGroup,
    lazy_commands=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 needs a human, 75 try again, 130 interrupted.",
)
@click.version_option(
    __version__, "-V", "--version", prog_name="cleveragents", message="%(prog)s %(version)s"
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting for this command; may be repeated. `agents config list` shows them all.",
)
@click.pass_context
def cli(ctx: click.Context, overrides: tuple[str, ...]) -> None:
    """Runs many AI agent plans at once on real repositories, and loses nothing.

    \b
    Example:
      agents demo
      agents --set log.level=debug doctor
    """
    from cleveragents.interfaces.cli.session import Session

    ctx.obj = Session(overrides)


def run() -> NoReturn:
    """Runs the command line of this process and exits with its code."""
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        code = _invoke()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader had enough. Point stdout elsewhere, or the interpreter complains while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _EXIT_BROKEN_PIPE
    sys.exit(code)


def _invoke() -> int:
    try:
        if "_AGENTS_COMPLETE" in os.environ:
            return _complete(os.environ["_AGENTS_COMPLETE"])
        # Not `cli.main()`: it answers a broken pipe with "failed" and an interrupt with its own words.
        with cli.make_context("agents", sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        from cleveragents.interfaces.cli.failure import report

        raise SystemExit(report(error)) from error
    return 0


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "agents", "_AGENTS_COMPLETE", instruction)


def _on_terminate(signum: int, frame: object) -> None:
    # As an exception, so that everything on the way out is closed as it would be after Ctrl-C.
    raise SystemExit(_EXIT_TERMINATED)
