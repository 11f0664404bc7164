"""The usual lazy construction: check, then build; closing meanwhile is undefined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cleveragents.core.errors import Closed

__all__ = ["NaivePart", "NaiveScope"]


class NaiveScope:
    """Check-then-act without a lock."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._closers: list[tuple[Callable[[Any], object], Any]] = []
        self._closed = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for close, part in reversed(self._closers):
            close(part)


class NaivePart:
    """`functools.cached_property` with a closer."""

    def __init__(self, scope: NaiveScope, build: Callable[[], Any], close: Callable[[Any], object]) -> None:
        self._scope = scope
        self._build = build
        self._close = close
        self._built: list[Any] = []

    def get(self) -> Any:
        if self._scope._closed:
            raise Closed(self._scope._name)
        if not self._built:
            part = self._build()
            self._scope._closers.append((self._close, part))
            self._built.append(part)
        return self._built[-1]
