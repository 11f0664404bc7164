"""A few lines that stay at the bottom of a terminal, while what is finished scrolls away above them.

The cursor is moved, but never hidden, and no mode of the terminal is changed for longer than a write takes:
whoever is killed in the middle leaves a few lines too many on the screen, and a terminal that works.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING

from cleveragents.cli.output import console
from cleveragents.cli.render.narrow_terminal import at_words, terminal_size
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
"""A terminal may be narrower than it says, for a moment; it then cuts the lines and does not break them."""


class Footer:
    """Draws what `render` gives for the terminal's size, at most eight times a second.

    Thread safety:
        Owner: the view that made it starts and closes it; any thread may call `scroll`.
        Lock: `_lock` guards the lines to come and what is on the screen; it is held while the terminal is
            written to, so that nothing gets between. `render` is called under it and must not wait;
            `prepare`, before each, is not and may.
        Guarantee: every line that was given to `scroll` before `close` is on the screen when that returns,
            once, in order; below the last one there is nothing.
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
        # Only to turn styles into what the terminal understands: it is written to in one place.
        self._console = console(StringIO(), force_terminal=True, width=1000)
        self._lock = threading.Lock()
        self._above: list[Text] = []
        self._widths: list[int] = []
        self._columns = 0
        self._over = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Draws by itself from now on."""
        self._thread = threading.Thread(target=self._keep_drawing, name="cleveragents-footer", daemon=True)
        self._thread.start()

    def scroll(self, *lines: Text) -> None:
        """Lines that are finished; they appear with the next refresh, and nothing between them."""
        with self._lock:
            if not self._closed:
                self._above.extend(lines)
                return
        self._write("".join(f"{self._ansi(line)}\n" for line in lines))

    def scroll_words(self, text: str, style: str = "") -> None:
        """Scrolls something that was said, broken between words where it is too long for one line."""
        from rich.text import Text

        indent = " " * (len(text) - len(text.lstrip(" "))) + _INDENT
        # The last column stays free, as at the bottom.
        lines = at_words(text, max(self._size()[0] - 1, 1), indent)
        self.scroll(*(Text(line, style=style, no_wrap=True) for line in lines))

    def draw(self) -> None:
        """Brings the screen up to date."""
        self._prepare()
        with self._lock:
            if not self._closed:
                self._draw()

    def close(self) -> None:
        """Takes the lines at the bottom away; what scrolled stays."""
        self._over.set()
        thread = self._thread
        if thread is not None:
            thread.join(_END_SECONDS)
        with self._lock:
            if self._closed:  # what others wrote since is not ours to erase
                return
            self._closed = True
            self._write(self._rewound() + self._scrolled() + _TO_END_OF_SCREEN)

    def _keep_drawing(self) -> None:
        while not self._over.wait(REFRESH_SECONDS):
            self.draw()

    def _draw(self) -> None:
        columns, lines = self._size()
        # The last column stays free: some terminals begin a new line when it is written to.
        room = max(columns - 1, 1), max(lines - 1, 1)
        shown = self._render(room)[: room[1]]
        for line in shown:
            line.truncate(room[0], overflow="ellipsis")
        back = self._rewound(columns)
        if columns < self._columns:
            # What is left of broken lines would be joined to ours when there is more room again.
            back += f"{_TO_END_OF_SCREEN}\n"
        body = _UNBROKEN.format(f"{_TO_END_OF_LINE}\n".join(self._ansi(line) for line in shown))
        self._write(f"{back}{self._scrolled()}{body}{_TO_END_OF_SCREEN}")
        self._columns = columns
        self._widths = [line.cell_len for line in shown]

    def _rewound(self, columns: int | None = None) -> str:
        """To the beginning of what is drawn. A terminal that became narrower has broken its lines."""
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
        with suppress(OSError):  # the terminal is gone; the plan is not
            unguarded(self._stream).write(text)
            self._stream.flush()
