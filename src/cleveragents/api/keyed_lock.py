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

    The lock is for correct messages only: without it, two people who answer the same question at once would
    both learn that their answer was used. Data stays correct without the lock, in any number of processes.

    Thread safety:
        Owner: the module that made it; any thread may use it.
        Lock: one of `_locks` is held during one action. Unlike our other locks, it is held while work runs,
            because that work must not run twice at the same time.
        Guarantee: at most one block per key runs at any time.
    Cancel safety: a lock is released with its block, however that ends.
    """

    def __init__(self, at_once: int = 64, patience_seconds: float = _MOST_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._locks = tuple(threading.Lock() for _ in range(at_once))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Hold the lock of the key during the block. Raises `SandboxBusy` if another holder
        takes too long.
        """
        lock = self._locks[hash(name) % len(self._locks)]
        if not lock.acquire(timeout=self._patience_seconds):
            raise SandboxBusy(name)
        try:
            yield
        finally:
            lock.release()
