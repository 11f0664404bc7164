"""Validation of replaced parts. Each check copies a valid result and raises an error for an invalid result.

Types are compared exactly, because a subclass could run code when a field is read. Everything is bounded,
because an answer may be endless. A replaced part is foreign code: it is loaded, called and checked on another
thread, with a deadline and a circuit breaker. `CustomParts.ask` returns None if the pipeline must use its
built-in part.
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
    RankedDefinition,
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
"""The ten parts, by their names in settings and notes."""

LoadPart = Callable[[], Any]
"""Returns the part. It is called on a thread that can be abandoned, because importing also runs foreign code.
"""


def checked_names(answer: object, offered: Collection[str]) -> tuple[str, ...]:
    """Return the names in the answer. Each must be an offered name, and occur only once."""
    names = tuple(_each(answer, str, len(offered)))
    if len(set(names)) != len(names) or not set(names) <= set(offered):
        raise ValueError("named unknown or duplicate strategies")
    return names


def checked_shares(answer: object, budget: int) -> Shares:
    shares = _exactly(answer, Shares)
    parts = (shares.preamble, shares.skeleton, shares.fragments)
    if any(type(part) is not int or part < 0 for part in parts) or sum(parts) > budget:
        raise ValueError(f"allocated more than the budget of {budget} tokens, or an invalid number")
    return shares


def checked_report(answer: object, names: Sequence[str]) -> ExecutionReport:
    """Return the report in the answer. It must have one entry for each strategy, in the order of `names`."""
    report = _exactly(answer, ExecutionReport)
    told = tuple(_each(report.strategies, StrategyReport, len(names)))
    if [one.name for one in told] != list(names):
        raise ValueError("did not report each strategy once, in order")
    return ExecutionReport(tuple(_checked_strategy(one) for one in told))


def checked_candidates(answer: object, fragments: Sequence[ContextFragment]) -> tuple[Candidate, ...]:
    """Return the candidates in the answer. Each must be for a place in the fragments."""
    known = {fragment.path for fragment in fragments}
    kept: list[Candidate] = []
    for candidate in _each(answer, Candidate, len(fragments)):
        _check_place(candidate.path, candidate.span, candidate.text)
        if candidate.path not in known:
            raise ValueError("names a place that no strategy found")
        kept.append(replace(candidate, findings=_checked_findings(candidate.findings)))
    return tuple(kept)


def checked_ranking(answer: object, known: Collection[str]) -> Ranking:
    """Return the ranking in the answer. It must contain only known paths, and no file twice."""
    ranking = _exactly(answer, Ranking)
    files = tuple(_checked_place(place, known) for place in _each(ranking.files, RankedPlace, len(known)))
    if len({place.path for place in files}) != len(files):
        raise ValueError("ranks a file twice")
    places = _each(ranking.places, RankedPlace, _MOST_FRAGMENTS)
    definitions = _each(ranking.definitions, RankedDefinition, _MOST_FRAGMENTS)
    return Ranking(
        files,
        tuple(_checked_place(place, known) for place in places),
        tuple(_checked_definition(definition, known) for definition in definitions),
        ranking.is_related is not False,
    )


def checked_choices(answer: object, ranking: Ranking, count: CountTokens) -> tuple[Choice, ...]:
    """Return the choices in the answer, with their tokens counted again. They must be for places of the
    ranking, and their total size is bounded.
    """
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
    """Return the packed fragments in the answer. They must be unchanged renderings, at most one of each
    choice, and together within `tokens`.
    """
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
    """Return the packed fragments in the order of the answer, which must contain exactly these."""
    ordered = tuple(_each(answer, PackedFragment, len(packed)))
    if len(ordered) != len(packed) or set(ordered) != set(packed):
        raise ValueError("lost, changed or invented fragments")
    return ordered


def checked_text(answer: object, tokens: int, count: CountTokens) -> str:
    text = _exactly(answer, str)
    if len(text) > _MOST_CHARACTERS or count(text) > tokens:
        raise ValueError(f"wrote more than {tokens} tokens")
    return text


def _exactly(answer: object, kind: type[T]) -> T:
    if type(answer) is not kind:
        raise TypeError(f"returned {type(answer).__name__} instead of {kind.__name__}")
    return answer


def _each(answer: object, kind: type[T], most: int) -> Iterator[T]:
    """Yield at most `most` items of exactly this type; one more is an error."""
    if not isinstance(answer, Iterable) or isinstance(answer, str):
        raise TypeError(f"returned {type(answer).__name__}, not a sequence of {kind.__name__}")
    for number, one in enumerate(islice(answer, most + 1)):
        if number == most:  # guard: an endless answer ends here
            raise ValueError(f"returned more than {most} of {kind.__name__}")
        yield _exactly(one, kind)


def _checked_strategy(told: StrategyReport) -> StrategyReport:
    if type(told.status) is not StrategyStatus or not (told.error is None or type(told.error) is str):
        raise TypeError("reports a strategy without a status")
    if type(told.seconds) not in (int, float) or not math.isfinite(told.seconds):
        raise ValueError("reports an invalid time")
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
        raise ValueError("ranks an unknown path")
    if not _is_share(place.score):
        raise ValueError("ranks by a score that is not between 0 and 1")
    return replace(place, findings=_checked_findings(place.findings))


def _checked_definition(definition: RankedDefinition, known: Collection[str]) -> RankedDefinition:
    _checked_place(RankedPlace(definition.path, definition.span, definition.score), known)
    reasons = tuple(_each(definition.reasons, str, _MOST_FINDINGS))
    if type(definition.span) is not LineSpan or {type(definition.name), type(definition.kind)} != {str}:
        raise TypeError("ranks a definition without lines, or whose name or kind is not text")
    return replace(definition, reasons=reasons)


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
        raise ValueError("renders with a value that is not a number of at least 0")


def _is_share(score: object) -> bool:
    return isinstance(score, (int, float)) and type(score) is not bool and 0.0 <= score <= 1.0


@dataclass(frozen=True, slots=True)
class CustomParts:
    """The replaced parts, and the executor on whose threads they run.

    A replaced part gets at most half of the remaining time, so that the built-in part has time if the
    replacement fails.
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
        """Return the result of a part, called and checked by `use`; None if the part is not replaced or has
        failed; a failure is reported to `note`.
        """
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
        if not outcome.given:  # guard: the pipeline continues with the built-in part
            note(f"the configured {part} {outcome.problem}; the built-in one was used")
            return None
        return outcome.given[0]
