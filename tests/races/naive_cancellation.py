"""The predecessor's token and the fix suggested in its report, to show that the scenarios catch them.

Neither had a winner, reasons, children or callbacks; here they have them in the obvious way: check, then act.
A run holds the token itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["EventToken", "LockedEventToken"]


class _Entry:
    def __init__(self, callbacks: list[Callable[[], None]], callback: Callable[[], None]) -> None:
        self._callbacks = callbacks
        self._callback = callback

    def close(self) -> bool:
        if self._callback not in self._callbacks:
            return False
        self._callbacks[:] = [c for c in self._callbacks if c is not self._callback]
        return True


class EventToken:
    """An event that is set and cleared."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._reason: str | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._children: list[EventToken] = []

    def cancel(self, reason: str | None = None) -> bool:
        if self._cancelled.is_set():
            return False
        self._reason = reason
        self._cancelled.set()
        for child in list(self._children):
            child.cancel(reason)
        for callback in list(self._callbacks):
            callback()
        self._callbacks.clear()
        return True

    def reset(self) -> bool:
        was_cancelled = self._cancelled.is_set()
        self._cancelled.clear()
        self._reason = None
        return was_cancelled

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def reason(self) -> str | None:
        return self._reason

    def wait(self, timeout: float | None) -> bool:
        return self._cancelled.wait(timeout)

    def view(self) -> EventToken:
        return self

    def on_cancel(self, callback: Callable[[], None]) -> _Entry:
        if self._cancelled.is_set():
            callback()
        else:
            self._callbacks.append(callback)
        return _Entry(self._callbacks, callback)

    def child(self) -> EventToken:
        child = type(self)()
        if self._cancelled.is_set():
            child.cancel(self._reason)
        self._children.append(child)
        return child

    def close(self) -> None:
        """Do nothing: the parent is not known."""


class LockedEventToken(EventToken):
    """The suggested fix: a lock around the two methods that change the event."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def cancel(self, reason: str | None = None) -> bool:
        with self._lock:
            return super().cancel(reason)

    def reset(self) -> bool:
        with self._lock:
            return super().reset()
