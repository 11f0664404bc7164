"""Matching of questions with paths, module names and defined names.

Paths are compared by their words; a rare word counts more than a common word. A path or module name in a
question refers to the files whose paths have the same last parts. Names defined in a file are compared with
the words of a question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from cleveragents.context.model.code import FileAnalysis
from cleveragents.context.model.code_terms import split_identifier, whole_of, words_of

__all__ = ["PathEnds", "PathWords", "installed", "name_words", "stem"]


_ENDINGS = ("ing", "er", "ed")
_PACKAGE_FILES = frozenset({"__init__", "index", "mod"})

_MOST_MEANT = 8
"""A name that matches more files says nothing about any of them."""

_FOLDER_FILES = frozenset({"__init__", "index", "mod", "lib"})
"""Files that represent their directory."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the word without its ending, so that `parsers`, `parsing` and `parse` match, and `plotted` and
    `plot`.
    """
    if word.endswith("s") and not word.endswith("ss") and len(word) > 4:
        word = word[:-1]
    if word.endswith("ie") and len(word) > 4:
        return word[:-2] + "y"
    shorter = _without_ending(_without_ending(word))  # `registered` has two endings, `register` has one
    if shorter != word:
        return shorter[:-1] if shorter[-2] == shorter[-1] not in "lsz" else shorter
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def _without_ending(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=50_000)
def _stems(part: str) -> frozenset[str]:
    words: set[str] = set()
    for name in words_of(part):
        words.update(split_identifier(name))
        words.add(whole_of(name))
    return frozenset(stem(word) for word in words if len(word) > 1)


class PathWords:
    """The words of some paths. Immutable; any thread may use it."""

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
        """Return two scores by path: `path`, for the words that the whole path shares with the query, and
        `share`, the part of the file's own name that occurs in the query.
        """
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
    """The paths of one snapshot, indexed by their last parts."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        for path in paths:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)
        self._by_stem: dict[str, list[str]] | None = None

    def meant(self, mention: str) -> list[str]:
        """Return the files that a mentioned path may refer to: those that agree with it in the most parts,
        counted from the end. Empty if only the file name agrees although the mention has more parts.
        """
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
        """Return the file that a mention refers to, if there is only one."""
        meant = self.meant(mention)
        return meant[0] if len(meant) == 1 else None

    def exactly(self, parts: list[str]) -> list[str]:
        """Return the files of the module at exactly this path."""
        return [path for path in self._stem(parts[-1]) if _module_parts(path) == parts] if parts else []

    def files_of(self, parts: list[str]) -> list[str]:
        """Return the files that this module name may refer to; if there are several, those closest to the
        root.
        """
        kept = self._ending(parts)
        shortest = min((path.count("/") for path in kept), default=0)
        nearest = [path for path in kept if path.count("/") == shortest]
        return nearest if len(nearest) <= _MOST_MEANT else []

    def _ending(self, parts: list[str]) -> list[str]:
        """Return the files whose modules end with all of these parts."""
        same = self._stem(parts[-1]) if parts else []
        return [path for path in same if _agreement(parts, _module_parts(path)) == len(parts)]

    def _stem(self, stem: str) -> list[str]:
        if self._by_stem is None:
            self._by_stem = _module_ends(path for paths in self._by_name.values() for path in paths)
        return self._by_stem.get(stem, [])

    def module(self, dotted: str) -> dict[str, float]:
        """Return the files that a dotted name, or its start, refers to, each with a confidence.

        `package.module.Class.method` refers to `…/package/module.py`: its longest prefix that is a file.
        """
        parts = [part for part in dotted.replace("::", ".").replace("#", ".").split(".") if part]
        for end in range(len(parts), 1, -1):  # a single word matches too much
            found = self._ending(parts[:end])
            if 0 < len(found) <= _MOST_MEANT:
                return {path: 1 / len(found) for path in found}
        return {}


def installed(path: str) -> str:
    """Return the part of the path inside the installed package; the whole path if it contains no installation
    directory.
    """
    for directory in ("site-packages", "dist-packages", "node_modules", "gems"):
        _, found, after = path.replace("\\", "/").rpartition(f"{directory}/")
        if found:
            return after
    return path


def _agreement(one: list[str], other: list[str]) -> int:
    """Return the number of common parts, counted from the end."""
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
    """Return, for each document, the score of the best name that it defines.

    A name scores by the rare words that it shares with the question, and less for each word that it does not
    share.
    """
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
