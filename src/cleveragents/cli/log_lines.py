"""Redirection of log lines while a live view draws on the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["logs_to"]


class _Lines(io.StringIO):
    """A file object that passes each written line to a function. It needs no lock, because the logger
    serializes writes.
    """

    def __init__(self, write: Callable[[Text], None]) -> None:
        super().__init__()
        self._pass_on = write

    def write(self, text: str) -> int:
        from rich.text import Text

        for line in text.splitlines():
            if line:
                self._pass_on(Text.from_ansi(line))
        return len(text)


def logs_to(write: Callable[[Text], None]) -> Callable[[], None]:
    """Send log lines to `write` until the returned function is called."""
    import structlog

    before = structlog.get_config()["logger_factory"]
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(_Lines(write)))
    return lambda: structlog.configure(logger_factory=before)
