"""Keyword search: BM25 over files and over chunks, for the question as a whole and for its parts.

A title says in a few words what the rest of a question explains with many that lead astray, so it is asked
for itself; so are prose, code and what stands between back-ticks. A file is as good as its three best chunks
together: the best alone favours the lucky line, and all of them favour length. Paths are searched as well,
because directories and files are named for what is in them.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.application.ports.context import CancelSignal, ContextStrategy
from cleveragents.application.ports.context_parts import StrategyGround
from cleveragents.domain.code import Field
from cleveragents.domain.context import ContextFragment, ContextRequest
from cleveragents.infrastructure.context.bm25 import Bm25Table, pooled
from cleveragents.infrastructure.context.looking import Kind, Looking, looking
from cleveragents.infrastructure.context.path_words import PathWords
from cleveragents.infrastructure.context.places import Places, in_order

__all__ = ["KeywordStrategy", "make"]

_QUERIES = ("full", "title", "weighed", "prose", "code", "trace", "ticked", "errors")
_FIELDS = (Field.NAME, Field.DOC, Field.STRING, Field.REFERENCE)
_MOST_OTHERS = 40


class KeywordStrategy:
    """It holds nothing but the snapshot, which any thread may ask."""

    name = "keyword"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = looking(self._code, request.question)
        places = Places(look, self.name)
        fragments: list[ContextFragment] = []
        for part in (_sources, _fields, _paths, _others):
            if cancelled.is_cancelled:
                break
            fragments += part(look, places)
        return in_order(fragments)


def _sources(look: Looking, places: Places) -> list[ContextFragment]:
    corpus = look.corpus(Kind.SOURCE)
    fragments = [*places.chunks("chunk", look.chunk_scores("weighed"))]
    for query in _QUERIES:
        if not look.queries[query]:
            continue
        for named in (False, True):
            mark = "n" if named else ""
            by_chunk = look.chunk_scores(query, named=named)
            fragments += places.documents(f"file{mark}_{query}", look.file_scores(query, named=named))
            fragments += places.documents(f"chunks{mark}_{query}", pooled(corpus, by_chunk))
        if query in ("title", "weighed", "ticked"):
            files = look.table(Kind.SOURCE, documents=True)
            chunks = look.table(Kind.SOURCE, documents=False)
            fragments += places.documents(f"cover_{query}", files.coverage(look.queries[query]))
            within = pooled(corpus, chunks.coverage(look.queries[query]), (1.0,))
            fragments += places.documents(f"cover_chunk_{query}", within)
    return fragments


def _fields(look: Looking, places: Places) -> list[ContextFragment]:
    corpus = look.corpus(Kind.SOURCE)
    fragments: list[ContextFragment] = []
    for field in _FIELDS:
        table = Bm25Table(corpus, look.found(Kind.SOURCE, field), documents=True, b=0.4)
        for query in ("title", "weighed"):
            fragments += places.documents(f"{field.value}_{query}", table.scores(look.queries[query]))
    return fragments


def _paths(look: Looking, places: Places) -> list[ContextFragment]:
    words = PathWords(look.source_paths)
    fragments: list[ContextFragment] = []
    for query in ("title", "weighed", "ticked", "prose"):
        for signal, scores in words.scores(look.queries[query]).items():
            fragments += places.files(f"{signal}_{query}", scores)
    return fragments


def _others(look: Looking, places: Places) -> list[ContextFragment]:
    """Tests and texts are ranked among themselves, for whoever asks for them."""
    return [
        fragment
        for kind in (Kind.TEST, Kind.TEXT)
        for fragment in places.documents(kind, look.file_scores("weighed", kind=kind), _MOST_OTHERS)
    ]


def make(ground: StrategyGround) -> ContextStrategy:
    return KeywordStrategy(ground)
