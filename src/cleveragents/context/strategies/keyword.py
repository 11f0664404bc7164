"""Keyword search: BM25 over files and chunks, for the whole question and its parts.

The title states the problem in few words; the rest of the question has many, often misleading words. So the
title is searched separately, and so are prose, code and text in backticks. A file is scored by its three best
chunks: the best chunk alone would favour a single matching line, and all chunks would favour long files.
Paths are searched as well, because directories and files are named after their content.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.code import Field
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.search.bm25 import Bm25Table, pooled
from cleveragents.context.search.path_words import PathWords
from cleveragents.context.search.question_search import (
    FileKind,
    FoundPlaces,
    QuestionSearch,
    in_order,
    shared_search,
)
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["KeywordStrategy", "make"]

_MOST_FILES = 75
_MOST_OTHERS = 40
_COVERED = ("title", "ticked")


class KeywordStrategy:
    """Finds code by keywords. Any thread may use it: it has only the snapshot, which any thread may read."""

    name = "keyword"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = shared_search(self._code, request.question)
        places = FoundPlaces(look, self.name)
        fragments: list[ContextFragment] = []
        for part in (_sources, _cover, _documentation, _paths, _others):
            if cancelled.is_cancelled:
                break
            fragments += part(look, places)
        return in_order(fragments)


def _sources(look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
    corpus = look.corpus(FileKind.SOURCE)
    fragments = places.chunks("chunk", look.chunk_scores("weighed"))
    pool = pooled(corpus, look.chunk_scores("full"))
    fragments += places.documents("chunks_full", pool, _MOST_FILES)
    for query in ("full", "title", "prose"):
        fragments += places.documents(f"file_{query}", look.file_scores(query), _MOST_FILES)
    return fragments


def _cover(look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
    """Score files by the share of the question's words that they contain, regardless of counts."""
    files = look.table(FileKind.SOURCE, documents=True)
    chunks = look.table(FileKind.SOURCE, documents=False)
    within = pooled(look.corpus(FileKind.SOURCE), chunks.coverage(look.queries["weighed"]), (1.0,))
    fragments = places.documents("cover_chunk", within, _MOST_FILES)
    for query in _COVERED:
        covered = files.coverage(look.queries[query])
        fragments += places.documents(f"cover_{query}", covered, _MOST_FILES)
    return fragments


def _documentation(look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
    """Search only comments and documentation strings."""
    found = look.found(FileKind.SOURCE, Field.DOC)
    table = Bm25Table(look.corpus(FileKind.SOURCE), found, documents=True, b=0.4)
    return places.documents("doc", table.scores(look.queries["weighed"]), _MOST_FILES)


def _paths(look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
    words = PathWords(look.source_paths)
    return [
        fragment
        for signal, scores in words.scores(look.queries["weighed"]).items()
        for fragment in places.files(signal, scores, _MOST_FILES)
    ]


def _others(look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
    """Rank tests and texts separately, for questions about them."""
    return [
        fragment
        for kind in (FileKind.TEST, FileKind.TEXT)
        for fragment in places.documents(kind, look.file_scores("weighed", kind), _MOST_OTHERS)
    ]


def make(ground: StrategyGround) -> ContextStrategy:
    return KeywordStrategy(ground)
