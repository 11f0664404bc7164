"""That the server is about to stop: streams would otherwise go on, and it would wait for them in vain."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Stopping"]


class Stopping:
    """Tells those who asked for it, once, on the server's loop.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(self) -> None:
        self._begun = False
        self._told: dict[object, Callable[[], None]] = {}

    @property
    def begun(self) -> bool:
        return self._begun

    def on_begin(self, tell: Callable[[], None]) -> Callable[[], None]:
        """`tell` is called when it begins; at once, if it has. Returns what takes it off again."""
        if self._begun:
            tell()
            return lambda: None
        ticket = object()
        self._told[ticket] = tell

        def remove() -> None:
            self._told.pop(ticket, None)

        return remove

    def begin(self) -> None:
        """From now on the server stops. Twice is harmless."""
        self._begun = True
        while self._told:
            _, tell = self._told.popitem()
            tell()
