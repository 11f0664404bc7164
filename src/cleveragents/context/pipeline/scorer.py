"""Ranks files, and places within them, by what all strategies said together.

The weights are `Fusion`'s. A file is what changes, so files are ranked by what was said of them as a whole; a
place within a file is as good as what was said of it, in as good a file as it is in. Tests and texts are held
back, because a question is seldom about them, unless it says that it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleveragents.context.code_index import CodeSnapshot
from cleveragents.context.model.code import Span
from cleveragents.context.model.code_paths import kind_of
from cleveragents.context.model.context_answer import Candidate, Finding, RankedPlace, Ranking
from cleveragents.context.model.fusion import Fusion, Signal
from cleveragents.context.model.question import read_question

__all__ = ["FusedScorer"]

_NOWHERE = Span(0, 0)
_OWN = 0.7
"""Which part of a place's score is its own; the rest is its file's."""

_NAMED: Signal = ("mentions", "path")
_ASKED = 2.0
"""By how much tests or texts that are asked for count more: they have fewer signals than sources."""

_Shares = dict[Signal, float]


class FusedScorer:
    """`Scorer`: weighted sums of signals on one scale. Immutable; any thread may ask."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion

    def rank(self, question: str, candidates: Sequence[Candidate], code: CodeSnapshot) -> Ranking:
        files = [one for one in candidates if one.span is None and not one.text]
        places = [one for one in candidates if one.span is not None or one.text]
        scores = self._file_scores(question, files, places)
        findings = {one.path: one.findings for one in files}
        ranked = sorted(scores, key=lambda path: (-scores[path], path))
        return Ranking(
            tuple(RankedPlace(path, None, scores[path], findings.get(path, ())) for path in ranked),
            self._places(places, scores),
        )

    def _file_scores(
        self, question: str, files: Sequence[Candidate], places: Sequence[Candidate]
    ) -> dict[str, float]:
        """Between 0 and 1, the best having 1 unless nothing speaks for it."""
        fusion = self._fusion
        asked = _asked_for(question)
        raw: dict[str, float] = {one.path: 0.0 for one in places if not one.text}
        for path, shares in _shares(files).items():
            worth = fusion.worth(shares) + fusion.prior(path)
            if worth > 0 and kind_of(path) in asked:
                worth *= _ASKED
            elif worth > 0 and _NAMED not in shares:
                worth *= fusion.kind(path)
            raw[path] = worth
        highest = max(raw.values(), default=0.0)
        lowest = min(0.0, min(raw.values(), default=0.0))
        spread = highest - lowest or 1.0
        return {path: (worth - lowest) / spread for path, worth in raw.items()}

    def _places(self, places: Sequence[Candidate], files: Mapping[str, float]) -> tuple[RankedPlace, ...]:
        tops = _tops(places)
        found: list[RankedPlace] = []
        for one in places:
            shares = [_share(finding, tops) for finding in one.findings]
            own = max(shares, default=0.0)
            score = own if one.text else files[one.path] * (1 - _OWN + _OWN * own)
            found.append(RankedPlace(one.path, one.span, score, one.findings, one.text))
        return tuple(sorted(found, key=lambda place: (-place.score, place.path, place.span or _NOWHERE)))


def _shares(files: Sequence[Candidate]) -> dict[str, _Shares]:
    """What each signal says of each file, as a share of its highest score."""
    tops = _tops(files)
    shares: dict[str, _Shares] = {}
    for one in files:
        of_file = shares.setdefault(one.path, {})
        for finding in one.findings:
            share = _share(finding, tops)
            if share > 0:
                signal = (finding.strategy, finding.signal)
                of_file[signal] = max(of_file.get(signal, 0.0), share)
    return shares


def _tops(places: Sequence[Candidate]) -> dict[Signal, float]:
    tops: dict[Signal, float] = {}
    for one in places:
        for finding in one.findings:
            key = (finding.strategy, finding.signal)
            tops[key] = max(tops.get(key, 0.0), finding.score)
    return tops


def _share(finding: Finding, tops: Mapping[Signal, float]) -> float:
    top = tops[finding.strategy, finding.signal]
    return max(0.0, finding.score) / top if top > 0 else 0.0


_ASKING = {
    "test": frozenset({"test", "tests", "pytest", "unittest", "fixture", "fixtures", "conftest"}),
    "text": frozenset({"docs", "documentation", "readme", "changelog", "typo"}),
}


def _asked_for(question: str) -> frozenset[str]:
    """The kinds of files that the title speaks of."""
    words = frozenset(read_question(question).title.lower().replace("`", " ").replace("/", " ").split())
    return frozenset(kind for kind, names in _ASKING.items() if words & names)
