"""How well the names that files define are made of the words of a question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from cleveragents.context.model.code import FileAnalysis
from cleveragents.context.model.code_terms import split_identifier
from cleveragents.context.search.path_words import stem

__all__ = ["name_words"]


@lru_cache(maxsize=100_000)
def _name_stems(name: str) -> frozenset[str]:
    return frozenset(stem(part) for part in split_identifier(name) if len(part) > 1)


def name_words(query: Mapping[str, float], analyses: Mapping[int, FileAnalysis]) -> dict[int, float]:
    """For each document, how well the best of the names that it defines matches.

    A name is worth the rare words that it shares with the question, and less for each that it does not."""
    wanted: dict[str, float] = {}
    for term, weight in query.items():
        wanted[stem(term)] = max(wanted.get(stem(term), 0.0), weight)
    names = {
        document: {definition.name for definition in analysis.definitions if definition.kind != "variable"}
        for document, analysis in analyses.items()
    }
    holders = Counter(name for defined in names.values() for name in defined)
    words = Counter(word for name in holders for word in _name_stems(name))
    rarity = {word: math.log(1 + (len(holders) + 1) / (1 + count)) for word, count in words.items()}
    worth: dict[str, float] = {}
    for name in holders:
        hits = [word for word in _name_stems(name) if word in wanted]
        if hits:
            shared = sum(rarity[word] * wanted[word] for word in hits)
            share = sum(rarity[word] for word in hits) / sum(rarity[word] for word in _name_stems(name))
            worth[name] = shared * share / math.sqrt(holders[name])
    best: dict[int, float] = {}
    for document, defined in names.items():
        matching = [worth[name] for name in defined if name in worth]
        if matching:
            best[document] = max(matching)
    return best
