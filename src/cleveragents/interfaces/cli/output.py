"""Results on stdout in the form that was asked for; progress goes to stderr and never mixes with them.

`rich` is for eyes, `plain` for pipes and screen readers, `json` is one document, `stream-json` one object per
line. The first two show text from elsewhere (job kinds, errors, payloads) with its control characters spelt
out: what a job wrote must not be able to move the cursor or retitle the terminal of whoever lists jobs.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from cleveragents.domain.json_value import JsonValue, thaw

__all__ = ["Output", "colour", "format_option", "printable", "progress", "timestamp"]

FORMATS = ("rich", "plain", "json", "stream-json")

Row = Mapping[str, JsonValue]
_Command = TypeVar("_Command", bound=Callable[..., Any])

_STYLES = {
    "ok": "green",
    "yes": "green",
    "no": "bold red",
    "succeeded": "green",
    "warn": "yellow",
    "queued": "yellow",
    "running": "cyan",
    "cancelled": "magenta",
    "fail": "bold red",
    "failed": "bold red",
}


def format_option(command: _Command) -> _Command:
    """Adds `--format`, which arrives as `output: Output`."""
    return click.option(
        "--format",
        "output",
        type=click.Choice(FORMATS),
        default=None,
        callback=lambda ctx, parameter, value: Output(value or _default_format()),
        help="How to print the result: rich on a terminal, else plain, unless you say.",
    )(command)


def colour() -> bool | None:
    """For click: no colours where NO_COLOR asks for none; elsewhere it looks whether there is a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def printable(text: str) -> str:
    """The text on one line, with every control and direction character spelt out."""
    return "".join(c if _is_harmless(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def progress(message: str) -> None:
    """A line about work under way, on stderr."""
    click.echo(printable(message), err=True)


def timestamp(moment: datetime) -> str:
    """The moment in UTC, to the second, as people and programs both read it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Output:
    """Prints results in one format."""

    def __init__(self, format_name: str) -> None:
        self.format = format_name

    @property
    def for_programs(self) -> bool:
        return self.format in ("json", "stream-json")

    def table(self, rows: Sequence[Row], columns: Sequence[str], *, empty: str) -> None:
        """Rows as a table of these columns; programs get every field. `empty` is said if there are none."""
        if self.format == "json":
            _write(_dumps(tuple(rows), indent=2))
        elif self.format == "stream-json":
            for row in rows:
                _write(_dumps(row))
        elif not rows:
            progress(empty)
        elif self.format == "rich":
            self._rich_table(rows, columns)
        else:
            _plain_table(rows, columns)

    def title(self, text: str) -> None:
        """A heading above what follows, for people."""
        _write(f"\n{click.style(text, bold=True)}" if self.format == "rich" else f"\n{text}")

    def record(self, fields: Row) -> None:
        """One thing, field by field."""
        if self.format == "json":
            _write(_dumps(fields, indent=2))
        elif self.format == "stream-json":
            _write(_dumps(fields))
        else:
            width = max(len(name) for name in fields)
            for name, value in fields.items():
                self._field(name.ljust(width), _cell(value))

    def line(self, row: Row, columns: Sequence[str]) -> None:
        """One row as soon as it is there; to programs one object per line, in `json`, too."""
        if self.for_programs:
            _write(_dumps(row))
        else:
            _write("  ".join(_styled(_cell(row.get(column))) for column in columns))
        sys.stdout.flush()

    def _field(self, name: str, value: str) -> None:
        if self.format == "rich":
            _write(f"{click.style(name, dim=True)}  {_styled(value)}")
        else:
            _write(f"{name}  {value}")

    def _rich_table(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for number, column in enumerate(columns):
            # The first is what one copies: it is never broken.
            table.add_column(column.replace("_", " "), overflow="fold", no_wrap=number == 0)
        for row in rows:
            cells = [_cell(row.get(column)) for column in columns]
            table.add_row(*[Text(cell, style=_STYLES.get(cell, "")) for cell in cells])
        Console().print(table)


def _default_format() -> str:
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return "rich"
    return "plain"


def _plain_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    lines = [list(columns)] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        _write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: JsonValue) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (str, int, float)):
        return printable(str(value))
    return printable(_dumps(value))


def _styled(value: str) -> str:
    style = _STYLES.get(value)
    return click.style(value, fg=style.removeprefix("bold ")) if style else value


def _dumps(value: JsonValue, indent: int | None = None) -> str:
    return json.dumps(thaw(value), indent=indent, ensure_ascii=False)


def _write(line: str) -> None:
    click.echo(line, color=colour())


def _is_harmless(character: str) -> bool:
    return character == " " or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
