"""Whether a replaced part answered sense. Each check copies what it accepts, and raises for the rest.

Types are compared exactly, because a subclass could run code whenever somebody reads a field; everything is
bounded, because an answer may be endless. All of it runs on the foreign part's thread.

The parts of the pipeline that somebody replaced, and what is checked of their answers.

A replaced part is foreign code: it is loaded and called on another thread by a deadline, behind the
breaker, and what it gives is copied and checked there. `CustomParts.ask` is None whenever the pipeline
has to go on with its own part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeVar

from cleveragents.context.context_parts import CountTokens, StrategyExecutor
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import (
    Candidate,
    Choice,
    ContextFragment,
    Depth,
    ExecutionReport,
    Finding,
    FragmentLimits,
    PackedFragment,
    RankedPlace,
    Ranking,
    Rendering,
    Shares,
    StrategyReport,
    StrategyStatus,
    keep_within,
)
from cleveragents.context.pipeline.steps import Deadline, run_step
from cleveragents.context.strategy import CancelSignal

__all__ = [
    "PARTS",
    "CustomParts",
    "LoadPart",
    "checked_candidates",
    "checked_choices",
    "checked_names",
    "checked_order",
    "checked_packing",
    "checked_ranking",
    "checked_report",
    "checked_shares",
    "checked_text",
]


T = TypeVar("T")
_MOST_CHARACTERS: Final = 8_000_000
_MOST_CHOICES: Final = 10_000
_MOST_RENDERINGS: Final = 16
_MOST_FINDINGS: Final = 1000
_MOST_FRAGMENTS: Final = 20_000

PARTS: Final = (
    "selector",
    "allocator",
    "executor",
    "deduplicator",
    "scorer",
    "depths",
    "packer",
    "orderer",
    "preamble",
    "skeleton",
)
"""The ten, by the names that settings and notes use."""

LoadPart = Callable[[], Any]
"""Gives the part; called on a thread that can be left behind, because importing is foreign code as well."""


def checked_names(answer: object, offered: Collection[str]) -> tuple[str, ...]:
    """Names of those offered, each once."""
    names = tuple(_each(answer, str, len(offered)))
    if len(set(names)) != len(names) or not set(names) <= set(offered):
        raise ValueError("named strategies that there are not, or one twice")
    return names


def checked_shares(answer: object, budget: int) -> Shares:
    shares = _exactly(answer, Shares)
    parts = (shares.preamble, shares.skeleton, shares.fragments)
    if any(type(part) is not int or part < 0 for part in parts) or sum(parts) > budget:
        raise ValueError(f"shared out more than the budget of {budget} tokens, or what is no number of them")
    return shares


def checked_report(answer: object, names: Sequence[str]) -> ExecutionReport:
    """One report for each strategy, in their order."""
    report = _exactly(answer, ExecutionReport)
    told = tuple(_each(report.strategies, StrategyReport, len(names)))
    if [one.name for one in told] != list(names):
        raise ValueError("did not report on each strategy once, in their order")
    return ExecutionReport(tuple(_checked_strategy(one) for one in told))


def checked_candidates(answer: object, fragments: Sequence[ContextFragment]) -> tuple[Candidate, ...]:
    """Places that fragments are about, and no more of them."""
    known = {fragment.path for fragment in fragments}
    kept: list[Candidate] = []
    for candidate in _each(answer, Candidate, len(fragments)):
        _check_place(candidate.path, candidate.span, candidate.text)
        if candidate.path not in known:
            raise ValueError("names a place that no strategy found")
        kept.append(replace(candidate, findings=_checked_findings(candidate.findings)))
    return tuple(kept)


def checked_ranking(answer: object, known: Collection[str]) -> Ranking:
    """Of paths that are known, no file twice."""
    ranking = _exactly(answer, Ranking)
    files = tuple(_checked_place(place, known) for place in _each(ranking.files, RankedPlace, len(known)))
    if len({place.path for place in files}) != len(files):
        raise ValueError("ranks a file twice")
    places = _each(ranking.places, RankedPlace, _MOST_FRAGMENTS)
    return Ranking(files, tuple(_checked_place(place, known) for place in places))


def checked_choices(answer: object, ranking: Ranking, count: CountTokens) -> tuple[Choice, ...]:
    """Choices among places of the ranking, their tokens counted anew, within what can be held."""
    known = {place.path for place in (*ranking.files, *ranking.places)}
    characters = 0
    kept: list[Choice] = []
    for choice in _each(answer, Choice, _MOST_CHOICES):
        place = _checked_place(_exactly(choice.place, RankedPlace), known)
        renderings = []
        for rendering in _each(choice.renderings, Rendering, _MOST_RENDERINGS):
            _check_rendering(rendering)
            characters += len(rendering.text)
            if characters > _MOST_CHARACTERS:  # guard: texts of gigabytes are not kept
                raise ValueError(f"renders more than {_MOST_CHARACTERS:,} characters")
            renderings.append(replace(rendering, tokens=count(rendering.text)))
        kept.append(Choice(place, tuple(sorted(renderings, key=lambda one: one.tokens))))
    return tuple(kept)


def checked_packing(answer: object, choices: Sequence[Choice], tokens: int) -> tuple[PackedFragment, ...]:
    """Of each choice at most one rendering, as it was offered, together within `tokens`."""
    offered = {(choice.place, rendering) for choice in choices for rendering in choice.renderings}
    packed = tuple(_each(answer, PackedFragment, len(choices)))
    if not {(one.place, one.rendering) for one in packed} <= offered:
        raise ValueError("packed what was not offered")
    places = [one.place for one in packed]
    if len(set(places)) != len(places):
        raise ValueError("packed a place twice")
    if sum(one.rendering.tokens for one in packed) > tokens:
        raise ValueError(f"packed more than {tokens} tokens")
    return packed


def checked_order(answer: object, packed: Sequence[PackedFragment]) -> tuple[PackedFragment, ...]:
    """The same fragments, in another order."""
    ordered = tuple(_each(answer, PackedFragment, len(packed)))
    if len(ordered) != len(packed) or set(ordered) != set(packed):
        raise ValueError("lost, changed or made up fragments")
    return ordered


def checked_text(answer: object, tokens: int, count: CountTokens) -> str:
    text = _exactly(answer, str)
    if len(text) > _MOST_CHARACTERS or count(text) > tokens:
        raise ValueError(f"wrote more than {tokens} tokens")
    return text


def _exactly(answer: object, kind: type[T]) -> T:
    if type(answer) is not kind:
        raise TypeError(f"returned {type(answer).__name__} where {kind.__name__} belongs")
    return answer


def _each(answer: object, kind: type[T], most: int) -> Iterator[T]:
    """At most `most` of exactly that kind; one more is an error."""
    if not isinstance(answer, Iterable) or isinstance(answer, str):
        raise TypeError(f"returned {type(answer).__name__}, not a sequence of {kind.__name__}")
    for number, one in enumerate(islice(answer, most + 1)):
        if number == most:  # guard: an endless answer ends here
            raise ValueError(f"returned more than {most} of {kind.__name__}")
        yield _exactly(one, kind)


def _checked_strategy(told: StrategyReport) -> StrategyReport:
    if type(told.status) is not StrategyStatus or not (told.error is None or type(told.error) is str):
        raise TypeError("reports a strategy without saying what became of it")
    if type(told.seconds) not in (int, float) or not math.isfinite(told.seconds):
        raise ValueError("reports a time that is none")
    kept = keep_within(told.fragments, FragmentLimits())
    return replace(told, fragments=kept.fragments, truncated=bool(told.truncated) or kept.truncated)


def _check_place(path: object, span: object, text: object) -> None:
    if type(path) is not str or type(text) is not str:
        raise TypeError("names a place whose path or text is not text")
    if span is None:
        return
    if type(span) is not LineSpan or type(span.first) is not int or type(span.last) is not int:
        raise TypeError("names a place whose span is not lines of a file")
    if not 1 <= span.first <= span.last:
        raise ValueError("names a place whose span is not lines of a file")


def _checked_place(place: RankedPlace, known: Collection[str]) -> RankedPlace:
    _check_place(place.path, place.span, place.text)
    if place.path not in known:
        raise ValueError("ranks a path that nobody knows")
    if not _is_share(place.score):
        raise ValueError("ranks by a score that is not between 0 and 1")
    return replace(place, findings=_checked_findings(place.findings))


def _checked_findings(findings: object) -> tuple[Finding, ...]:
    kept = tuple(_each(findings, Finding, _MOST_FINDINGS))
    for finding in kept:
        if type(finding.strategy) is not str or type(finding.signal) is not str:
            raise TypeError("has a finding without a name")
        if type(finding.score) not in (int, float) or not math.isfinite(finding.score):
            raise ValueError("has a finding whose score is not a finite number")
    return kept


def _check_rendering(rendering: Rendering) -> None:
    if type(rendering.depth) is not Depth or type(rendering.text) is not str:
        raise TypeError("renders without a depth or a text")
    value = rendering.value
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError("renders something whose value is not a number of at least 0")


def _is_share(score: object) -> bool:
    return isinstance(score, (int, float)) and type(score) is not bool and 0.0 <= score <= 1.0


@dataclass(frozen=True, slots=True)
class CustomParts:
    """Those of the ten that are not our own, and the executor on whose threads they run.

    A part gets at most half of the time that is left, so that our own can still take its place.
    """

    executor: StrategyExecutor
    loads: Mapping[str, LoadPart] = field(default_factory=dict)

    def ask(
        self,
        part: str,
        use: Callable[[Any], T],
        *,
        deadline: Deadline,
        note: Callable[[str], None],
        cancelled: CancelSignal | None = None,
    ) -> T | None:
        """What the part gives, as `use` calls and checks it; None where there is none, or where it failed,
        which is noted."""
        load = self.loads.get(part)
        if load is None:
            return None
        outcome = run_step(
            self.executor,
            f"context.{part}",
            lambda _: use(load()),
            seconds=deadline.left / 2,
            cancelled=cancelled,
        )
        if not outcome.given:  # guard: whatever it did, the pipeline goes on without it
            note(f"the configured {part} {outcome.problem}; our own was used")
            return None
        return outcome.given[0]
