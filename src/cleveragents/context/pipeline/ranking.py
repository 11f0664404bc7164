"""A ranking that needs nothing but what strategies said: for when no scorer is there, or none is in time."""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.context.code_index import CodeSnapshot
from cleveragents.context.model.context_answer import Candidate, Finding, RankedPlace, Ranking

__all__ = ["PlainScorer", "plain_ranking"]

_Scale = dict[tuple[str, str], float]


class PlainScorer:
    """`Scorer` by the sum of what was said, each signal measured by its best word. Immutable."""

    def rank(self, question: str, candidates: Sequence[Candidate], code: CodeSnapshot) -> Ranking:
        return plain_ranking(candidates)


def plain_ranking(candidates: Sequence[Candidate]) -> Ranking:
    """Places by the sum of their signals, files by the best that was said of them; without any I/O."""
    scale = _scale(candidates)
    most = float(max(1, len(scale)))
    spoken: dict[str, dict[tuple[str, str], Finding]] = {}
    places: list[RankedPlace] = []
    for candidate in candidates:
        if candidate.span is not None or candidate.text:
            places.append(_ranked(candidate, scale, most))
        if not candidate.text:
            best = spoken.setdefault(candidate.path, {})
            for finding in candidate.findings:
                key = (finding.strategy, finding.signal)
                if key not in best or finding.score > best[key].score:
                    best[key] = finding
    files = [
        _ranked(Candidate(path, None, tuple(said.values())), scale, most) for path, said in spoken.items()
    ]
    return Ranking(tuple(sorted(files, key=_standing)), tuple(sorted(places, key=_standing)))


def _scale(candidates: Sequence[Candidate]) -> _Scale:
    """The best word of each signal; what is not above 0 says nothing."""
    best: _Scale = {}
    for candidate in candidates:
        for finding in candidate.findings:
            key = (finding.strategy, finding.signal)
            if finding.score > best.get(key, 0.0):
                best[key] = finding.score
    return best


def _ranked(candidate: Candidate, scale: _Scale, most: float) -> RankedPlace:
    total = 0.0
    for finding in candidate.findings:
        best = scale.get((finding.strategy, finding.signal), 0.0)
        if best > 0:
            total += max(0.0, finding.score) / best
    score = min(1.0, total / most)
    return RankedPlace(candidate.path, candidate.span, score, candidate.findings, candidate.text)


def _standing(place: RankedPlace) -> tuple[float, str, int]:
    return (-place.score, place.path, place.span.first if place.span else 0)
