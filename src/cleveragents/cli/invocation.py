"""One run of a command line, and its exit code: each kind of ending has a code."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from types import FrameType

import click

from cleveragents.cli.commands import cli

__all__ = ["invoke"]

_Handler = Callable[[int, FrameType | None], object] | int | None


def invoke(arguments: list[str]) -> int:
    """Run a command line and return its exit code. Raises `OSError` if the output cannot be written."""
    signal.signal(signal.SIGTERM, _on_terminate)
    on_interrupt = signal.getsignal(signal.SIGINT)
    context: click.Context | None = None
    try:
        if "_AGENTS_COMPLETE" in os.environ:
            return _complete(os.environ["_AGENTS_COMPLETE"])
        # Not `cli.main()`: it maps a broken pipe to a failure and prints its own message for an interrupt.
        with cli.make_context("agents", [*arguments]) as context:  # click empties the list
            cli.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        code = _wrong_usage(error, _prefix(context))
        if isinstance(error, click.NoSuchOption):
            _say_where_it_belongs(error.option_name, arguments)
        return code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:
            raise  # stdout is on a full disk; errors of other files name them
        raise SystemExit(_reported(error, _prefix(context))) from error
    except Exception as error:
        raise SystemExit(_reported(error, _prefix(context))) from error
    finally:
        _restore(on_interrupt)
        _forget_secrets(context)  # only now: errors are reported with secrets masked
    return 0


def _restore(on_interrupt: _Handler) -> None:
    """Restore the handler of Ctrl-C, whatever the command did to it."""
    if on_interrupt is not None:  # None would be a handler that Python does not know
        signal.signal(signal.SIGINT, on_interrupt)


def _forget_secrets(context: click.Context | None) -> None:
    if context is not None and context.obj is not None:
        context.obj.secrets.forget()


def _say_where_it_belongs(option: str, arguments: list[str]) -> None:
    """Print a hint if an option of a command was passed before the command, or an option of `agents` after
    the command.
    """
    names: list[str] = []
    command: click.Command = cli
    for word in arguments:
        if isinstance(command, click.Group):
            below = command.get_command(click.Context(command), word)
            command = below or command
            names += [word] if below else []
    before = _option_of(cli, option)
    known = before or _option_of(command, option)
    if known is None or not names:
        return
    said = option if known.is_flag else f"{option} {_value_after(option, arguments)}"
    words = (said, *names) if before else (*names, said)
    place = "before" if before else "after"
    click.echo(f"{option} goes {place} the command: agents {' '.join(words)}", err=True)


def _option_of(command: click.Command, name: str) -> click.Option | None:
    known = next((found for found in command.params if name in found.opts), None)
    return known if isinstance(known, click.Option) else None


def _value_after(option: str, arguments: list[str]) -> str:
    for word, following in pairwise([*arguments, "…"]):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return "…"  # it was one of several letters after one dash


def _wrong_usage(error: click.ClickException, prefix: str) -> int:
    from cleveragents.cli.failure import report_usage

    return report_usage(error, prefix)


def _reported(error: Exception, prefix: str) -> int:
    from cleveragents.cli.failure import report

    return report(error, prefix)


def _prefix(context: click.Context | None) -> str:
    """Return the beginning of a command line that uses the same server: `agents`, or with `--server`."""
    if context is None:
        return "agents"
    from cleveragents.cli.servers import prefix_in

    return prefix_in(context)


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "agents", "_AGENTS_COMPLETE", instruction)


def _on_terminate(signum: int, frame: object) -> None:
    # As an exception, so that everything is closed on the way out, as after Ctrl-C.
    raise SystemExit(128 + signal.SIGTERM)
