"""Tests as a link between question and code: a question that resembles a test is probably about the code that
the test exercises.

Tests and questions use the language of users, which the tested code may not use. The imports and the file
name of a test identify the code that it tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.search.bm25 import best, pooled
from cleveragents.context.search.import_graph import ImportGraph, imported_by
from cleveragents.context.search.question_search import (
    FileKind,
    FoundPlaces,
    QuestionSearch,
    in_order,
    shared_search,
)
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["MatchingTestsStrategy", "make"]

_MOST_TESTS = 10


class MatchingTestsStrategy:
    """Finds code by matching tests. Any thread may use it: it holds only the snapshot, which any thread may
    read.
    """

    name = "tests"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = shared_search(self._code, request.question)
        by_chunk = look.chunk_scores("weighed", kind=FileKind.TEST)
        scores = pooled(look.corpus(FileKind.TEST), by_chunk)
        ranked = best(scores, _MOST_TESTS)
        if not ranked:
            return ()
        top = float(scores[ranked[0]])
        tests = [
            (look.paths[one][0], (float(scores[one]) / top) ** 2 / (1 + rank) ** 0.5)
            for rank, one in enumerate(ranked)
        ]
        places = FoundPlaces(look, self.name)
        graph = ImportGraph(look)
        fragments = places.files("imported", imported_by(graph, look, tests, cancelled))
        fragments += places.files("namesake", _namesakes(look, tests))
        return in_order(fragments)


def _namesakes(look: QuestionSearch, tests: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Score source files with the same base name as the tests; those in similar directories score higher."""
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
    return MatchingTestsStrategy(ground)
