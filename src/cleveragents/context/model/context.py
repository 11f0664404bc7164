"""The data of the context pipeline: requests, fragments, reports, rankings, renderings and answers.

A strategy is foreign code: its result is used only after `keep_within` has validated it.

Scores of different signals are not comparable, so each is normalised per question: the score of a file is
divided by the signal's highest score. The weights of the signals are learned from questions with known
answers. No weight is negative: evidence for a file never counts against it. `fusion_from_json` reads the
weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from cleveragents.context.model.code import LineSpan, kind_of
from cleveragents.core.json_value import JsonValue

__all__ = [
    "Candidate",
    "Choice",
    "ContextAnswer",
    "ContextFragment",
    "ContextRequest",
    "Depth",
    "ExecutionReport",
    "Finding",
    "FragmentLimits",
    "Fusion",
    "KeptFragments",
    "PackedFragment",
    "RankedDefinition",
    "RankedPlace",
    "Ranking",
    "Rendering",
    "Shares",
    "Signal",
    "StrategyReport",
    "StrategyStatus",
    "fusion_from_json",
    "keep_within",
]


Signal = tuple[str, str]
"""The strategy's name, and its name of the signal."""


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A question about a repository."""

    question: str
    root: str = "."


@dataclass(frozen=True, slots=True)
class ContextFragment:
    """A place that may be relevant, and the strategy that found it.

    Without a `span`, the whole file is meant. `text` is set for a place that is not a file, such as a
    decision or a commit; the content of a file is read when it is packed. A strategy with several signals
    names each by `signal`.
    """

    path: str
    text: str
    score: float
    strategy: str
    span: LineSpan | None = None
    signal: str = ""


class StrategyStatus(str, Enum):
    """The outcome of one strategy in one execution.

    A `late` strategy started but did not end in time; a `saturated` strategy never started, because no thread
    was free.
    """

    USED = "used"
    EMPTY = "empty"
    FAILED = "failed"
    LATE = "late"
    CANCELLED = "cancelled"
    BREAKER_OPEN = "breaker_open"
    SATURATED = "saturated"


@dataclass(frozen=True, slots=True)
class StrategyReport:
    """The report on one strategy: its status, duration and results.

    `truncated` means that the strategy returned more than the limits allow, and only its first fragments,
    which are the best, were kept.
    """

    name: str
    status: StrategyStatus
    fragments: tuple[ContextFragment, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """The reports on all strategies of one execution, in the order in which they were requested."""

    strategies: tuple[StrategyReport, ...] = field(default=())

    @property
    def fragments(self) -> tuple[ContextFragment, ...]:
        return tuple(f for report in self.strategies for f in report.fragments)


@dataclass(frozen=True, slots=True)
class FragmentLimits:
    """Limits on the result of one strategy."""

    fragments: int = 1000
    characters: int = 4_000_000

    def __post_init__(self) -> None:
        if self.fragments < 1 or self.characters < 1:
            raise ValueError("limits must be at least 1")


@dataclass(frozen=True, slots=True)
class KeptFragments:
    """The fragments that were kept, and whether there were more."""

    fragments: tuple[ContextFragment, ...]
    truncated: bool


def keep_within(answer: object, limits: FragmentLimits) -> KeptFragments:
    """Return the first fragments of `answer` that fit into the limits. At most one more fragment is read.

    So an endless generator and a text of gigabytes do no harm. Raises `TypeError` or `ValueError` if the
    answer does not consist of fragments, or if nothing of it fits.
    """
    if not isinstance(answer, Iterable):
        raise TypeError(f"returned {type(answer).__name__}, not a sequence of fragments")
    kept: list[ContextFragment] = []
    characters = 0
    for fragment in answer:
        size = _size(fragment)
        if len(kept) == limits.fragments or characters + size > limits.characters:
            if not kept:
                raise ValueError(f"its first fragment has {size} characters, over {limits.characters}")
            return KeptFragments(tuple(kept), truncated=True)
        kept.append(fragment)
        characters += size
    return KeptFragments(tuple(kept), truncated=False)


def _size(fragment: object) -> int:
    """Return the number of characters.

    Types must match exactly, because a subclass could run code when a field is read.
    """
    if type(fragment) is not ContextFragment:
        raise TypeError(f"returned {type(fragment).__name__} instead of ContextFragment")
    texts = (fragment.path, fragment.text, fragment.strategy, fragment.signal)
    if not all(type(text) is str for text in texts):
        raise TypeError("returned a fragment whose path, text, strategy or signal is not text")
    if not _is_place(fragment.span):
        raise ValueError("returned a fragment whose span is not lines of a file")
    if type(fragment.score) not in (int, float) or not math.isfinite(fragment.score):
        raise ValueError("returned a fragment whose score is not a finite number")
    return sum(len(text) for text in texts)


def _is_place(span: object) -> bool:
    if span is None:
        return True
    if type(span) is not LineSpan or type(span.first) is not int or type(span.last) is not int:
        return False
    return 1 <= span.first <= span.last


class Depth(str, Enum):
    """The detail in which a place is shown, from the least to the most."""

    PATH = "path"
    MEMBERS = "members"
    SIGNATURES = "signatures"
    OUTLINE = "outline"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Finding:
    """The score that one signal of a strategy gives to a place."""

    strategy: str
    signal: str
    score: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place with all findings about it. `text` is as in `ContextFragment`."""

    path: str
    span: LineSpan | None
    findings: tuple[Finding, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class RankedPlace:
    """A file, or lines of it, with its fused score between 0 and 1."""

    path: str
    span: LineSpan | None
    score: float
    findings: tuple[Finding, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class RankedDefinition:
    """A function, method or class with its score between 0 and 1. `name` is its dotted name within the file;
    `reasons` say in a few words why it was found, the most important first.
    """

    path: str
    span: LineSpan
    name: str
    kind: str
    score: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranked files, ranked places (lines within files, or texts that belong to no file) and ranked
    definitions, each best first. No file occurs twice. `is_related` is false if nothing in the code seems to
    be related to the question.
    """

    files: tuple[RankedPlace, ...] = ()
    places: tuple[RankedPlace, ...] = ()
    definitions: tuple[RankedDefinition, ...] = ()
    is_related: bool = True


@dataclass(frozen=True, slots=True)
class Rendering:
    """A place shown at one depth. `value` rates this rendering; higher is better."""

    depth: Depth
    text: str
    tokens: int
    value: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A place and its possible renderings in ascending order of tokens, of which at most one is used."""

    place: RankedPlace
    renderings: tuple[Rendering, ...]


@dataclass(frozen=True, slots=True)
class PackedFragment:
    """The rendering of a place in the answer."""

    place: RankedPlace
    rendering: Rendering


@dataclass(frozen=True, slots=True)
class Shares:
    """The division of an answer's tokens; the sum never exceeds the budget."""

    preamble: int
    skeleton: int
    fragments: int


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """The answer to one question, never over its budget, with a report on each strategy."""

    files: tuple[RankedPlace, ...]
    fragments: tuple[PackedFragment, ...]
    strategies: tuple[StrategyReport, ...]
    preamble: str
    skeleton: str
    tokens: int
    budget: int
    seconds: float
    notes: tuple[str, ...] = ()
    definitions: tuple[RankedDefinition, ...] = ()

    @property
    def text(self) -> str:
        """The text for the model, exactly as its tokens were counted."""
        parts = (self.preamble, self.skeleton, *(fragment.rendering.text for fragment in self.fragments))
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Fusion:
    """The weights of signals.

    Signals without a weight have the weight `unknown`. `priors` are added for properties of a path; `kinds`
    multiply the score of files that are not source.
    """

    signals: Mapping[Signal, float]
    priors: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[str, float] = field(default_factory=dict)
    unknown: float = 0.3

    def worth(self, shares: Mapping[Signal, float]) -> float:
        """Return the weighted sum of a file's signals; `shares` has the score of each signal divided by the
        signal's highest score.
        """
        return sum(self.signals.get(signal, self.unknown) * share for signal, share in shares.items())

    def prior(self, path: str) -> float:
        return sum(weight * _PRIORS[name](path) for name, weight in self.priors.items())

    def kind(self, path: str) -> float:
        return self.kinds.get(kind_of(path), 1.0)


_ASIDE = re.compile(
    r"(?:^|/)(?:docs?|examples?|benchmarks?|asv_bench|tutorials?|galler(?:y|ies)|scripts?|tools?|bin|build\w{0,20}"
    r"|release|setup\.py|setupext|versioneer|extras?|ci|\.[\w-]{1,40}|maint\w{0,20})(?:/|$|\.py$)",
    re.IGNORECASE,
)
_PRIORS: Mapping[str, Callable[[str], float]] = {
    "aside": lambda path: float(bool(_ASIDE.search(path))),  # code that users do not run
}


def fusion_from_json(data: JsonValue) -> Fusion:
    """Parse weights. Raises `ValueError` if the data is invalid."""
    if not isinstance(data, Mapping):
        raise ValueError("weights must be an object")
    signals = {
        (strategy, signal): _number(signal, weight)
        for strategy in _object(data, "signals")
        for signal, weight in _object(_object(data, "signals"), strategy).items()
    }
    priors = {name: _number(name, value) for name, value in _object(data, "priors").items()}
    if unknown := priors.keys() - _PRIORS.keys():
        raise ValueError(f"unknown prior: {', '.join(sorted(unknown))}")
    kinds = {name: _number(name, value) for name, value in _object(data, "kinds").items()}
    return Fusion(signals, priors, kinds)


def _object(data: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    found = data.get(name, {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} must be an object")
    return found


def _number(name: str, value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"the weight of {name} must be a number")
    return float(value)
