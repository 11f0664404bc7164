"""The signals of definitions: how well each function, method and class matches a question.

Files are ranked first, because most evidence is about files. Then the definitions of the best files are
compared with the question: by their words, by the words of their names, and by the stack trace. Words of
names are compared without their endings, so `get_signing_serializer` matches "Where is the cookie signed?".

All signals of one question form a matrix with one row for each definition and one column for each signal,
each between 0 and 1. A function includes everything inside it. A class stands for its own lines, without
those of its methods.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from cleveragents.context.model.code import Definition, FileAnalysis, LineSpan
from cleveragents.context.model.code_terms import split_identifier
from cleveragents.context.search.path_words import installed, stem
from cleveragents.context.search.question_search import (
    FileKind,
    QuestionSearch,
    names_of,
    normal,
    strengths,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

__all__ = [
    "MOST_RANKED_FILES",
    "SIGNALS",
    "DefinitionSignals",
    "DefinitionUnit",
    "definition_scores",
    "definition_signals",
]

MOST_RANKED_FILES: Final = 15
"""Definitions are ranked in this many of the best files; those of further files were never among the best."""

_MOST_UNITS: Final = 6_000
_MOST_FRAMES: Final = 100

SIGNALS: Final = (
    "file",  # the score of its file
    "words",  # BM25 of its words
    "cover",  # the share of the question's words in it or in its dotted name
    "name",  # the words of its own name in the question, less for each that is not
    "dotted_name",  # the words of the question in its name and that of its class
    "dotted_title",  # the same for the words of the title
    "named",  # the confidence that the question names it
    "named_class",
    "dotted",  # the question names it with its class or module
    "traced",  # a stack trace names it; the innermost frame counts most
)
"""The columns of the matrix, in order."""

_COLUMN: Final = {name: column for column, name in enumerate(SIGNALS)}
_WITHIN_FILE: Final = {"words": 0.28, "cover": 0.21, "name": 0.07, "dotted_name": 0.07, "dotted_title": 0.07}
_ANYWHERE: Final = 0.3
"""The share of a definition about which only its file is known."""
_CERTAIN: Final = {"traced": 0.3, "dotted": 0.2, "named": 0.15}
"""Added for a definition that the question names."""


@dataclass(frozen=True, slots=True)
class DefinitionUnit:
    """A definition in its file: its dotted name, and the name of the class around it, if any."""

    path: str
    definition: Definition
    dotted: str
    owner: str

    @property
    def span(self) -> LineSpan:
        return self.definition.span


@dataclass(frozen=True, slots=True)
class DefinitionSignals:
    """The definitions of the best files, and the signals of each: `matrix[row, column]`."""

    units: tuple[DefinitionUnit, ...]
    matrix: Matrix

    def value(self, row: int, signal: str) -> float:
        return float(self.matrix[row, _COLUMN[signal]])


def definition_scores(signals: DefinitionSignals) -> Matrix:
    """Return the score of each definition: the score of its file times its own evidence.

    The weights are set by hand. Weights and trees learned from 587 issues did not rank definitions of other
    projects better.
    """
    import numpy as np

    weights = np.zeros(len(SIGNALS), dtype=np.float32)
    for name, weight in (*_WITHIN_FILE.items(), *_CERTAIN.items()):
        weights[_COLUMN[name]] = weight
    scores: Matrix = signals.matrix[:, _COLUMN["file"]] * (_ANYWHERE + signals.matrix @ weights)
    return scores


def definition_signals(look: QuestionSearch, files: Sequence[tuple[str, float]]) -> DefinitionSignals:
    """Return the signals of the definitions in `files`: paths with scores, best first."""
    import numpy as np

    documents = {path: look.documents[path] for path, _ in files[:MOST_RANKED_FILES]}
    laid = _Layout(look, documents, look.code.analyses(sorted(set(documents.values()))))
    units = laid.units
    if not units:
        return DefinitionSignals((), np.zeros((0, len(SIGNALS)), dtype=np.float32))
    of_file = dict(files)
    columns = {
        "file": np.asarray([of_file[unit.path] for unit in units], dtype=np.float32),
        "words": normal(laid.best(look.chunk_scores("weighed"))),
        "cover": normal(_covered(look, laid)),
        "traced": _traced(look, units),
        **_names(look, units),
    }
    return DefinitionSignals(tuple(units), np.stack([columns[name] for name in SIGNALS], axis=1))


class _Layout:
    """The definitions of some files, and the chunks of each. Not thread-safe: one per call."""

    def __init__(
        self, look: QuestionSearch, documents: Mapping[str, int], analyses: Mapping[int, FileAnalysis]
    ) -> None:
        import numpy as np

        first_chunk = look.code.chunks.first_chunk
        self.units: list[DefinitionUnit] = []
        chunks: list[int] = []
        owners: list[int] = []
        for path, document in documents.items():
            analysis = analyses.get(document)
            if analysis is None or analysis.language == "text" or len(self.units) >= _MOST_UNITS:
                continue
            rows: dict[int, int] = {}
            for number, chunk in enumerate(analysis.chunks, int(first_chunk[document])):
                if chunk.definition is None:
                    continue
                row = rows.get(chunk.definition)
                if row is None:
                    row = rows[chunk.definition] = len(self.units)
                    self.units.append(_unit(path, analysis, chunk.definition))
                chunks.append(number)
                owners.append(row)
        self._chunks = np.asarray(chunks, dtype=np.int64)
        self._rows = np.asarray(owners, dtype=np.int64)

    def rows_of(self, chunks: NDArray[np.int32], count: int) -> NDArray[np.int64]:
        """Return the definition of each chunk, -1 for other chunks; the snapshot has `count` chunks."""
        import numpy as np

        owners = np.full(count, -1, dtype=np.int64)
        owners[self._chunks] = self._rows
        found: NDArray[np.int64] = owners[chunks]
        return found

    def best(self, scores: Matrix) -> Matrix:
        """Return, for each definition, the best score of its chunks."""
        import numpy as np

        highest = np.zeros(len(self.units), dtype=np.float32)
        np.maximum.at(highest, self._rows, scores[self._chunks])
        return highest


def _unit(path: str, analysis: FileAnalysis, position: int) -> DefinitionUnit:
    definition = analysis.definitions[position]
    owner = "" if definition.parent is None else analysis.definitions[definition.parent].name
    return DefinitionUnit(path, definition, analysis.qualified(position), owner)


def _covered(look: QuestionSearch, laid: _Layout) -> Matrix:
    """Return, for each definition, the weight of the question's words that occur in it or in its dotted name;
    rare words count more.
    """
    import numpy as np

    found = look.found(FileKind.SOURCE)
    rarity = look.table(FileKind.SOURCE, documents=False).rarity
    asked = look.queries["weighed"]
    weights = rarity * np.asarray([asked.get(term, 0.0) for term in found.terms], dtype=np.float32)
    held = np.zeros((len(laid.units), len(found.terms)), dtype=bool)
    rows = laid.rows_of(found.chunk, len(look.code.chunks.document_of))
    held[rows[rows >= 0], found.term[rows >= 0]] = True
    by_stem: dict[str, list[int]] = {}
    for number, term in enumerate(found.terms):
        by_stem.setdefault(stem(term), []).append(number)
    for row, unit in enumerate(laid.units):
        for word in _stems(unit.dotted) & by_stem.keys():
            held[row, by_stem[word]] = True
    covered: Matrix = held @ weights
    return covered


@lru_cache(maxsize=100_000)
def _stems(name: str) -> frozenset[str]:
    return frozenset(stem(part) for part in split_identifier(name) if len(part) > 1)


def _names(look: QuestionSearch, units: Sequence[DefinitionUnit]) -> dict[str, Matrix]:
    """Compare names with the question; a word that many of the names contain counts little."""
    import numpy as np

    strength = strengths(look.question, names_of(look.question))
    asked, titled = _weighted_stems(look.queries["weighed"]), _weighted_stems(look.queries["title"])
    dotted = _dotted_pairs(look)
    names = {unit.dotted for unit in units}
    holders = Counter(word for name in names for word in _stems(name))
    rarity = {word: math.log(1 + (len(names) + 1) / (1 + held)) for word, held in holders.items()}
    rows = [
        (
            _shared(_stems(unit.definition.name), asked, rarity, whole=True),
            _shared(_stems(unit.dotted), asked, rarity),
            _shared(_stems(unit.dotted), titled, rarity),
            strength.get(unit.definition.name, 0.0),
            strength.get(unit.owner, 0.0),
            float(_dotted_pair(unit) in dotted),
        )
        for unit in units
    ]
    columns = dict(
        zip(
            ("name", "dotted_name", "dotted_title", "named", "named_class", "dotted"),
            np.asarray(rows, dtype=np.float32).T,
            strict=True,
        )
    )
    return columns | {name: normal(columns[name]) for name in ("name", "dotted_name", "dotted_title")}


def _weighted_stems(query: Mapping[str, float]) -> dict[str, float]:
    wanted: dict[str, float] = {}
    for term, weight in query.items():
        wanted[stem(term)] = max(wanted.get(stem(term), 0.0), weight)
    return wanted


def _shared(
    stems: frozenset[str], wanted: Mapping[str, float], rarity: Mapping[str, float], *, whole: bool = False
) -> float:
    """Return the weight of the wanted words in a name; with `whole`, times their share of the name."""
    hits = [word for word in stems if word in wanted]
    worth = sum(rarity[word] * wanted[word] for word in hits)
    if not whole or not hits:
        return worth
    return worth * sum(rarity[word] for word in hits) / sum(rarity[word] for word in stems)


def _dotted_pairs(look: QuestionSearch) -> frozenset[tuple[str, str]]:
    """Return the neighbouring parts of each dotted name: `Class.method` or `module.function`."""
    split = [name.replace("::", ".").replace("#", ".").split(".") for name in look.question.dotted]
    return frozenset(pair for parts in split for pair in pairwise(parts))


def _dotted_pair(unit: DefinitionUnit) -> tuple[str, str]:
    module = unit.path.rpartition("/")[2].partition(".")[0]
    return unit.owner or module, unit.definition.name


def _traced(look: QuestionSearch, units: Sequence[DefinitionUnit]) -> Matrix:
    """Score the functions of a stack trace, or the innermost definitions at its lines if it names no
    functions.
    """
    import numpy as np

    rows: dict[str, list[int]] = {}
    for row, unit in enumerate(units):
        rows.setdefault(unit.path, []).append(row)
    scores = np.zeros(len(units), dtype=np.float32)
    for distance, frame in enumerate(reversed(look.question.frames[-_MOST_FRAMES:])):
        path = look.ends.one(installed(frame.path))
        function = frame.function.rpartition(".")[2]
        within = rows.get(path, []) if path is not None else []
        if function:
            meant = [row for row in within if units[row].definition.name == function]
        else:
            around = [row for row in within if units[row].span.first <= frame.line <= units[row].span.last]
            meant = around[-1:]  # an inner definition comes after the one around it
        scores[meant] = np.maximum(scores[meant], 1 / (1 + distance))
    return scores
