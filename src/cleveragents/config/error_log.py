"""Bounded log files: the error log, with tracebacks of unexpected errors, without secrets, for a bug report;
and streams for other logs.

Commands and plans append to one file in the state directory. A full log becomes `errors.log.1`.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent

from cleveragents import __version__
from cleveragents.core.text.control_characters import escape_controls
from cleveragents.core.text.redaction import redact_text

__all__ = ["LogStream", "record_error"]

_LOG_BOUND = 1 << 20


def record_error(error: BaseException, subject: str, state_directory: Path | None) -> str:
    """Append the traceback of an error to the error log and return the path of the log.

    `subject` names the failed operation, such as a command line. Without a writable state directory, a
    temporary file is written instead.
    """
    trace = "".join(traceback.format_exception(error))
    heading = (
        f"{datetime.now(UTC).isoformat(timespec='seconds')} cleveragents {__version__} python {sys.version}"
    )
    told = f"{escape_controls(redact_text(subject))}\n{escape_controls(redact_text(trace), keep_lines=True)}"
    # Indented, so that a line of the message cannot pass for the heading of an entry.
    details = f"== {heading}\n{indent(told, '  ')}\n"
    if state_directory is not None:
        try:
            return _append(state_directory / "errors.log", details)
        except OSError:
            pass  # written to a temporary file below
    descriptor, name = tempfile.mkstemp(prefix="cleveragents-error-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(details)
    return name


class LogStream(io.TextIOBase):
    """A stream that appends to a log file. A full log becomes `NAME.log.1`; there is no other old one.

    Thread safety:
        Owner: the code that redirects a stream to it; any thread may write.
        Lock: `_lock` guards the descriptor while it is opened or closed.
        Guarantee: each write is one append to the file, and at most one descriptor is open.
    Cancel safety: nothing here waits.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    def fileno(self) -> int:
        """Return a descriptor that appends to the log, for child processes and fault handlers. It stays with
        its file if the log becomes full. If the log cannot be written, the descriptor discards its input.
        """
        with self._lock:
            if self._descriptor is None:
                try:
                    self._descriptor = _opened(self._path)
                except OSError:  # a full disk must not fail the code that logs
                    self._descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            return self._descriptor

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        super().close()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with suppress(OSError):  # a full disk must not fail the code that logs
            _append(self._path, text)
        return len(text)


def _opened(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_BOUND:
        path.replace(path.with_suffix(".log.1"))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _append(path: Path, details: str) -> str:
    with os.fdopen(_opened(path), "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(details)
    return str(path)
