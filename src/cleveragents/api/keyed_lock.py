"""A lock for each key, from a fixed number of locks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cleveragents.core.errors import SandboxBusy

__all__ = ["KeyedLock"]

_MOST_SECONDS = 60.0


class KeyedLock:
    """Holds one key at a time. Two keys may share a lock, and then wait for each other.

    Correctness does not depend on it, in any number of processes. It gives each caller the right message:
    without it, two equal answers to one question would both be reported as the one that counted.

    Thread safety:
        Owner: the module that made it; any thread may use it.
        Lock: one of `_locks` is held during one decision. It is the exception to our rule: the lock is held
            across the very work that must not run twice at the same time.
        Guarantee: at most one block per key runs at any time.
    Cancel safety: a lock is released with its block, however that ends.
    """

    def __init__(self, at_once: int = 64, patience_seconds: float = _MOST_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._locks = tuple(threading.Lock() for _ in range(at_once))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Hold the key during the block. Raises `SandboxBusy` if another holder takes too long."""
        lock = self._locks[hash(name) % len(self._locks)]
        if not lock.acquire(timeout=self._patience_seconds):
            raise SandboxBusy(name)
        try:
            yield
        finally:
            lock.release()
