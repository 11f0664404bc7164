"""Lines that stay at the bottom of a terminal, while finished lines scroll above them.

The cursor moves but is never hidden, and no mode of the terminal changes for longer than one write: a process
that is killed leaves a few extra lines and a working terminal.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING

from cleveragents.cli.output import console
from cleveragents.cli.render.narrow_terminal import terminal_size, wrap_words
from cleveragents.config.logging import unguarded

if TYPE_CHECKING:
    from typing import TextIO

    from rich.text import Text

__all__ = ["REFRESH_SECONDS", "Footer", "Size"]

REFRESH_SECONDS = 0.125
_END_SECONDS = 5.0
_INDENT = "  "

Size = tuple[int, int]
"""Columns and lines."""

_UP = "\x1b[{}A"
_TO_END_OF_LINE = "\x1b[K"
_TO_END_OF_SCREEN = "\x1b[J"
_UNBROKEN = "\x1b[?7l{}\x1b[?7h"
"""A terminal may briefly be narrower than it reports; it then cuts lines instead of breaking them."""


class Footer:
    """A footer that draws the lines of `render` for the size of the terminal, at most eight times a second.

    Thread safety:
        Owner: the view that made it starts and closes it; any thread may call `scroll`.
        Lock: `_lock` guards the pending lines and the state of the screen. It is held while the terminal is
            written, so that no other output gets in between. `render` is called under the lock and must not
            wait; `prepare` is called before, without the lock, and may wait.
        Guarantee: every line that was given to `scroll` before `close` is on the screen when `close` returns,
            once and in order, and nothing is below the last line.
    Cancel safety: an interrupted `close` may be called again.
    """

    def __init__(
        self,
        render: Callable[[Size], list[Text]],
        *,
        prepare: Callable[[], None],
        stream: TextIO | None = None,
        size: Callable[[], Size] | None = None,
    ) -> None:
        self._render = render
        self._prepare = prepare
        self._stream = stream or sys.stderr
        self._size = size or (lambda: terminal_size(self._stream))
        # Converts styles to escape sequences only: the terminal is written in one place.
        self._console = console(StringIO(), force_terminal=True, width=1000)
        self._lock = threading.Lock()
        self._above: list[Text] = []
        self._widths: list[int] = []
        self._columns = 0
        self._over = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start drawing periodically."""
        self._thread = threading.Thread(target=self._keep_drawing, name="cleveragents-footer", daemon=True)
        self._thread.start()

    def scroll(self, *lines: Text) -> None:
        """Append finished lines; they appear together with the next refresh."""
        with self._lock:
            if not self._closed:
                self._above.extend(lines)
                return
        self._write("".join(f"{self._ansi(line)}\n" for line in lines))

    def scroll_words(self, text: str, style: str = "") -> None:
        """Append a message, broken between words if it is too long for one line."""
        from rich.text import Text

        indent = " " * (len(text) - len(text.lstrip(" "))) + _INDENT
        # The last column stays free, as at the bottom.
        lines = wrap_words(text, max(self._size()[0] - 1, 1), indent)
        self.scroll(*(Text(line, style=style, no_wrap=True) for line in lines))

    def draw(self) -> None:
        """Update the screen."""
        self._prepare()
        with self._lock:
            if not self._closed:
                self._draw()

    def close(self) -> None:
        """Remove the lines at the bottom; scrolled lines stay."""
        self._over.set()
        thread = self._thread
        if thread is not None:
            thread.join(_END_SECONDS)
        with self._lock:
            if self._closed:  # later output of others must not be erased
                return
            self._closed = True
            self._write(self._rewound() + self._scrolled() + _TO_END_OF_SCREEN)

    def _keep_drawing(self) -> None:
        while not self._over.wait(REFRESH_SECONDS):
            self.draw()

    def _draw(self) -> None:
        columns, lines = self._size()
        # The last column stays free: some terminals start a new line when it is written.
        room = max(columns - 1, 1), max(lines - 1, 1)
        shown = self._render(room)[: room[1]]
        for line in shown:
            line.truncate(room[0], overflow="ellipsis")
        back = self._rewound(columns)
        if columns < self._columns:
            # Erased: the terminal would join the rest of broken lines to ours when it becomes wider.
            back += f"{_TO_END_OF_SCREEN}\n"
        body = _UNBROKEN.format(f"{_TO_END_OF_LINE}\n".join(self._ansi(line) for line in shown))
        self._write(f"{back}{self._scrolled()}{body}{_TO_END_OF_SCREEN}")
        self._columns = columns
        self._widths = [line.cell_len for line in shown]

    def _rewound(self, columns: int | None = None) -> str:
        """Return the escape sequence that moves the cursor to the start of the drawn lines. A terminal that
        became narrower has wrapped these lines, which is taken into account.
        """
        if not self._widths:
            return ""
        columns = columns or self._size()[0]
        rows = sum(max(1, -(-width // max(columns, 1))) for width in self._widths)
        self._widths = []
        return "\r" + (_UP.format(rows - 1) if rows > 1 else "")

    def _scrolled(self) -> str:
        above, self._above = self._above, []
        return "".join(f"{self._ansi(line)}{_TO_END_OF_LINE}\n" for line in above)

    def _ansi(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True, highlight=False)
        return captured.get()

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone; the plan continues
            unguarded(self._stream).write(text)
            self._stream.flush()
