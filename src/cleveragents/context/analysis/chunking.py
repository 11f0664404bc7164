"""How a file's lines fall into chunks: whole functions, and what lies between them.

The lines of a definition that contains others are its own except for those of the functions in it. They may
be several chunks, all of the same definition.

Counts the terms of chunks, field by field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from cleveragents.context.analysis.syntax import THIN_KINDS, WHOLE_KINDS, Lines, Syntax
from cleveragents.context.model.code import Chunk, Definition, Field, Span
from cleveragents.context.model.code_terms import Remembered, count_terms, terms_of_name, words_of

__all__ = ["Piece", "chunks_of", "cut"]


_MOST_LINES = 200
_TRAILING = 2

_MOST_NAMES = 100_000
Terms = dict[Field, dict[str, int]]


class Piece(NamedTuple):
    """Lines `first` up to, not including, `end`, from 0."""

    first: int
    end: int
    definition: int | None


def cut(definitions: list[Definition], lines: Lines) -> list[Piece]:
    """Pieces in order that cover all lines."""
    pieces: list[Piece] = []
    for piece in _runs(_owners(definitions, lines.count)):
        before = pieces[-1] if pieces else None
        if before is not None and _trails(piece, before, definitions, lines):
            pieces[-1] = before._replace(end=piece.end)
        elif piece.definition is not None and definitions[piece.definition].kind in WHOLE_KINDS:
            pieces.append(piece)
        else:
            pieces += _split(piece)
    return pieces


def _owners(definitions: list[Definition], count: int) -> list[int | None]:
    """Which definition each line belongs to: the innermost, but nothing inside a function."""
    owners: list[int | None] = [None] * count
    inside_whole = [False] * len(definitions)
    for position, definition in enumerate(definitions):
        parent = definition.parent
        if parent is not None and (inside_whole[parent] or definitions[parent].kind in WHOLE_KINDS):
            inside_whole[position] = True
        elif definition.kind not in THIN_KINDS:
            first, last = definition.span.first, definition.span.last
            owners[first - 1 : last] = [position] * (last - first + 1)
    return owners


def _runs(owners: list[int | None]) -> list[Piece]:
    runs: list[Piece] = []
    first = 0
    for line in range(1, len(owners) + 1):
        if line == len(owners) or owners[line] != owners[first]:
            runs.append(Piece(first, line, owners[first]))
            first = line
    return runs


def _trails(piece: Piece, before: Piece, definitions: list[Definition], lines: Lines) -> bool:
    """A line or two after a function are searched with it: alone they would be too short to be compared."""
    if before.definition is None or definitions[before.definition].kind not in WHOLE_KINDS:
        return False
    if piece.definition is not None and definitions[piece.definition].span.first == piece.first + 1:
        return False
    return lines.slice(piece.first, piece.end).strip().count(b"\n") < _TRAILING


def _split(piece: Piece) -> list[Piece]:
    length = piece.end - piece.first
    parts = -(-length // _MOST_LINES)
    bounds = [piece.first + length * part // parts for part in range(parts + 1)]
    return [Piece(first, end, piece.definition) for first, end in pairwise(bounds)]


def chunks_of(pieces: Sequence[Piece], syntax: Syntax, lines: Lines, keywords: frozenset[str]) -> list[Chunk]:
    """One chunk for each piece that has terms; a piece without any joins the one before it."""
    counter = _TermCounter(syntax, lines, keywords)
    chunks: list[Chunk] = []
    first = 0
    for piece in pieces:
        terms = counter.count(piece)
        if terms:
            chunks.append(Chunk(Span(first + 1, piece.end), piece.definition, terms))
        elif chunks:
            last = chunks[-1]
            chunks[-1] = Chunk(Span(last.span.first, piece.end), last.definition, last.terms)
        else:
            continue
        first = piece.end
    if not chunks and lines.count:
        chunks.append(Chunk(Span(1, lines.count), None))
    return chunks


class _TermCounter:
    """Goes through a file from top to bottom. Not thread-safe: it lives for one content."""

    def __init__(self, syntax: Syntax, lines: Lines, keywords: frozenset[str]) -> None:
        self._lines = lines
        self._wholes = _wholes_of(keywords)
        self._passages = syntax.passages
        self._next_passage = 0
        self._names = sorted(syntax.names)
        self._next_name = 0

    def count(self, piece: Piece) -> Terms:
        texts: dict[Field, list[bytes]] = {}
        code = words_of(self._part(self._lines.starts[piece.first], self._lines.starts[piece.end], texts))
        names = words_of("\n".join(self._names_before(piece.end)))
        everything = code
        terms: Terms = {}
        for field, passages in texts.items():
            words = words_of(_text(passages))
            terms[field] = count_terms(words)
            everything = everything + words
        terms[Field.BODY] = count_terms(everything)
        terms[Field.NAME] = count_terms(names)
        terms[Field.REFERENCE] = self._references(code, names)
        return {field: counts for field, counts in terms.items() if counts}

    def _part(self, start: int, end: int, texts: dict[Field, list[bytes]]) -> str:
        """What stands between two offsets: the code is returned, passages are put into `texts`."""
        data = self._lines.data
        passages = self._passages
        code: list[bytes] = []
        at = start
        while self._next_passage < len(passages) and passages[self._next_passage].start < end:
            passage = passages[self._next_passage]
            opens, closes = max(passage.start, start), min(passage.end, end)
            code.append(data[at:opens])
            texts.setdefault(passage.field, []).append(data[opens:closes])
            at = closes
            if passage.end > end:
                break
            self._next_passage += 1
        code.append(data[at:end])
        return _text(code)

    def _names_before(self, end: int) -> list[str]:
        names = []
        while self._next_name < len(self._names) and self._names[self._next_name][0] < end:
            names.append(self._names[self._next_name][1])
            self._next_name += 1
        return names

    def _references(self, code: list[str], names: list[str]) -> dict[str, int]:
        used = Counter(map(self._wholes.__getitem__, code))
        used.subtract(map(self._wholes.__getitem__, names))
        del used[""]
        return {term: times for term, times in used.items() if times > 0}


def _text(pieces: list[bytes]) -> str:
    return b"\n".join(pieces).decode("utf-8", "replace")


@cache
def _wholes_of(keywords: frozenset[str]) -> Remembered[str]:
    """The term for each name that may refer to something, and nothing for any other word."""

    def whole(word: str) -> str:
        terms = terms_of_name(word)
        return terms[-1] if terms and word not in keywords else ""

    return Remembered(whole, _MOST_NAMES)
