"""The predecessor's breaker, and the lock suggested in its report, which the race tests must catch.

`acquire` reproduces how the predecessor's executor used them: ask whether it is open, call, record.
"""

from __future__ import annotations

import threading
from typing import Any

from cleveragents.core.errors import BreakerOpen

__all__ = ["LockedBreaker", "NaiveBreaker"]


class AskThenRecord:
    """The verdict applies to the current state, as often as it is given."""

    def __init__(self, breaker: Any, name: str) -> None:
        self._breaker = breaker
        self._name = name

    def success(self) -> bool:
        self._breaker.record_success(self._name)
        return True

    def failure(self, error: BaseException | None = None) -> bool:
        self._breaker.record_failure(self._name)
        return True

    def release(self) -> bool:
        return True


class NaiveBreaker:
    """The original, "only mutated from the executor thread"."""

    def __init__(self, failure_threshold: int = 3, **_: Any) -> None:
        self.failure_threshold = failure_threshold
        self._failures: dict[str, int] = {}
        self._disabled: set[str] = set()

    def acquire(self, name: str) -> AskThenRecord:
        if self.is_open(name):
            raise BreakerOpen(name, 0.0)
        return AskThenRecord(self, name)

    def record_success(self, name: str) -> None:
        self._failures[name] = 0
        self._disabled.discard(name)

    def record_failure(self, name: str) -> None:
        count = self._failures.get(name, 0) + 1
        self._failures[name] = count
        if count >= self.failure_threshold:
            self._disabled.add(name)

    def is_open(self, name: str) -> bool:
        return name in self._disabled

    def reset(self, name: str) -> None:
        self._failures.pop(name, None)
        self._disabled.discard(name)

    def reset_all(self) -> None:
        self._failures.clear()
        self._disabled.clear()


class LockedBreaker(NaiveBreaker):
    """The suggested fix: every method under one lock."""

    def __init__(self, failure_threshold: int = 3, **_: Any) -> None:
        super().__init__(failure_threshold)
        self._lock = threading.Lock()

    def record_success(self, name: str) -> None:
        with self._lock:
            super().record_success(name)

    def record_failure(self, name: str) -> None:
        with self._lock:
            super().record_failure(name)

    def is_open(self, name: str) -> bool:
        with self._lock:
            return super().is_open(name)

    def reset(self, name: str) -> None:
        with self._lock:
            super().reset(name)

    def reset_all(self) -> None:
        with self._lock:
            super().reset_all()
