"""One run of a command line, and the exit code of every way in which it can end."""

from __future__ import annotations

import errno
import os
import signal

import click

from cleveragents.interfaces.cli.commands import cli

__all__ = ["invoke"]


def invoke(arguments: list[str]) -> int:
    """Runs a command line; returns its exit code. `OSError` when the output cannot be written."""
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        if "_AGENTS_COMPLETE" in os.environ:
            return _complete(os.environ["_AGENTS_COMPLETE"])
        # Not `cli.main()`: it answers a broken pipe with "failed" and an interrupt with its own words.
        with cli.make_context("agents", arguments) as context:
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
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:
            raise  # stdout is on a full disk; whoever opens files names them
        raise SystemExit(_reported(error)) from error
    except Exception as error:
        raise SystemExit(_reported(error)) from error
    return 0


def _reported(error: Exception) -> int:
    from cleveragents.interfaces.cli.failure import report

    return report(error)


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "agents", "_AGENTS_COMPLETE", instruction)


def _on_terminate(signum: int, frame: object) -> None:
    # As an exception, so that everything on the way out is closed as it would be after Ctrl-C.
    raise SystemExit(128 + signal.SIGTERM)
