"""At which depths the best places can be shown: path, members, signatures, outline, full.

A file and the places within it are choices of their own, made so that nothing is shown twice: a short file is
offered whole and then its places are not; of a place that has another within it, only the outline is. A long
text of which no lines were found is offered by the sections that speak of the question. Whole means whole: a
definition is shown with all of its lines, or less deeply.

What a rendering is worth decides what the packer takes. The best place is to be shown in full before many
lesser ones are shown at all, so worth grows with the cube of the score; and a long definition is not to
lose to a short one just for its length, so it grows with the root of what all of the place would take.
Lines that belong to no definition, imports mostly, are worth little to a reader.

Counting tokens is what takes the time here; so places are looked at from the best down, and once three
times of what there is room for has been offered, the rest is offered by path alone.

Which parts of a long text speak of what is asked.

Strategies name a text as a whole. One that has no room as a whole is shown by its chunks, which are its
sections, or a number of lines where it has none; those that have most of the question's words, rare ones
counting more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cleveragents.context.code_index import CodePlace, CodeSnapshot
from cleveragents.context.context_parts import CountTokens
from cleveragents.context.model.code import CodeFile, FileAnalysis, is_code
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.model.context import Choice, Depth, RankedPlace, Ranking, Rendering
from cleveragents.context.model.question import queries_of, read_question
from cleveragents.context.pipeline.renderings import (
    CodeText,
    LineUnit,
    NoCode,
    printable,
    unit_of,
    without_crossings,
)
from cleveragents.context.pipeline.steps import attempted

__all__ = ["WholeDefinitions", "paths_alone", "sections_about"]


_MOST_FILES: Final = 40
_MOST_PLACES: Final = 200
_PLACES_OF_A_FILE: Final = 15
_OFFERED: Final = 3

_SHORT: Final = 8
"""A file is short that takes less than one part in so many of the room."""

_MUCH: Final = 2
"""A text is shown by its sections if it takes more than one part in so many of the room."""

_MOST_SEARCHED: Final = 2_000_000
"""Characters of texts that are searched for sections; the text with which it is reached is the last."""
_CHARACTERS_OF_A_TOKEN: Final = 8

_WORTH: Final = {
    Depth.PATH: 0.1,
    Depth.MEMBERS: 0.15,
    Depth.SIGNATURES: 0.2,
    Depth.OUTLINE: 0.25,
    Depth.FULL: 1.0,
}
"""Of what a place is worth when all of it is shown."""

_LOOSE: Final = 0.3
"""What lines outside of definitions are worth, of what a definition is."""

_BESIDE_ITS_PLACES: Final = 0.3
"""What the outline of a file is worth whose places are offered as well."""
_OF_A_FILE: Final = (Depth.PATH, Depth.MEMBERS, Depth.SIGNATURES, Depth.OUTLINE)

_OF_A_PLACE: Final = (Depth.SIGNATURES, Depth.OUTLINE)
"""Its file's path and names are offered with the file."""

_MOST: Final = 6
_MOST_CHUNKS: Final = 20_000

_LEAST: Final = 0.4
"""What a section says must be worth at least so much of what the best one says."""

_OWN: Final = 0.7
"""Which part of a section's score is its own; the rest is its text's."""


@dataclass(slots=True)
class _File:
    place: RankedPlace
    places: list[RankedPlace] = field(default_factory=list)


class WholeDefinitions:
    """`DetailDepthResolver` for an answer to this question with room for so many tokens. Immutable."""

    def __init__(self, room: int, question: str = "") -> None:
        self._room = room
        self._question = question

    def choices(self, ranking: Ranking, code: CodeSnapshot, count: CountTokens) -> Sequence[Choice]:
        files = _grouped(ranking)
        found = {file.path: file for file in code.files if file.path in files}
        documents = [file.document for file in found.values()]
        analyses = next(iter(attempted(lambda: code.analyses(documents)).given), {})
        wanted = queries_of(read_question(self._question))["weighed"]
        offering = _Offering(self._room, code, count, wanted)
        for place in ranking.places[:_MOST_PLACES]:
            if place.text:
                offering.offer_text(place)
        for path, file in files.items():
            known = found.get(path)
            analysis = analyses.get(known.document) if known else None
            offering.offer_file(file, known, analysis)
        return offering.choices


def paths_alone(ranking: Ranking, count: CountTokens) -> Sequence[Choice]:
    """The best files by their paths, for when nothing can be read."""
    offering = _Offering(0, NoCode(CodePlace(Path())), count, {})
    for place in ranking.files[:_MOST_FILES]:
        offering.offer_path(place)
    return offering.choices


class _Offering:
    """Not thread-safe: made and used by one call."""

    def __init__(
        self, room: int, code: CodeSnapshot, count: CountTokens, wanted: Mapping[str, float]
    ) -> None:
        self.choices: list[Choice] = []
        self._room = room
        self._left = room * _OFFERED
        self._code = code
        self._count = count
        self._wanted = wanted
        self._searched = 0

    def offer_text(self, place: RankedPlace) -> None:
        """What is no file: all of it, or its name."""
        heading = f"### {printable(place.path)}"
        texts = {Depth.PATH: heading}
        if len(place.text) <= self._room * _CHARACTERS_OF_A_TOKEN:
            texts[Depth.FULL] = f"{heading}\n{place.text}"
        self._offer(place, texts)

    def offer_file(self, file: _File, known: CodeFile | None, analysis: FileAnalysis | None) -> None:
        """The file and its places; what cannot be read, or makes no sense, by its path."""
        before = len(self.choices)
        text = self._read(file, known, analysis)
        if text is not None:
            attempted(lambda: self._offer_text_of(file, text))
        if len(self.choices) == before:
            self.offer_path(file.place)

    def offer_path(self, place: RankedPlace) -> None:
        self._offer(place, {Depth.PATH: f"### {printable(place.path)}"})

    def _offer_text_of(self, file: _File, text: CodeText) -> None:
        units = _units(file.places, text.analysis) or self._sections(file.place, text)
        whole = self._whole(text, units)
        if whole is not None:
            worth = file.place.score + sum(place.score for place in units.values()) / 2
            self._offer(file.place, {**_shown(text, None, _OF_A_FILE), Depth.FULL: whole}, min(1.0, worth))
            return
        of_file = file.place.score * (_BESIDE_ITS_PLACES if units else 1.0)
        self._offer(file.place, _shown(text, None, _OF_A_FILE), of_file)
        for unit, place in units.items():
            texts = _shown(text, unit, _OF_A_PLACE)
            within = any(other is not unit and unit.span.contains(other.span) for other in units)
            full = text.at(Depth.FULL, unit)
            if full is not None and not within and self._may_fit(full):  # guard: nothing is shown twice
                texts[Depth.FULL] = full
            loose = _LOOSE if unit.definition is None and is_code(place.path) else 1.0
            shown = RankedPlace(place.path, unit.span, place.score, place.findings)
            self._offer(shown, texts, place.score * loose)

    def _read(self, file: _File, known: CodeFile | None, analysis: FileAnalysis | None) -> CodeText | None:
        """The file, if it can be read and is not beyond what is looked at closely."""
        if known is None or analysis is None or analysis.opaque or self._left <= 0:
            return None
        near = [place.span for place in file.places if place.span]
        read = attempted(
            lambda: CodeText(known.path, self._code.text(known.path), analysis, self._wanted, near)
        )
        return next(iter(read.given), None)

    def _sections(self, place: RankedPlace, text: CodeText) -> dict[LineUnit, RankedPlace]:
        """What of a text speaks of the question, if all of it would take too much of the room."""
        if is_code(place.path) or self._searched >= _MOST_SEARCHED:
            return {}
        full = text.at(Depth.FULL)
        if full is None or (self._may_fit(full) and self._count(full) * _MUCH <= self._room):
            return {}
        self._searched += len(full)
        return sections_about(self._wanted, text, place)

    def _whole(self, text: CodeText, units: dict[LineUnit, RankedPlace]) -> str | None:
        """All of the file, if it is short, or if it has no places that could be shown instead."""
        full = text.at(Depth.FULL)
        if full is None or not self._may_fit(full):
            return None
        if not units or self._count(full) * _SHORT <= self._room:
            return full
        return None

    def _may_fit(self, text: str) -> bool:
        return len(text) <= self._room * _CHARACTERS_OF_A_TOKEN

    def _offer(self, place: RankedPlace, texts: dict[Depth, str], worth: float | None = None) -> None:
        """Offers it in these ways; `worth` stands in for its score where it is not worth as much."""
        if not texts:
            return
        score = max(0.0, place.score if worth is None else worth)
        tokens = {depth: self._count(text) for depth, text in texts.items()}
        most = max(tokens.values())
        value = score**3 * math.sqrt(most)
        renderings = [
            Rendering(depth, text, tokens[depth], value * _WORTH[depth]) for depth, text in texts.items()
        ]
        self._left -= most
        self.choices.append(Choice(place, tuple(sorted(renderings, key=lambda one: one.tokens))))


def _grouped(ranking: Ranking) -> dict[str, _File]:
    """The best files, each with the best places within it."""
    files = {place.path: _File(place) for place in ranking.files[:_MOST_FILES]}
    for place in ranking.places[:_MOST_PLACES]:
        file = files.get(place.path)
        if place.text or place.span is None or file is None:
            continue
        if len(file.places) < _PLACES_OF_A_FILE:
            file.places.append(place)
    return files


def _units(places: Sequence[RankedPlace], analysis: FileAnalysis) -> dict[LineUnit, RankedPlace]:
    """The whole lines that the places stand for; two that stand for the same are the better one's."""
    best: dict[LineUnit, RankedPlace] = {}
    for place in places:
        unit = unit_of(place.span, analysis) if place.span else None
        if unit is not None:
            best.setdefault(unit, place)
    return {unit: best[unit] for unit in without_crossings(best)}


def _shown(text: CodeText, unit: LineUnit | None, depths: Sequence[Depth]) -> dict[Depth, str]:
    """It at those depths at which there is something to show."""
    shown: dict[Depth, str] = {}
    for depth in depths:
        said = text.at(depth, unit)
        if said is not None and said not in shown.values():
            shown[depth] = said
    return shown


def sections_about(
    wanted: Mapping[str, float], text: CodeText, place: RankedPlace
) -> dict[LineUnit, RankedPlace]:
    """The best sections, best first, by how much each term is wanted; `place` is the text as ranked."""
    chunks = text.analysis.chunks[:_MOST_CHUNKS]
    said = [
        wanted.keys() & terms_of("\n".join(text.lines[chunk.span.first - 1 : chunk.span.last])).keys()
        for chunk in chunks
    ]
    holders = Counter(term for terms in said for term in terms)
    rarity = {term: math.log(1 + len(chunks) / many) for term, many in holders.items()}
    scores = [sum(wanted[term] * rarity[term] for term in terms) for terms in said]
    best = max(scores, default=0.0)
    numbers = [number for number, score in enumerate(scores) if score > 0 and score >= best * _LEAST]
    found: dict[LineUnit, RankedPlace] = {}
    for number in sorted(numbers, key=lambda one: -scores[one])[:_MOST]:
        chunk = chunks[number]
        score = place.score * (1 - _OWN + _OWN * scores[number] / best)
        ranked = RankedPlace(place.path, chunk.span, score, place.findings)
        found[LineUnit(chunk.span, chunk.definition)] = ranked
    return found
