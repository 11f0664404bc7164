"""Searches paths by the words that they are made of; a rare word of a path says more than a common one.

Which files of a snapshot a path or a module name means, going by how their ends agree.

How well the names that files define are made of the words of a question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from cleveragents.context.model.code import FileAnalysis
from cleveragents.context.model.code_terms import split_identifier, whole_of, words_of

__all__ = ["PathEnds", "PathWords", "name_words", "stem"]


_ENDINGS = ("ing", "er", "ed")
_PACKAGE_FILES = frozenset({"__init__", "index", "mod"})

_MOST_MEANT = 8
"""A name that more files have says nothing of any of them."""

_FOLDER_FILES = frozenset({"__init__", "index", "mod", "lib"})
"""Files that stand for the directory that they are in."""


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


class PathEnds:
    """The paths of one snapshot, by their last parts."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        for path in paths:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)
        self._by_stem: dict[str, list[str]] | None = None

    def meant(self, mention: str) -> list[str]:
        """The files that agree longest with it, none if that is the name alone although it says more."""
        parts = [part for part in mention.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]
        if not parts:
            return []
        same = self._by_name.get(parts[-1], ())
        agreeing = [(_agreement(parts, path.split("/")), path) for path in same]
        longest = max((length for length, _ in agreeing), default=0)
        kept = [path for length, path in agreeing if length == longest]
        if longest < min(len(parts), 2) and not (longest == 1 and all("/" not in path for path in kept)):
            return []
        return kept if len(kept) <= _MOST_MEANT else []

    def one(self, mention: str) -> str | None:
        """The file that it means, if it can only mean one."""
        meant = self.meant(mention)
        return meant[0] if len(meant) == 1 else None

    def exactly(self, parts: list[str]) -> list[str]:
        """The files that stand for the module at this very place."""
        return [path for path in self._stem(parts[-1]) if _module_parts(path) == parts] if parts else []

    def files_of(self, parts: list[str]) -> list[str]:
        """The files that this module may be; of several those nearest to the root."""
        kept = self._ending(parts)
        shortest = min((path.count("/") for path in kept), default=0)
        nearest = [path for path in kept if path.count("/") == shortest]
        return nearest if len(nearest) <= _MOST_MEANT else []

    def _ending(self, parts: list[str]) -> list[str]:
        """The files whose modules end with all of these parts."""
        same = self._stem(parts[-1]) if parts else []
        return [path for path in same if _agreement(parts, _module_parts(path)) == len(parts)]

    def _stem(self, stem: str) -> list[str]:
        if self._by_stem is None:
            self._by_stem = _module_ends(path for paths in self._by_name.values() for path in paths)
        return self._by_stem.get(stem, [])

    def module(self, dotted: str) -> dict[str, float]:
        """Files that the dotted name is, or that it begins with, each with how far it is believed.

        `package.module.Class.method` means `…/package/module.py`: its longest beginning that is a file.
        """
        parts = [part for part in dotted.replace("::", ".").replace("#", ".").split(".") if part]
        for end in range(len(parts), 1, -1):  # one word agrees with too much
            found = self._ending(parts[:end])
            if 0 < len(found) <= _MOST_MEANT:
                return {path: 1 / len(found) for path in found}
        return {}


def _agreement(one: list[str], other: list[str]) -> int:
    """How many parts they have in common, from the end."""
    length = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        length += 1
    return length


def _module_parts(path: str) -> list[str]:
    *directories, name = path.split("/")
    stem = name.partition(".")[0]
    return directories if stem in _FOLDER_FILES and directories else [*directories, stem]


def _module_ends(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(_module_parts(path)[-1], []).append(path)
    return found


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
