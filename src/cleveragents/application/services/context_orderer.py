"""In which order a model reads: the best file first, and a file from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.domain.context_answer import PackedFragment

__all__ = ["BestFileFirst"]


class BestFileFirst:
    """`Orderer`. What belongs to one file stays together: first the file as a whole, then its lines. Files
    are in the order of the best that is shown of each. Immutable."""

    def order(self, fragments: Sequence[PackedFragment]) -> Sequence[PackedFragment]:
        best: dict[str, float] = {}
        for fragment in fragments:
            place = fragment.place
            best[place.path] = max(best.get(place.path, 0.0), place.score)

        def standing(fragment: PackedFragment) -> tuple[float, str, int, int]:
            place = fragment.place
            span = place.span
            first, last = (span.first, -span.last) if span else (0, 0)
            return (-best[place.path], place.path, first, last)

        return sorted(fragments, key=standing)
