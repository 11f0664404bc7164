"""Definitions and uses of the names in the question.

A name that few files define is significant; a name that many files define is not. Matches from the index are
verified against the definitions, where case matters: `Model` is not `model`. The position of a name in the
question also matters: a name in the title is the subject, while a name in code may be incidental.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.code import Definition, Field, FileAnalysis
from cleveragents.context.model.code_terms import whole_of
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.search.bm25 import pooled
from cleveragents.context.search.path_words import name_words
from cleveragents.context.search.question_search import (
    MOST_NAMES,
    FileKind,
    FoundPlaces,
    QuestionNames,
    QuestionSearch,
    in_order,
    is_compound,
    named_chunk_scores,
    names_of,
    shared_search,
    strengths,
)
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["SymbolsStrategy", "make"]

_MOST_DEFINING = 40
_MOST_LOOKED_AT = 110
_MOST_PLACES = 40


class SymbolsStrategy:
    """Finds definitions and uses of names. Any thread may use it: it holds only the snapshot, which any
    thread may read.
    """

    name = "symbols"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = shared_search(self._code, request.question)
        names = names_of(look.question)
        places = FoundPlaces(look, self.name)
        fragments = _uses(look, names, places)
        if not cancelled.is_cancelled:
            documents = _definers(look, names)
            analyses = self._code.analyses(documents)
            definitions = _Definitions(look, names, analyses)
            fragments += definitions.fragments(places, self.name)
        return in_order(fragments)


_PARTS = (("title", 3.0), ("ticked", 2.0), ("prose", 1.0), ("code", 1.0), ("trace", 0.5))


def _weights(names: QuestionNames) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part, weight in _PARTS:
        for name in names[part]:
            weights[name] = weights.get(name, 0.0) + weight
    return dict(sorted(weights.items(), key=lambda item: -item[1])[:MOST_NAMES])


def _holders(look: QuestionSearch, field: Field, terms: Iterable[str]) -> dict[str, list[int]]:
    """Return the source files that contain each term."""
    import numpy as np

    corpus = look.corpus(FileKind.SOURCE)
    found = corpus.find(look.code, field, sorted(set(terms)))
    documents = corpus.document_of[found.chunk]
    bounds = np.searchsorted(found.term, np.arange(len(found.terms) + 1))
    return {
        term: np.unique(documents[bounds[number] : bounds[number + 1]]).tolist()
        for number, term in enumerate(found.terms)
        if bounds[number] < bounds[number + 1]
    }


def _uses(look: QuestionSearch, names: QuestionNames, places: FoundPlaces) -> list[ContextFragment]:
    """Score files that contain a name of several words, which rarely happens by chance."""
    weights = {whole_of(name): weight for name, weight in _weights(names).items() if is_compound(name)}
    total: dict[int, float] = {}
    rarest: dict[int, float] = {}
    for term, documents in _holders(look, Field.BODY, weights).items():
        for document in documents:
            total[document] = total.get(document, 0.0) + math.sqrt(weights[term]) / len(documents)
            rarest[document] = max(rarest.get(document, 0.0), 1 / len(documents))
    return [*places.files("use", _by_path(look, total)), *places.files("rarest", _by_path(look, rarest))]


def _by_path(look: QuestionSearch, scores: Mapping[int, float]) -> dict[str, float]:
    return {path: score for document, score in scores.items() for path in look.paths[document]}


def _definers(look: QuestionSearch, names: QuestionNames) -> list[int]:
    """Return the source files that most likely define the names, and those that are most relevant overall."""
    weights = _weights(names)
    wholes: dict[str, float] = {}
    for name, weight in weights.items():
        wholes[whole_of(name)] = max(wholes.get(whole_of(name), 0.0), weight)
    scores: dict[int, float] = {}
    for term, documents in _holders(look, Field.NAME, wholes).items():
        if len(documents) <= _MOST_DEFINING:
            for document in documents:
                scores[document] = scores.get(document, 0.0) + wholes[term] / len(documents)
    chosen = sorted(scores, key=lambda document: (-scores[document], document))[: _MOST_LOOKED_AT // 2]
    return list(dict.fromkeys((*chosen, *look.contenders)))[:_MOST_LOOKED_AT]


def _group(definition: Definition) -> str:
    if definition.kind == "variable":
        return "variable"
    return "top" if definition.parent is None or definition.kind == "class" else "member"


class _Definitions:
    """The definitions in the analysed files. Not thread-safe: use it in the call that created it."""

    def __init__(
        self, look: QuestionSearch, names: QuestionNames, analyses: Mapping[int, FileAnalysis]
    ) -> None:
        self._look = look
        self._names = names
        self._analyses = analyses
        self._where: dict[tuple[str, str], dict[int, list[int]]] = {}
        wanted = frozenset(name for counts in names.values() for name in counts)
        for document, analysis in analyses.items():
            for position, definition in enumerate(analysis.definitions):
                if definition.name in wanted:
                    files = self._where.setdefault((definition.name, _group(definition)), {})
                    files.setdefault(document, []).append(position)

    def fragments(self, places: FoundPlaces, strategy: str) -> list[ContextFragment]:
        look = self._look
        fragments: list[ContextFragment] = []
        for group in ("top", "variable"):
            fragments += places.files(f"{group}_title", _by_path(look, self._titled(group)))
        strength = strengths(look.question, self._names)
        raised = named_chunk_scores(look, strength, self._analyses)
        fragments += places.documents("chunks", pooled(look.corpus(FileKind.SOURCE), raised))
        words = name_words(look.queries["weighed"], self._analyses)
        fragments += places.files("words", _by_path(look, words))
        return [*fragments, *self._places(strategy)]

    def _titled(self, group: str) -> dict[int, float]:
        """Score files that define a name in the title; a name with many definitions counts less."""
        scores: dict[int, float] = {}
        for name, count in self._names["title"].items():
            files = self._where.get((name, group), {})
            certain = 1.0 if is_compound(name) else 0.5
            for document in files:
                worth = certain / len(files) ** 0.75 * (1 + 0.3 * math.log(count))
                scores[document] = scores.get(document, 0.0) + worth
        return scores

    def _places(self, strategy: str) -> list[ContextFragment]:
        """Return the definitions themselves, the rarest names first."""
        weights = _weights(self._names)
        found: list[ContextFragment] = []
        for (name, _), files in self._where.items():
            worth = weights.get(name, 0.0) / len(files)
            for document, positions in files.items():
                span = self._analyses[document].definitions[positions[0]].span
                found += [
                    ContextFragment(path, "", worth, strategy, span, "place")
                    for path in self._look.paths[document]
                ]
        return sorted(found, key=lambda fragment: (-fragment.score, fragment.path))[:_MOST_PLACES]


def make(ground: StrategyGround) -> ContextStrategy:
    return SymbolsStrategy(ground)
