"""The output of this process on a terminal: text from anywhere is escaped, and only the program styles it.

Goals, file names, file contents, model answers and error messages come from repositories, models and other
users. On a terminal their control characters could hide lines, move the cursor, set the window title or fill
the clipboard. `guard_terminals` therefore replaces `sys.stdout` and `sys.stderr`, where they are terminals,
by streams that escape every control character but line feeds and tabs. All writers are covered: click, print,
warnings, trace-backs. Colours and cursor movements are written to `unguarded(stream)`, by code that escapes
the text between them.

Pipes and files are not replaced: they receive the bytes as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cleveragents.core.text.control_characters import escape_controls

if TYPE_CHECKING:
    from typing import Any, TextIO

__all__ = ["GuardedStream", "guard_terminals", "unguarded"]

_BYPASSES = frozenset({"buffer", "detach", "reconfigure"})
"""Attributes of a text stream that lead past `write`."""


class GuardedStream:
    """A terminal's text stream whose `write` escapes control characters.

    It has all other attributes of the stream, without those that lead past `write`, and is as thread-safe as
    the stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text with its control characters escaped."""
        self._stream.write(escape_controls(text, keep_lines=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in _BYPASSES:  # guard: click writes to the buffer of a stream that is ASCII
            raise AttributeError(name)
        return getattr(self._stream, name)


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream below the guard, if there is one. The caller escapes what it writes to it."""
    return stream._stream if isinstance(stream, GuardedStream) else stream


@contextmanager
def guard_terminals() -> Iterator[None]:
    """Guard `sys.stdout` and `sys.stderr`, where they are terminals, until the block ends."""
    former = sys.stdout, sys.stderr
    for name, stream in zip(("stdout", "stderr"), former, strict=True):
        if stream.isatty() and not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = former
