"""Layout for narrow terminals: fewer columns, and values on lines of their own."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from cleveragents.cli.output import Output

__all__ = ["NARROW", "columns_for", "in_lines", "is_narrow", "steps_in_lines", "terminal_size", "wrap_words"]

NARROW = 60
"""Below this number of columns, a table has room for two columns."""

_INDENT = "  "
_COMMAND = re.compile(r"`[^`]*`")
_WORD = re.compile(r" *[^ ]+")
_GLUE = "\N{NO-BREAK SPACE}"


def is_narrow(width: int = NARROW) -> bool:
    """Return whether the terminal is narrow."""
    return shutil.get_terminal_size().columns < width


def columns_for(
    output: Output, columns: Sequence[str], spare: Sequence[str], width: int = NARROW
) -> list[str]:
    """Return the columns of a table; a terminal of less than this width gets no spare columns."""
    if output.human_readable and is_narrow(width):
        return [name for name in columns if name not in spare]
    return [*columns]


def in_lines(text: str, stream: TextIO, *, taken: int = 0) -> list[str]:
    """Return the text in lines that fit the terminal. Lines are broken between words. A command is broken
    only if it does not fit on a line of its own, so that it can be copied. `taken` columns of the first line
    are in use.
    """
    if not stream.isatty():
        return [text]
    first, *others = wrap_words(" " * taken + text, max(_columns(stream) - 1, 20))
    return [first[taken:], *others]


def wrap_words(text: str, width: int, indent: str = "") -> list[str]:
    """Return the text in lines of at most `width` columns, broken between words. A command is broken only if
    it does not fit on a line of its own; a longer word is not broken. All lines but the first begin with
    `indent`.
    """
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
    """Return commands with their descriptions beside them, or below them on a narrow terminal."""
    width = max((len(command) for command, _ in steps), default=0)
    room = _columns(stream) if stream.isatty() else None
    if room is not None and any(len(_INDENT) + width + 2 + len(what) > room for _, what in steps):
        return [line for command, what in steps for line in (_INDENT + command, 2 * _INDENT + what)]
    return [f"{_INDENT}{command.ljust(width)}  {what}" for command, what in steps]


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Return the columns and lines of the terminal behind the stream, or a default."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return size.columns or 80, size.lines or 24


def _columns(stream: TextIO) -> int:
    # Python asks about stdout first, which may be a file.
    return shutil.get_terminal_size(terminal_size(stream)).columns
