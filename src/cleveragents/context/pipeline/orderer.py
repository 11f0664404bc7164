"""In which order a model reads: the best file first, and a file from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.context.model.context_answer import Depth, PackedFragment

__all__ = ["BestFileFirst"]


class BestFileFirst:
    """`Orderer`. What belongs to one file stays together: first the file as a whole, then its lines. Files
    are in the order of the best that is shown of each. The bare path of a file is left out where more of the
    file is shown, because the headings of that name it. Immutable."""

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

        more = {one.place.path for one in fragments if one.rendering.depth is not Depth.PATH}
        bare = [one for one in fragments if one.rendering.depth is Depth.PATH and one.place.path in more]
        return sorted((one for one in fragments if one not in bare), key=standing)
