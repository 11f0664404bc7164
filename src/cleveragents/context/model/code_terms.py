"""The tokenizer for source code and for questions about it.

The terms of a name are its words and, if it has several words, the whole name without underscores, so
`get_user` and `getUser` yield the same term. Everything is in lower case. Numbers, single letters and very
common words are not terms, nor is anything that looks like encoded data, which would only fill an index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar

__all__ = [
    "STOP_WORDS",
    "TermCache",
    "count_terms",
    "split_identifier",
    "terms_of",
    "terms_of_name",
    "whole_of",
    "words_of",
]

T = TypeVar("T")

_KEYWORDS = "self cls this if in is or and not for def return import from as else elif try except while with"
_CONSTANTS = "pass none null true false"
_PARTICLES = "the of to an it be on by at that are was"
STOP_WORDS = frozenset(f"{_KEYWORDS} {_CONSTANTS} {_PARTICLES}".split())
"""Words that occur in too many chunks to distinguish them."""

_LONGEST_TERM = 64
_LONGEST_NAME = 256
_ENCODED_FROM = 20  # shorter runs of mixed letters and digits are names like `b2d` or `x86_64`
_MOST_NAMES = 200_000

# Two patterns, because the narrow one is four times as fast and nearly all code is ASCII.
_ASCII_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = re.compile(r"[^\W\d]\w*")
_ASCII_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_PARTS = re.compile(r"[^\W\d_]+|\d+")


def words_of(text: str) -> list[str]:
    """Return everything in `text` that could be a name, verbatim and in order."""
    if text.isascii():
        return _ASCII_WORDS.findall(text)
    return _WORDS.findall(text)


def terms_of(text: str) -> Counter[str]:
    """Return the count of each term in `text`."""
    return count_terms(words_of(text))


def count_terms(words: Iterable[str]) -> Counter[str]:
    """Return the count of each term in the given words."""
    # All of this runs in C: an index spends most of its time here.
    return Counter(chain.from_iterable(map(_terms_of_names.__getitem__, words)))


def terms_of_name(name: str) -> tuple[str, ...]:
    """Return the terms of one name: its words and, if it has several words, the whole name.

    Empty if it contains no term.
    """
    return _terms_of_names[name]


def whole_of(name: str) -> str:
    """Return the term for a whole name, which is used to find references."""
    return name.replace("_", "").lower()


def split_identifier(name: str) -> tuple[str, ...]:
    """Return the words and numbers of a name in lower case, split at underscores, changes of case, and
    digits.
    """
    if name.isascii():
        return tuple(part.lower() for part in _ASCII_PARTS.findall(name))
    return tuple(part.lower() for run in _PARTS.findall(name) for part in _split_case(run))


def _split_case(run: str) -> Iterable[str]:
    """Split before a capital that follows or precedes a lowercase letter, in any alphabet."""
    first = 0
    for at in range(1, len(run)):
        after_small = run[at - 1].islower()
        before_small = at + 1 < len(run) and run[at + 1].islower()
        if run[at].isupper() and (after_small or before_small):
            yield run[first:at]
            first = at
    yield run[first:]


class TermCache(dict[str, T]):
    """A bounded cache of `find` for up to `most` words, because code repeats its words.

    Any thread may use it: at worst, two threads compute the same value.
    """

    def __init__(self, find: Callable[[str], T], most: int) -> None:
        super().__init__()
        self._find = find
        self._most = most

    def __missing__(self, word: str) -> T:
        found = self._find(word)
        if len(self) >= self._most:
            self.clear()  # guard: a process that reads many repositories keeps its size
        self[word] = found
        return found


def _find_terms(name: str) -> tuple[str, ...]:
    name = name[:_LONGEST_NAME]
    parts = split_identifier(name)
    if len(name) >= _ENCODED_FROM and _looks_encoded(name, parts):
        return ()
    terms = [part[:_LONGEST_TERM] for part in parts if _tells(part)]
    whole = whole_of(name)
    if len(parts) > 1 and len(whole) <= _LONGEST_TERM and _tells(whole):
        terms.append(whole)
    return tuple(terms)


def _looks_encoded(name: str, parts: tuple[str, ...]) -> bool:
    """Return whether case and digits alternate as often as in random text. In names made of words, the runs
    are longer.
    """
    chance = 4 if "_" not in name and any(part.isdigit() for part in parts) else 3
    return len(parts) * chance > len(name)


def _tells(term: str) -> bool:
    return len(term) > 1 and not term.isdigit() and term not in STOP_WORDS


_terms_of_names = TermCache(_find_terms, _MOST_NAMES)
