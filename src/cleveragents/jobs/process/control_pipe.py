"""What a worker tells a job's runner: lines of JSON, from several threads, without ever waiting."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from typing import Protocol

__all__ = ["ControlPipe"]

_REASON_LIMIT = 500


class WritableEnd(Protocol):
    """An unbuffered, non-blocking end of a pipe."""

    def write(self, data: bytes, /) -> int | None: ...

    def close(self) -> None: ...


class ControlPipe:
    """Renewals of the lease and a cancel, until it is closed.

    Thread safety:
        Owner: the `RunnerProcess` that made it; heartbeats, cancels and the close come from several threads.
        Lock: `_lock` guards the pipe's end and the lease, held for one write that never waits.
        Guarantee: nothing is written after `close`, and the lease that the other side hears of only grows.
    Cancel safety: no call waits.
    """

    def __init__(self, end: WritableEnd, lease_until: float) -> None:
        self._lock = threading.Lock()
        self._end = end
        self._lease_until = lease_until
        self._closed = False

    def renew(self, lease_until: float) -> None:
        with self._lock:
            if lease_until <= self._lease_until:  # guard: a renewal that was overtaken shortens nothing
                return
            self._lease_until = lease_until
            self._write({"lease_until": lease_until})

    def cancel(self, reason: str) -> None:
        with self._lock:
            self._write({"cancel": reason[:_REASON_LIMIT]})

    def close(self) -> None:
        """The other side sees the end of the file. Twice is harmless."""
        with self._lock:
            self._closed = True
            self._end.close()

    def _write(self, message: Mapping[str, object]) -> None:
        if self._closed:  # guard: the end is gone
            return
        # A runner that is gone needs no news; one that does not read lets its lease run out.
        with contextlib.suppress(BrokenPipeError):
            self._end.write(json.dumps(message).encode() + b"\n")
