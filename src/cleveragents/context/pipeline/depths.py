"""The possible depths of the best places: path, members, signatures, outline, full.

A file and the places within it are separate choices, and no line is shown twice. A short file is offered
whole, without its places. A place that contains another place is offered only as an outline. A long text
without matching lines is offered by the sections that match the question. A definition is shown with all of
its lines, or at a lower depth.

The value of a rendering determines the packing. The best place should be shown in full before many lesser
ones are shown at all, so the value grows with the cube of the score. A long definition should not lose to a
short one because of its length, so the value also grows with the square root of its size. Lines outside of
definitions, mostly imports, have a low value.

Counting tokens takes most of the time, so places are processed from the best down. Once the offered
renderings take three times the available tokens, further places are offered by path alone.

Strategies name a text as a whole. If the text does not fit, only some of its chunks (sections or groups of
lines) are shown: those with most of the question's words, where rare words count more.
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
"""A file is short if it takes less than this fraction of the room."""

_MUCH: Final = 2
"""A text is shown by its sections if it takes more than this fraction of the room."""

_MOST_SEARCHED: Final = 2_000_000
"""Maximum characters of texts that are searched for sections; the text that exceeds it is the last."""
_CHARACTERS_OF_A_TOKEN: Final = 8

_WORTH: Final = {
    Depth.PATH: 0.1,
    Depth.MEMBERS: 0.15,
    Depth.SIGNATURES: 0.2,
    Depth.OUTLINE: 0.25,
    Depth.FULL: 1.0,
}
"""The value of each depth, relative to showing the whole place."""

_LOOSE: Final = 0.3
"""The relative value of lines outside of definitions."""

_BESIDE_ITS_PLACES: Final = 0.3
"""The relative value of a file's outline if its places are offered as well."""
_OF_A_FILE: Final = (Depth.PATH, Depth.MEMBERS, Depth.SIGNATURES, Depth.OUTLINE)

_OF_A_PLACE: Final = (Depth.SIGNATURES, Depth.OUTLINE)
"""The path and the names of its file are offered with the file."""

_MOST: Final = 6
_MOST_CHUNKS: Final = 20_000

_LEAST: Final = 0.4
"""Minimum score of a section, relative to the best one."""

_OWN: Final = 0.7
"""The share of a section's own score; the rest is the score of its text."""


@dataclass(slots=True)
class _File:
    place: RankedPlace
    places: list[RankedPlace] = field(default_factory=list)


class WholeDefinitions:
    """A `DetailDepthResolver` for one question and a number of tokens. Immutable."""

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
    """Return choices that show the best files by their paths alone. Used if no file can be read."""
    offering = _Offering(0, NoCode(CodePlace(Path())), count, {})
    for place in ranking.files[:_MOST_FILES]:
        offering.offer_path(place)
    return offering.choices


class _Offering:
    """The choices offered so far. Not thread-safe: created and used by one call."""

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
        """Offer a text that is not a file: all of it, or its name."""
        heading = f"### {printable(place.path)}"
        texts = {Depth.PATH: heading}
        if len(place.text) <= self._room * _CHARACTERS_OF_A_TOKEN:
            texts[Depth.FULL] = f"{heading}\n{place.text}"
        self._offer(place, texts)

    def offer_file(self, file: _File, known: CodeFile | None, analysis: FileAnalysis | None) -> None:
        """Offer a file and its places; only its path if the file is unreadable or does not match its
        analysis.
        """
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
        """Return the file if it is readable and there is still room to offer it."""
        if known is None or analysis is None or analysis.opaque or self._left <= 0:
            return None
        near = [place.span for place in file.places if place.span]
        read = attempted(
            lambda: CodeText(known.path, self._code.text(known.path), analysis, self._wanted, near)
        )
        return next(iter(read.given), None)

    def _sections(self, place: RankedPlace, text: CodeText) -> dict[LineUnit, RankedPlace]:
        """Return the sections of a text that match the question, if the whole text would
        take too much room.
        """
        if is_code(place.path) or self._searched >= _MOST_SEARCHED:
            return {}
        full = text.at(Depth.FULL)
        if full is None or (self._may_fit(full) and self._count(full) * _MUCH <= self._room):
            return {}
        self._searched += len(full)
        return sections_about(self._wanted, text, place)

    def _whole(self, text: CodeText, units: dict[LineUnit, RankedPlace]) -> str | None:
        """Return the whole file if it is short, or if it has no places to show instead."""
        full = text.at(Depth.FULL)
        if full is None or not self._may_fit(full):
            return None
        if not units or self._count(full) * _SHORT <= self._room:
            return full
        return None

    def _may_fit(self, text: str) -> bool:
        return len(text) <= self._room * _CHARACTERS_OF_A_TOKEN

    def _offer(self, place: RankedPlace, texts: dict[Depth, str], worth: float | None = None) -> None:
        """Offer a place in these renderings. The lower of `worth` and its score counts."""
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
    """Return the best files, each with its best places."""
    files = {place.path: _File(place) for place in ranking.files[:_MOST_FILES]}
    for place in ranking.places[:_MOST_PLACES]:
        file = files.get(place.path)
        if place.text or place.span is None or file is None:
            continue
        if len(file.places) < _PLACES_OF_A_FILE:
            file.places.append(place)
    return files


def _units(places: Sequence[RankedPlace], analysis: FileAnalysis) -> dict[LineUnit, RankedPlace]:
    """Return the units of whole lines that the places stand for. If two places stand for the same unit, the
    better place is used.
    """
    best: dict[LineUnit, RankedPlace] = {}
    for place in places:
        unit = unit_of(place.span, analysis) if place.span else None
        if unit is not None:
            best.setdefault(unit, place)
    return {unit: best[unit] for unit in without_crossings(best)}


def _shown(text: CodeText, unit: LineUnit | None, depths: Sequence[Depth]) -> dict[Depth, str]:
    """Return the renderings at the depths that have something to show."""
    shown: dict[Depth, str] = {}
    for depth in depths:
        said = text.at(depth, unit)
        if said is not None and said not in shown.values():
            shown[depth] = said
    return shown


def sections_about(
    wanted: Mapping[str, float], text: CodeText, place: RankedPlace
) -> dict[LineUnit, RankedPlace]:
    """Return the best sections, best first, by the weights of their terms; `place` is the ranked text."""
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
