"""Searches paths by the words that they are made of; a rare word of a path says more than a common one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cleveragents.context.model.code_terms import split_identifier, whole_of, words_of

__all__ = ["PathWords", "stem"]

_ENDINGS = ("ing", "er", "ed")
_PACKAGE_FILES = frozenset({"__init__", "index", "mod"})


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The word without its ending, so that `parsers`, `parsing` and `parse` are one."""
    if word.endswith("s") and not word.endswith("ss") and len(word) > 4:
        word = word[:-1]
    if word.endswith("ie") and len(word) > 4:
        return word[:-2] + "y"
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


@lru_cache(maxsize=50_000)
def _stems(part: str) -> frozenset[str]:
    words: set[str] = set()
    for name in words_of(part):
        words.update(split_identifier(name))
        words.add(whole_of(name))
    return frozenset(stem(word) for word in words if len(word) > 1)


class PathWords:
    """The words of some paths. Immutable; any thread may ask."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._last: dict[str, frozenset[str]] = {}
        self._all: dict[str, frozenset[str]] = {}
        for path in paths:
            *directories, name = path.split("/")
            name = name.rpartition(".")[0] or name
            own = directories[-1] if name in _PACKAGE_FILES and directories else name
            self._last[path] = _stems(own)
            self._all[path] = frozenset().union(_stems(name), *map(_stems, directories))
        self._holders = Counter(word for words in self._all.values() for word in words)

    def scores(self, query: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Of each path: `path` for what all of it shares with the query, and `share` for how much of the
        file's own name the query has."""
        wanted: dict[str, float] = {}
        for term, weight in query.items():
            word = stem(term)
            wanted[word] = max(wanted.get(word, 0.0), weight)
        wanted = {word: weight for word, weight in wanted.items() if word in self._holders}
        answer: dict[str, dict[str, float]] = {"path": {}, "share": {}}
        if not wanted:
            return answer
        asked = wanted.keys()
        for path, words in self._all.items():
            if asked.isdisjoint(words):
                continue
            answer["path"][path] = sum(wanted[word] * self._rarity(word) for word in asked & words)
            own = self._last[path]
            hits = asked & own
            if hits:
                whole = sum(map(self._rarity, own)) + 0.1
                answer["share"][path] = sum(map(self._rarity, hits)) / whole
        return answer

    def _rarity(self, word: str) -> float:
        return math.log(1 + len(self._all) / (1 + self._holders[word]))
