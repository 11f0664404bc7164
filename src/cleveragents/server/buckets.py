"""How often somebody may ask: a bucket each, from which a request takes one, and which fills up by itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from cleveragents.core.errors import TooManyRequests

__all__ = ["Buckets"]


class Buckets:
    """A bucket for each who asks, at most so many of them: who asked longest ago is forgotten first.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(
        self, per_minute: int, clock: Callable[[], float], *, burst: int | None = None, at_most: int = 10_000
    ) -> None:
        self._size = float(burst or per_minute)
        self._per_second = per_minute / 60.0
        self._clock = clock
        self._at_most = at_most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Takes one; `TooManyRequests` says when there is one again."""
        now = self._clock()
        level, at = self._levels.pop(who, (self._size, now))
        level = min(self._size, level + max(0.0, now - at) * self._per_second)
        enough = level >= 1.0
        self._levels[who] = (level - 1.0 if enough else level, now)
        if len(self._levels) > self._at_most:  # guard: many who ask once each take no memory for ever
            self._levels.popitem(last=False)
        if not enough:  # guard: nobody asks more often than allowed
            raise TooManyRequests((1.0 - level) / self._per_second)

    def __len__(self) -> int:
        return len(self._levels)
