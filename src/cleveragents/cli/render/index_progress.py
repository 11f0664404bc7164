"""Progress of indexing: a bar on a terminal, otherwise a line from time to time."""

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
"""Minimum number of files for a bar; fewer are indexed too quickly to read it."""
_LINES_SECONDS = 5.0


class IndexBar:
    """A progress bar for indexing. Use it as a context manager.

    Thread safety:
        Owner: the command that waits; the index calls `moved` from its own thread.
        Lock: `_lock` guards the bar. It is held while the bar is drawn; only the caller of `moved` waits for
        it.
        Guarantee: nothing is drawn after exit.
    Cancel safety: an interrupt ends the bar like any other exit, and the terminal stays as it was.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._left = False
        self._said_at = 0.0

    def moved(self, done: int, total: int) -> None:
        """Show that `done` of `total` files are indexed."""
        with self._lock:
            if self._left or total < _WORTH_SAYING:  # guard: nothing is drawn after exit
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
            # Drawn in this call, so that no thread of the bar outlives it.
            self._bar = Progress(*columns, console=console(sys.stderr), transient=True, auto_refresh=False)
            self._task = self._bar.add_task("indexing", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, refresh=True)
