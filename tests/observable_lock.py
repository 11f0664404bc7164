"""A lock that reports contention, so that a test can observe it without waiting."""

from __future__ import annotations

import threading

__all__ = ["TellingLock"]


class TellingLock:
    """Sets `waited` when it is already taken. Thread safety: that of the inner lock."""

    def __init__(self, waited: threading.Event) -> None:
        self._waited = waited
        self._inner = threading.Lock()

    def __enter__(self) -> None:
        if not self._inner.acquire(blocking=False):
            self._waited.set()
            self._inner.acquire()

    def __exit__(self, *_: object) -> None:
        self._inner.release()
