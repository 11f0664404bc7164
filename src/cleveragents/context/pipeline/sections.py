"""Which parts of a long text speak of what is asked.

Strategies name a text as a whole. One that has no room as a whole is shown by its chunks, which are its
sections, or a number of lines where it has none; those that have most of the question's words, rare ones
counting more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.model.context_answer import RankedPlace
from cleveragents.context.pipeline.renderings import CodeText
from cleveragents.context.pipeline.units import Unit

__all__ = ["sections_about"]

_MOST: Final = 6
_MOST_CHUNKS: Final = 20_000
_LEAST: Final = 0.4
"""What a section says must be worth at least so much of what the best one says."""
_OWN: Final = 0.7
"""Which part of a section's score is its own; the rest is its text's."""


def sections_about(
    wanted: Mapping[str, float], text: CodeText, place: RankedPlace
) -> dict[Unit, RankedPlace]:
    """The best sections, best first, by how much each term is wanted; `place` is the text as ranked."""
    chunks = text.analysis.chunks[:_MOST_CHUNKS]
    said = [
        wanted.keys() & terms_of("\n".join(text.lines[chunk.span.first - 1 : chunk.span.last])).keys()
        for chunk in chunks
    ]
    holders = Counter(term for terms in said for term in terms)
    rarity = {term: math.log(1 + len(chunks) / many) for term, many in holders.items()}
    scores = [sum(wanted[term] * rarity[term] for term in terms) for terms in said]
    best = max(scores, default=0.0)
    numbers = [number for number, score in enumerate(scores) if score > 0 and score >= best * _LEAST]
    found: dict[Unit, RankedPlace] = {}
    for number in sorted(numbers, key=lambda one: -scores[one])[:_MOST]:
        chunk = chunks[number]
        score = place.score * (1 - _OWN + _OWN * scores[number] / best)
        ranked = RankedPlace(place.path, chunk.span, score, place.findings)
        found[Unit(chunk.span, chunk.definition)] = ranked
    return found
