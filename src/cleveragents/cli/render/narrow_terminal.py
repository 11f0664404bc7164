"""What is left out, or put on lines of its own, where a terminal is narrow: a phone, a split window."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from cleveragents.cli.output import Output

__all__ = ["NARROW", "at_words", "columns_for", "in_lines", "is_narrow", "steps_in_lines", "terminal_size"]

NARROW = 60
"""With fewer columns than that, a table has room for two things."""

_INDENT = "  "
_COMMAND = re.compile(r"`[^`]*`")
_WORD = re.compile(r" *[^ ]+")
_GLUE = "\N{NO-BREAK SPACE}"


def is_narrow(width: int = NARROW) -> bool:
    """Whether the terminal has fewer columns."""
    return shutil.get_terminal_size().columns < width


def columns_for(
    output: Output, columns: Sequence[str], spare: Sequence[str], width: int = NARROW
) -> list[str]:
    """The columns of a table; on a terminal with less than that width without those that can be spared."""
    if output.human_readable and is_narrow(width):
        return [name for name in columns if name not in spare]
    return [*columns]


def in_lines(text: str, stream: TextIO, *, taken: int = 0) -> list[str]:
    """The text, where it is read on a terminal, in lines that fit: broken between words alone, and within a
    command only where that has no room in a line of its own, so that both can be copied. The first line has
    so much less room as is `taken` of it."""
    if not stream.isatty():
        return [text]
    first, *others = at_words(" " * taken + text, max(_columns(stream) - 1, 20))
    return [first[taken:], *others]


def at_words(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of so many columns: broken between words alone, and within a command only where that
    has no room in a line of its own. A longer word is left to the terminal. Further lines are indented."""
    from rich.cells import cell_len

    def whole(command: re.Match[str]) -> str:
        return command[0].replace(" ", _GLUE) if cell_len(indent + command[0]) <= width else command[0]

    lines = [""]
    for word in _WORD.findall(_COMMAND.sub(whole, text)):
        if lines[-1].strip() and cell_len(lines[-1]) + cell_len(word) > width:
            lines.append(indent + word.lstrip(" "))
        else:
            lines[-1] += word
    return [line.replace(_GLUE, " ") for line in lines]


def steps_in_lines(steps: Sequence[tuple[str, str]], stream: TextIO) -> list[str]:
    """Commands, each with what it does beside it; below it, on a terminal that has no room for both."""
    width = max((len(command) for command, _ in steps), default=0)
    room = _columns(stream) if stream.isatty() else None
    if room is not None and any(len(_INDENT) + width + 2 + len(what) > room for _, what in steps):
        return [line for command, what in steps for line in (_INDENT + command, 2 * _INDENT + what)]
    return [f"{_INDENT}{command.ljust(width)}  {what}" for command, what in steps]


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal that the stream goes to, or what is said of it otherwise."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return size.columns or 80, size.lines or 24


def _columns(stream: TextIO) -> int:
    # What is asked first, where the result goes, may be a file.
    return shutil.get_terminal_size(terminal_size(stream)).columns
