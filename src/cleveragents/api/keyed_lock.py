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

    What is decided stays right without it, in whatever process: it is for telling people apart. Two answers
    to one question that are the same would otherwise both be told that they were the one.

    Thread safety:
        Owner: the module that made it; any thread may use it.
        Lock: one of `_locks` is held by whoever has a turn, for one decision. It is the exception to our
            rule: what it is held across is the very thing that is to be done by one at a time.
        Guarantee: of those with one name, one has its turn.
    Cancel safety: a turn ends with its block, however that ends.
    """

    def __init__(self, at_once: int = 64, patience_seconds: float = _MOST_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._locks = tuple(threading.Lock() for _ in range(at_once))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """`SandboxBusy` when somebody takes too long."""
        lock = self._locks[hash(name) % len(self._locks)]
        if not lock.acquire(timeout=self._patience_seconds):
            raise SandboxBusy(name)
        try:
            yield
        finally:
            lock.release()
