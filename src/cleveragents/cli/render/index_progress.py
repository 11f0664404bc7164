"""How far the index is, while somebody waits for it: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cleveragents.cli.output import console, progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["IndexBar"]

_WORTH_SAYING = 200
"""Fewer contents than this are indexed before a bar could be read."""
_LINES_SECONDS = 5.0


class IndexBar:
    """Shows what `moved` is told. Use it as a context manager.

    Thread safety:
        Owner: the command that waits; the index tells it from a thread of its own.
        Lock: `_lock` guards the bar; held while it is drawn, which nobody but the teller waits for.
        Guarantee: nothing is drawn after it was left.
    Cancel safety: an interrupt leaves it like any other end, and the terminal as it was.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._left = False
        self._said_at = 0.0

    def moved(self, done: int, total: int) -> None:
        """So many of so many contents are indexed."""
        with self._lock:
            if self._left or total < _WORTH_SAYING:  # guard: nothing is drawn after it was left
                return
            if sys.stderr.isatty():
                self._draw(done, total)
            elif time.monotonic() - self._said_at >= _LINES_SECONDS or done == total:
                self._said_at = time.monotonic()
                progress(f"indexing: {done:,} of {total:,} files")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._left = True
            if self._bar is not None:
                self._bar.stop()

    def _draw(self, done: int, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bar is None or self._task is None:
            columns = (TextColumn("indexing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            # Drawn when it is told something, so that no thread of the bar's own outlives it.
            self._bar = Progress(*columns, console=console(sys.stderr), transient=True, auto_refresh=False)
            self._task = self._bar.add_task("indexing", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, refresh=True)
