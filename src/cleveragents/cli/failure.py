"""Error messages of the command line: the failure and its remedy, never a traceback.

Expected errors contain their remedies. For any other error, the details are written to a file, without
secrets, and the message names that file for a bug report.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.usage import RefusedUsage
from cleveragents.config.error_log import record_error
from cleveragents.core.errors import CleverAgentsError, UnknownModel
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.core.errors import Remedy

__all__ = ["report", "report_usage", "say_error"]

_NEGATIVE = re.compile(r"-\.?[0-9]")
_NO_SUCH_NUMBER = re.compile(r" is not (a valid (integer|float)( range)?|in the range \S+)(?=\.?$)")
_LONGEST_LINE = 2_000
_ENDS = 300


_NO_SUCH_CHOICE = re.compile(r"'([^']*)' is not one of ")


def report(error: Exception, prefix: str = "agents") -> int:
    """Print an error on stderr and return the exit code. Commands in remedies begin with `prefix`, so that
    they use the same server.
    """
    if isinstance(error, CleverAgentsError):
        say_error(_in_full(error))
        _say_remedies(error.remedies, prefix)
        return error.exit_code
    if isinstance(error, MemoryError):
        say_error("out of memory")
        return 75
    place = record_error(error, f"command: {' '.join(sys.argv)}", _state_directory())
    say_error(f"internal error ({type(error).__name__}); the details are in {place}")
    return 1


def report_usage(error: click.ClickException, prefix: str = "agents") -> int:
    """Print a usage error in the form of other errors, and return the exit code. `prefix` as for `report`."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # no message: show the help
        return error.exit_code
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        # An option of `agents` itself is not a misspelled option of this command; the hint below names its
        # place.
        misplaced = error.option_name in _shown_options(error.ctx.find_root())
        near = [] if misplaced else _shown_options(error.ctx)
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    said = error.format_message().replace("\n\t", "\n  ")  # click indents choices by a tab, which is escaped
    if isinstance(error, click.NoSuchOption) and _NEGATIVE.match(error.option_name):
        said = f"{said.removesuffix('.')}; write -- before a value that begins with -"
    if isinstance(error, click.BadParameter) and error.param is not None:
        said = _NO_SUCH_NUMBER.sub(f" must be a {_number_wanted(error.param.type)}", said)
        said = said.removesuffix(".") + _near_choice(error.param.type, said)
    say_error(_in_our_words(said))
    if isinstance(error, RefusedUsage):
        _say_remedies(error.remedies, prefix)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        usage = context.command.get_usage(context).partition(": ")[2]
        click.echo(f"usage: {' '.join(usage.split())}; see --help", err=True)
    return error.exit_code


def _in_full(error: CleverAgentsError) -> str:
    """Return the message of an error. For an unknown scripted model, add the available files; servers do not
    reveal them.
    """
    if isinstance(error, UnknownModel):
        from cleveragents.models.providers.scripted import what_is_there

        there = what_is_there(error.name)
        if there is not None:
            return str(UnknownModel(error.name, there))
    return str(error)


def _near_choice(kind: click.ParamType[object], said: str) -> str:
    """Return a hint if the refused value is similar to one of the choices."""
    import difflib

    found = _NO_SUCH_CHOICE.search(said)
    if found is None or not isinstance(kind, click.Choice):
        return ""
    near = difflib.get_close_matches(found[1], [str(one) for one in kind.choices], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _in_our_words(said: str) -> str:
    """Return a message of click in the form of our own messages: no capital at the start, no full stop at the
    end.
    """
    text = re.sub(r"\. \(?Did you mean([^?]*\?)\)?", r"; did you mean\1", said)
    first, rest = text[:1], text[1:]
    return (first.lower() if rest[:1].islower() else first) + rest.removesuffix(".")


def _shown_options(context: click.Context) -> list[str]:
    """Return the options that help shows, so that suggestions never name hidden ones."""
    options = [one for one in context.command.get_params(context) if isinstance(one, click.Option)]
    return [name for one in options if not one.hidden for name in (*one.opts, *one.secondary_opts)]


def _number_wanted(kind: click.ParamType[object]) -> str:
    """Return the range of numbers that an option accepts, as text."""
    whole = "whole number" if isinstance(kind, click.types.IntParamType) else "number"
    if not isinstance(kind, (click.IntRange, click.FloatRange)):
        return whole
    # The largest number of the database is no limit worth naming.
    ends = (kind.min, None if kind.max is None or kind.max >= 2**63 - 1 else kind.max)
    least, most = (None if end is None else f"{end:,.10g}" for end in ends)
    if least is None:
        return whole if most is None else f"{whole} of at most {most}"
    if kind.min_open:
        above = f"{whole} greater than {least}"
        return above if most is None else f"{above} and at most {most}"
    return f"{whole} of at least {least}" if most is None else f"{whole} from {least} to {most}"


def say_error(message: str) -> None:
    """Print an error message on stderr."""
    from cleveragents.cli.output import Styled, continued, printable, write
    from cleveragents.cli.render.narrow_terminal import in_lines

    begins = "error: "
    write(Styled(begins, fg="red", bold=True), err=True, end="")
    for number, line in enumerate(continued(redact_text(message))):
        shown = printable(_shortened(line))
        for piece in in_lines(shown, sys.stderr, taken=0 if number else len(begins)):
            click.echo(piece, err=True)


def _shortened(line: str) -> str:
    """Return the line without its middle if it is very long: errors quote arguments of any length."""
    if len(line) <= _LONGEST_LINE:
        return line
    left_out = f" … {len(line) - 2 * _ENDS:,} characters … "
    return line[:_ENDS] + left_out + line[-_ENDS:]


def _say_remedies(remedies: Sequence[Remedy], prefix: str) -> None:
    """Print each remedy on a line of its own."""
    from cleveragents.cli.output import printable
    from cleveragents.cli.render.remedies import remedy_lines

    for line in remedy_lines(remedies, prefix):
        click.echo(printable(redact_text(line)), err=True)


def _state_directory() -> Path | None:
    from cleveragents.config.loader import load_configuration

    try:
        return Path(load_configuration(os.environ, Path.cwd()).settings.state.directory)
    except (OSError, CleverAgentsError):
        return None
