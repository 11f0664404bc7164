"""Which strategies are asked: all there are, but for those that the settings switch off."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["EveryStrategy"]


class EveryStrategy:
    """`StrategySelector`. A strategy that has nothing to say costs little and says so; one that was not asked
    is missed by nobody until it would have known. Immutable."""

    def __init__(self, switched_off: Collection[str] = ()) -> None:
        self._switched_off = frozenset(switched_off)

    def select(self, question: str, names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if name not in self._switched_off]
