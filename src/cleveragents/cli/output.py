"""Results on stdout in the requested format; progress goes to stderr and never mixes with them.

`rich` is for a terminal, `plain` for pipes and screen readers, `json` is one document, `stream-json` one
object per line. `rich` and `plain` escape the control characters of values, line feeds included, so that a
value stays on its line; JSON has its own escapes. Only `write` and `console` may style text; control
characters in all other output to a terminal are escaped (`config.terminal`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from cleveragents.api.format import ago, counted, timestamp
from cleveragents.cli.render.narrow_terminal import in_lines
from cleveragents.config.logging import unguarded
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.text.control_characters import escape_controls, escape_controls_in_json

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import Console
    from rich.markdown import Markdown

__all__ = [
    "Output",
    "Styled",
    "ago",
    "ansi",
    "colour",
    "console",
    "continued",
    "counted",
    "format_option",
    "printable",
    "printed",
    "progress",
    "rendered_markdown",
    "timestamp",
    "write",
]

FORMATS = ("rich", "plain", "json", "stream-json")

Row = Mapping[str, JsonValue]
_Command = TypeVar("_Command", bound=Callable[..., Any])

_GAP = 2
_CUT_TO = 12
"""Minimum width of a shortened column."""

_STYLES = {
    "ok": "green",
    "yes": "green",
    "no": "bold red",
    "succeeded": "green",
    "warn": "yellow",
    "queued": "yellow",
    "waiting": "yellow",
    "running": "cyan",
    "processing": "cyan",
    "complete": "cyan",
    "applied": "green",
    "passed": "green",
    "cancelled": "magenta",
    "constrained": "yellow",
    "errored": "bold red",
    "fail": "bold red",
    "failed": "bold red",
}


def format_option(command: _Command) -> _Command:
    """Add `--format`; the command receives it as `output: Output`."""
    return click.option(
        "--format",
        "output",
        type=click.Choice(FORMATS),
        default=None,
        callback=lambda ctx, parameter, value: Output(value or _default_format()),
        help="Format of the result. Default: rich on a terminal, otherwise plain.",
    )(command)


def colour() -> bool | None:
    """Return the colour mode for click: False with NO_COLOR, otherwise None, so that click detects a
    terminal.
    """
    return False if os.environ.get("NO_COLOR") else None


def printable(text: str) -> str:
    """Return the text on one line, with its control characters escaped."""
    return escape_controls(text)


def continued(text: str) -> list[str]:
    """Return the lines of the text. All lines except the first are indented, so that they do not look like
    separate messages.
    """
    first, *others = text.rstrip("\n").split("\n")
    return [first, *(f"  {other}".rstrip() for other in others)]


class Styled(NamedTuple):
    """A piece of a line with its style on a terminal."""

    text: str
    fg: str | None = None
    bold: bool = False
    dim: bool = False


def write(*pieces: str | Styled, err: bool = False, end: str = "\n") -> None:
    """Write pieces of text to stdout or stderr, styled on a terminal unless NO_COLOR is set.

    On a terminal control characters are escaped, except line feeds and tabs; elsewhere they stay.
    """
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        text = "".join(piece.text if isinstance(piece, Styled) else piece for piece in pieces)
        click.echo(f"{text}{end}", nl=False, err=err, color=True)  # unescaped
        return
    unguarded(stream).write("".join(map(ansi if colour() is None else _unstyled, pieces)) + end)
    stream.flush()


def ansi(piece: str | Styled) -> str:
    """Return the piece for a terminal: its text escaped, between the escape sequences of its style."""
    text = _unstyled(piece)
    if not isinstance(piece, Styled) or piece[1:] == (None, False, False):
        return text
    return click.style(text, fg=piece.fg, bold=piece.bold or None, dim=piece.dim or None)


def _unstyled(piece: str | Styled) -> str:
    return escape_controls(piece.text if isinstance(piece, Styled) else piece, keep_lines=True)


def console(stream: TextIO | None = None, **options: Any) -> Console:
    """Return a Rich console on the stream, or stdout, that escapes text and interprets no markup."""
    from rich.console import Console
    from rich.segment import Segment

    class _Escaping(Console):
        def render(self, *given: Any, **named: Any) -> Any:
            for segment in super().render(*given, **named):
                text, style, control = segment
                yield segment if control else Segment(escape_controls(text, keep_lines=True), style)

    options = {"highlight": False, "markup": False, "emoji": False, **options}
    return _Escaping(file=unguarded(stream or sys.stdout), **options)


def progress(message: str) -> None:
    """Print a line about work in progress on stderr. On a terminal, a long line is broken between words.
    Indented lines, which are commands or parts of files, are not broken.
    """
    shown = printable(message)
    lines = [shown] if shown.startswith(" ") else in_lines(shown, sys.stderr)
    click.echo("\n".join(lines), err=True)


def printed(line: str) -> None:
    """Print a line on stderr without breaking it, so that it can be copied from a terminal as one line."""
    click.echo(printable(line), err=True)


def rendered_markdown(text: str) -> Markdown:
    """Return Markdown for Rich. Links show their address, and HTML is shown as text."""
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    shown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    # Rich drops all that looks like HTML: `List<String>` would lose its end.
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    shown.parsed = parser.parse(text)
    return shown


class Output:
    """A printer of results in one format."""

    def __init__(self, format_name: str) -> None:
        self.format = format_name

    @property
    def machine_readable(self) -> bool:
        return self.format in ("json", "stream-json")

    @property
    def human_readable(self) -> bool:
        return self.format == "rich"

    def table(
        self,
        rows: Sequence[Row],
        columns: Sequence[str],
        *,
        empty: str,
        cut: Sequence[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Print rows as a table of these columns; programs get every field. Without rows, print `empty`,
        unless that text is "".

        A terminal that is too narrow wraps cells. If `cut` names columns, each row takes one line instead:
        the columns in `spare` are dropped, the first one first, and those in `cut` are shortened.
        """
        if self.format == "json":
            write(_dumps(tuple(rows), indent=2))
        elif self.format == "stream-json":
            for row in rows:
                write(_dumps(row))
        elif not rows:
            if empty:
                progress(empty)
        elif self.human_readable:
            self._rich_table(rows, columns, cut, spare)
        else:
            _plain_table(rows, columns)

    def title(self, text: str) -> None:
        """Print a heading, for people."""
        write("\n", Styled(text, bold=self.human_readable))

    def markdown(self, text: str) -> None:
        """Print Markdown: rendered on a terminal, elsewhere unchanged. Links show their address."""
        if not self.human_readable:
            write(text.rstrip())
            return
        console().print(rendered_markdown(text))

    def record(self, fields: Row) -> None:
        """Print one object, field by field."""
        if self.format == "json":
            write(_dumps(fields, indent=2))
        elif self.format == "stream-json":
            write(_dumps(fields))
        else:
            width = max(len(name) for name in fields)
            for name, value in fields.items():
                self._field(name.ljust(width), _cell(value))

    def line(self, row: Row, columns: Sequence[str]) -> None:
        """Print one row immediately. Programs get one JSON object per line, also in the format `json`."""
        if self.machine_readable:
            write(_dumps(row))
        else:
            cells = [_styled(_cell(row.get(column))) for column in columns]
            write(*[piece for cell in cells for piece in ("  ", cell)][1:])

    def _field(self, name: str, value: str) -> None:
        if self.human_readable:
            write(Styled(name, dim=True), "  ", _styled(value))
        else:
            write(f"{name}  {value}".rstrip())

    def _rich_table(
        self, rows: Sequence[Row], columns: Sequence[str], cut: Sequence[str], spare: Sequence[str]
    ) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        screen = console()
        cells = {name: [_cell(row.get(name)) for row in rows] for name in columns}
        widths: dict[str, int] = {}
        if cut:
            natural = {name: max(map(cell_len, (_heading(name), *texts))) for name, texts in cells.items()}
            widths = _fitted(natural, screen.width, cut, spare)
        shown = [name for name in columns if not cut or name in widths]
        table = Table(
            box=SIMPLE_HEAD, show_edge=False, padding=(0, _GAP - 1, 0, 0), pad_edge=False, header_style="bold"
        )
        for number, name in enumerate(shown):
            # The first column is never broken: people copy it.
            table.add_column(
                _heading(name),
                overflow="ellipsis" if cut else "fold",
                no_wrap=bool(cut) or number == 0,
                width=widths.get(name),
            )
        for row in zip(*(cells[name] for name in shown), strict=True):
            table.add_row(*[Text(cell, style=_STYLES.get(cell, "")) for cell in row])
        screen.print(table)


def _heading(column: str) -> str:
    return column.replace("_", " ")


def _fitted(natural: dict[str, int], room: int, cut: Sequence[str], spare: Sequence[str]) -> dict[str, int]:
    """Return the columns to show, each with its width. Their total width exceeds `room` only if nothing more
    can be dropped or shortened.
    """

    def taken(widths: dict[str, int]) -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1)

    widths = dict(natural)
    for name in spare:
        if taken({n: min(w, _CUT_TO) if n in cut else w for n, w in widths.items()}) > room:
            del widths[name]
    givers = [name for name in cut if name in widths]
    while taken(widths) > room and any(widths[name] > _CUT_TO for name in givers):
        widths[max(givers, key=widths.__getitem__)] -= 1
    return widths


def _default_format() -> str:
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return "rich"
    return "plain"


def _plain_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    lines = [list(columns)] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: JsonValue) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (str, int, float)):
        return printable(str(value))
    return printable(_dumps(value))


def _styled(value: str) -> Styled:
    style = _STYLES.get(value)
    return Styled(value, fg=style and style.removeprefix("bold "))


def _dumps(value: JsonValue, indent: int | None = None) -> str:
    plain = thaw(value)
    return escape_controls_in_json(json.dumps(plain, indent=indent, ensure_ascii=False))
