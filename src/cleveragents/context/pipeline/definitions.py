"""Ranking of definitions: the functions, methods and classes of the best files, each with its reasons.

The reasons are derived from the signals of the ranking, for people: they name the strongest evidence, not the
arithmetic.

A question that has hardly any word in common with the code is probably not about this code, and `is_related`
of the ranking is then false. (Otherwise the best of several bad matches would look like an answer.) A
question that contains a word of the name of a definition or file counts as related.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.code_terms import split_identifier
from cleveragents.context.model.context import RankedDefinition, RankedPlace
from cleveragents.context.model.question import COMMON_WORDS
from cleveragents.context.search.definition_signals import (
    DefinitionSignals,
    DefinitionUnit,
    definition_scores,
    definition_signals,
)
from cleveragents.context.search.path_words import PathWords, stem
from cleveragents.context.search.question_search import FileKind, QuestionSearch

__all__ = ["is_related", "rank_definitions", "with_definitions", "with_evidence"]

_MOST_DEFINITIONS: Final = 100
_MOST_REASONS: Final = 2
_NO_REASON: Final = ("in a relevant file",)
_CERTAIN_NAME: Final = 0.4
_STRONG: Final = 0.6

_MOST_NAMED: Final = 10
"""Names of the best definitions and files are compared with the question; no more are shown."""

_LEAST_TITLE: Final = 0.26
_LEAST_WORDS: Final = 0.2
_LEAST_KNOWN: Final = 0.6
_ASKING: Final = frozenset({"how", "what", "when", "where", "which", "who", "whose", "why"})
"""A question is unrelated if no file contains this share of its title or of its words, rare words counting
more, and if the code knows less than the last share of its words. Nearly all of 160 real questions about five
projects reach one of the shares; half of 250 questions about other projects reach none.
"""


def rank_definitions(
    look: QuestionSearch, files: Sequence[tuple[str, float]]
) -> tuple[RankedDefinition, ...]:
    """Return the best definitions of `files`: paths with scores. Both are ordered best first."""
    import numpy as np

    signals = definition_signals(look, files)
    if not signals.units:
        return ()
    scores = definition_scores(signals)
    order = np.argsort(-scores, kind="stable")[:_MOST_DEFINITIONS].tolist()
    highest = float(scores[order[0]]) or 1.0
    reasons = _Reasons(look, signals)
    return tuple(
        _ranked(signals.units[row], float(scores[row]) / highest, reasons.of(row))
        for row in order
        if scores[row] > 0
    )


def with_evidence(definitions: Sequence[RankedDefinition]) -> tuple[RankedDefinition, ...]:
    """Return the definitions that have evidence of their own, not only that of their file."""
    return tuple(one for one in definitions if one.reasons != _NO_REASON)


def _ranked(unit: DefinitionUnit, score: float, reasons: tuple[str, ...]) -> RankedDefinition:
    share = min(1.0, max(0.0, score))
    return RankedDefinition(unit.path, unit.span, unit.dotted, unit.definition.kind, share, reasons)


def with_definitions(
    places: Sequence[RankedPlace], definitions: Sequence[RankedDefinition]
) -> tuple[RankedPlace, ...]:
    """Return the places with the scores of their definitions, best first.

    A ranked definition replaces the places within it, and takes over their findings.
    """
    spans: dict[str, list[LineSpan]] = {}
    for definition in definitions:
        spans.setdefault(definition.path, []).append(definition.span)
    findings: dict[tuple[str, LineSpan], list[RankedPlace]] = {}
    kept: list[RankedPlace] = []
    for place in places:
        around = _innermost(place.span, spans.get(place.path, ()))
        if place.text or around is None:
            kept.append(place)
        else:
            findings.setdefault((place.path, around), []).append(place)
    for one in definitions:
        within = findings.get((one.path, one.span), [])
        found = dict.fromkeys(finding for place in within for finding in place.findings)
        kept.append(RankedPlace(one.path, one.span, one.score, tuple(found)))
    return tuple(sorted(kept, key=lambda place: (-place.score, place.path, place.span or LineSpan(0, 0))))


def _innermost(span: LineSpan | None, around: Sequence[LineSpan]) -> LineSpan | None:
    """Return the smallest of the spans that shares most lines with `span`; None if there is none."""
    if span is None:
        return None
    middle = (span.first + span.last) // 2
    holding = [one for one in around if one.first <= middle <= one.last]
    return min(holding, key=lambda one: one.last - one.first, default=None)


class _Reasons:
    """The reasons why definitions were found. Not thread-safe: one per ranking."""

    def __init__(self, look: QuestionSearch, signals: DefinitionSignals) -> None:
        self._signals = signals
        self._wanted = frozenset(map(stem, _telling(look.queries["weighed"])))

    def of(self, row: int) -> tuple[str, ...]:
        """Return at most two reasons, the strongest first."""
        unit = self._signals.units[row]
        words = self._name_words(unit)
        value = self._signals.value
        said = [
            (value(row, "traced") > 0, "in the stack trace"),
            (value(row, "dotted") > 0 or value(row, "named") >= _CERTAIN_NAME, "named in the question"),
            (value(row, "named_class") >= _CERTAIN_NAME, f"the question names {unit.owner}"),
            (bool(words), f"name matches {', '.join(words)}"),
            (value(row, "words") >= _STRONG or value(row, "cover") >= _STRONG, "has words of the question"),
        ]
        reasons = [reason for holds, reason in said if holds]
        return tuple(reasons[:_MOST_REASONS]) or _NO_REASON

    def _name_words(self, unit: DefinitionUnit) -> list[str]:
        words = [word for word in split_identifier(unit.definition.name) if stem(word) in self._wanted]
        return list(dict.fromkeys(words))


def is_related(
    look: QuestionSearch, definitions: Sequence[RankedDefinition] = (), paths: Sequence[str] = ()
) -> bool:
    """Return whether the question has enough words in common with the code to be about it. `definitions` and
    `paths` were found for the question, best first.

    A question is also related if it names a path, quotes a stack trace of the code, or contains a word of the
    name of one of the best definitions or files.
    """
    import numpy as np

    question = look.question
    if any(look.ends.meant(path) for path in (*question.paths, *(frame.path for frame in question.frames))):
        return True
    if _is_name_asked(look, definitions[:_MOST_NAMED], paths[:_MOST_NAMED]):
        return True
    # Texts and tests contain more words by chance, so they must contain twice the share.
    for kind, times in ((FileKind.SOURCE, 1), (FileKind.TEXT, 2), (FileKind.TEST, 2)):
        table = look.table(kind, documents=True)
        for part, least in (("title", _LEAST_TITLE), ("weighed", _LEAST_WORDS)):
            asked = _telling(look.queries[part])
            if table.coverage(asked).max(initial=0.0) >= times * least:
                return True
    held: set[str] = set()
    for kind in (FileKind.SOURCE, FileKind.TEXT):  # a small repository may have no code at all
        found = look.found(kind)
        held |= {found.terms[number] for number in np.unique(found.term).tolist()}
    weights = _telling(look.queries["weighed"])
    known = sum(weight for term, weight in weights.items() if term in held)
    return known >= _LEAST_KNOWN * sum(weights.values())


def _is_name_asked(
    look: QuestionSearch, definitions: Sequence[RankedDefinition], paths: Sequence[str]
) -> bool:
    """Return whether the name of a definition or file contains a word of the question."""
    asked = _telling(look.queries["weighed"])
    stems = frozenset(map(stem, asked))
    names = (one.name.rpartition(".")[2] for one in definitions)
    if any(stem(word) in stems for name in names for word in split_identifier(name)):
        return True
    return bool(PathWords(paths).scores(asked)["share"])


def _telling(query: Mapping[str, float]) -> dict[str, float]:
    """Return the words of a question without common ones, which the query of a short question contains.

    "How do I bake bread?" is not about a function named `do_teardown`.
    """
    return {term: weight for term, weight in query.items() if term not in COMMON_WORDS | _ASKING}
