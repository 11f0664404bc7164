"""Counts the terms of chunks, field by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cleveragents.domain.code import Chunk, Field, Span
from cleveragents.domain.code_terms import count_terms, terms_of_name, words_of
from cleveragents.infrastructure.context.analysis.chunking import Piece
from cleveragents.infrastructure.context.analysis.lines import Lines
from cleveragents.infrastructure.context.analysis.syntax import Syntax

__all__ = ["chunks_of"]

Terms = dict[Field, dict[str, int]]


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
        self._keywords = keywords
        self._passages = syntax.passages
        self._next_passage = 0
        self._names = sorted(
            (line, definition.name)
            for line, definition in zip(syntax.named_on, syntax.definitions, strict=True)
        )
        self._next_name = 0

    def count(self, piece: Piece) -> Terms:
        texts = self._texts(self._lines.starts[piece.first], self._lines.starts[piece.end])
        words = {field: Counter(words_of(text)) for field, text in texts.items()}
        code = words.pop(None, Counter())
        names = self._names_before(piece.end)
        everything = code.copy()
        for counts in words.values():
            everything.update(counts)
        terms: Terms = {field: count_terms(counts) for field, counts in words.items() if field and counts}
        terms[Field.BODY] = count_terms(everything)
        terms[Field.NAME] = count_terms(Counter(words_of("\n".join(names))))
        terms[Field.REFERENCE] = self._references(code, names)
        return {field: counts for field, counts in terms.items() if counts}

    def _texts(self, start: int, end: int) -> dict[Field | None, str]:
        """What stands between two offsets, by field; the code itself under None."""
        data = self._lines.data
        passages = self._passages
        taken: dict[Field | None, list[bytes]] = {None: []}
        at = start
        while self._next_passage < len(passages) and passages[self._next_passage].start < end:
            passage = passages[self._next_passage]
            opens, closes = max(passage.start, start), min(passage.end, end)
            taken[None].append(data[at:opens])
            taken.setdefault(passage.field, []).append(data[opens:closes])
            at = closes
            if passage.end > end:
                break
            self._next_passage += 1
        taken[None].append(data[at:end])
        return {field: b"\n".join(pieces).decode("utf-8", "replace") for field, pieces in taken.items()}

    def _names_before(self, end: int) -> list[str]:
        names = []
        while self._next_name < len(self._names) and self._names[self._next_name][0] < end:
            names.append(self._names[self._next_name][1])
            self._next_name += 1
        return names

    def _references(self, code: Counter[str], names: list[str]) -> dict[str, int]:
        used = dict(code)
        for name in names:
            if name in used:
                used[name] -= 1
        references: dict[str, int] = {}
        for word, times in used.items():
            terms = terms_of_name(word)
            if times > 0 and terms and word not in self._keywords:
                references[terms[-1]] = references.get(terms[-1], 0) + times
        return references
