"""A lock that tells when somebody has to wait for it, so that a test knows it without waiting itself."""

from __future__ import annotations

import threading

__all__ = ["TellingLock"]


class TellingLock:
    """Sets `waited` when it is taken already. Thread safety: that of the lock in it."""

    def __init__(self, waited: threading.Event) -> None:
        self._waited = waited
        self._inner = threading.Lock()

    def __enter__(self) -> None:
        if not self._inner.acquire(blocking=False):
            self._waited.set()
            self._inner.acquire()

    def __exit__(self, *_: object) -> None:
        self._inner.release()
