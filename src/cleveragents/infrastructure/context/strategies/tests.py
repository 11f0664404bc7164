"""Tests as a bridge: where a question is like a test, it is about what that test exercises.

A test speaks the language of users, as a question does, while the code that it exercises may not. What a test
is about is told by what it imports, by its file's name, and by the rare names that it uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleveragents.application.ports.context import CancelSignal, ContextStrategy
from cleveragents.application.ports.context_parts import StrategyGround
from cleveragents.domain.code import Field
from cleveragents.domain.code_terms import terms_of_name, whole_of, words_of
from cleveragents.domain.context import ContextFragment, ContextRequest
from cleveragents.infrastructure.context.bm25 import best, pooled
from cleveragents.infrastructure.context.import_graph import ImportGraph, imported_by
from cleveragents.infrastructure.context.looking import Kind, Looking, looking
from cleveragents.infrastructure.context.places import Places, in_order

if TYPE_CHECKING:
    from cleveragents.infrastructure.context.bm25 import Scores

__all__ = ["StrategyByTests", "make"]

_MOST_TESTS = 10
_MOST_CHUNKS = 12
_MOST_CHARACTERS = 20_000
_MOST_DEFINING = 5


class StrategyByTests:
    """It holds nothing but the snapshot, which any thread may ask."""

    name = "tests"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = looking(self._code, request.question)
        by_chunk = look.chunk_scores("weighed", kind=Kind.TEST, named=False)
        scores = pooled(look.corpus(Kind.TEST), by_chunk)
        ranked = best(scores, _MOST_TESTS)
        if not ranked:
            return ()
        top = float(scores[ranked[0]])
        tests = [
            (look.paths[one][0], (float(scores[one]) / top) ** 2 / (1 + rank) ** 0.5)
            for rank, one in enumerate(ranked)
        ]
        places = Places(look, self.name)
        graph = ImportGraph(self._code, look.ends)
        fragments = places.files("imported", imported_by(graph, tests, cancelled))
        fragments += places.files("namesake", _namesakes(look, tests))
        if not cancelled.is_cancelled:
            fragments += places.files(
                "used", self._used(look, best(by_chunk, _MOST_CHUNKS), by_chunk, cancelled)
            )
        return in_order(fragments)

    def _used(
        self, look: Looking, chunks: Sequence[int], scores: Scores, cancelled: CancelSignal
    ) -> dict[str, float]:
        """Sources that define the rare names in the likeliest tests."""
        sought = self._code.chunks
        texts: list[frozenset[str]] = []
        analyses = self._code.analyses(sorted({int(sought.document_of[chunk]) for chunk in chunks}))
        for chunk in chunks:
            document = int(sought.document_of[chunk])
            if document not in analyses or cancelled.is_cancelled:
                continue
            span = analyses[document].chunks[chunk - int(sought.first_chunk[document])].span
            lines = look.text(look.paths[document][0]).split("\n")[span.first - 1 : span.last]
            names = words_of("\n".join(lines)[:_MOST_CHARACTERS])
            texts.append(frozenset(whole_of(name) for name in names if len(name) > 3 and terms_of_name(name)))
        definers = _definers(look, frozenset().union(*texts))
        total: dict[str, float] = {}
        top = float(scores[chunks[0]]) if chunks else 1.0
        for rank, (chunk, names_in) in enumerate(zip(chunks, texts, strict=False)):
            shares: dict[str, float] = {}
            for name in names_in:
                for path in definers.get(name, ()):
                    shares[path] = shares.get(path, 0.0) + 1 / len(definers[name])
            whole = sum(shares.values()) ** 0.5 or 1.0
            worth = (float(scores[chunk]) / top) ** 2 / (1 + rank) ** 0.5
            for path, share in shares.items():
                total[path] = total.get(path, 0.0) + worth * share / whole
        return total


def _definers(look: Looking, names: frozenset[str]) -> dict[str, list[str]]:
    """For names that few sources define, which."""
    corpus = look.corpus(Kind.SOURCE)
    found = corpus.find(look.code, Field.NAME, sorted(names))
    holders: dict[str, set[int]] = {}
    documents = corpus.document_of[found.chunk].tolist()
    for term, document in zip(found.term.tolist(), documents, strict=True):
        holders.setdefault(found.terms[term], set()).add(document)
    return {
        name: [look.paths[document][0] for document in sorted(held)]
        for name, held in holders.items()
        if len(held) <= _MOST_DEFINING
    }


def _namesakes(look: Looking, tests: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Sources whose names the tests' names are made of, those in the same directories first."""
    by_stem: dict[str, list[str]] = {}
    for path in look.source_paths:
        by_stem.setdefault(_stem(path), []).append(path)
    scores: dict[str, float] = {}
    for test, worth in tests:
        same = by_stem.get(_stem(test), ())
        around = set(test.split("/")[:-1])
        shared = [len(around & set(path.split("/")[:-1])) for path in same]
        nearest = [path for path, count in zip(same, shared, strict=True) if count == max(shared)]
        for path in nearest:
            scores[path] = scores.get(path, 0.0) + worth / len(nearest)
    return scores


def _stem(path: str) -> str:
    name = path.rpartition("/")[2].partition(".")[0]
    for mark in ("test_", "_tests", "_test", "_spec", "Tests", "Test"):
        name = name.removeprefix(mark) if mark.endswith("_") else name.removesuffix(mark)
    return name.strip("_").lower()


def make(ground: StrategyGround) -> ContextStrategy:
    return StrategyByTests(ground)
