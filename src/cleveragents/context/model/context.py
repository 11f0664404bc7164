"""What the context pipeline asks for, what strategies give, and what became of each of them.

A strategy is foreign code: what it returns is believed only after `keep_within` has looked at it.

What the context pipeline makes of what strategies found: a ranking, choices of detail, an answer.

How what strategies say of files is put together: a weight for each signal, and what a path alone tells.

Signals count different things, so each is brought to the same scale for every question: what it says of a
file, as a share of the most that it says of any. The weights are learned from questions whose answers are
known, and none is below zero: evidence for a file never counts against it. They are data, which
`fusion_from_json` reads.
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
"""The strategy's name, and its name for one way of looking."""


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A question about a repository."""

    question: str
    root: str = "."


@dataclass(frozen=True, slots=True)
class ContextFragment:
    """A place that may matter, and who found it.

    Without a `span` the whole file is meant. `text` is for what is no file (a decision, a commit); what a
    path says is read when it is packed. A strategy that looks in several ways names each by a `signal`."""

    path: str
    text: str
    score: float
    strategy: str
    span: LineSpan | None = None
    signal: str = ""


class StrategyStatus(str, Enum):
    """What became of one strategy in one execution.

    `late` was begun and did not end in time; `saturated` was never begun, because no thread was free.
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
    """The account of one strategy: what became of it, how long it ran, what it said.

    `truncated`: it returned more than the limits allow, and only its best, which come first, were kept.
    """

    name: str
    status: StrategyStatus
    fragments: tuple[ContextFragment, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """All strategies of one execution, in the order in which they were asked for."""

    strategies: tuple[StrategyReport, ...] = field(default=())

    @property
    def fragments(self) -> tuple[ContextFragment, ...]:
        return tuple(f for report in self.strategies for f in report.fragments)


@dataclass(frozen=True, slots=True)
class FragmentLimits:
    """The most that is kept of one strategy's answer."""

    fragments: int = 1000
    characters: int = 4_000_000

    def __post_init__(self) -> None:
        if self.fragments < 1 or self.characters < 1:
            raise ValueError("limits are at least 1")


@dataclass(frozen=True, slots=True)
class KeptFragments:
    """What was kept, and whether there was more."""

    fragments: tuple[ContextFragment, ...]
    truncated: bool


def keep_within(answer: object, limits: FragmentLimits) -> KeptFragments:
    """The leading fragments of `answer` that fit, at most one more being looked at.

    So an endless generator ends, and a text of gigabytes is not kept. `TypeError` or `ValueError` when the
    answer is not fragments, or when nothing of it fits.
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
    """Its characters. Exact types, because a subclass could run code whenever somebody reads a field."""
    if type(fragment) is not ContextFragment:
        raise TypeError(f"returned {type(fragment).__name__} where a ContextFragment belongs")
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
    """How much of a place is shown, from least to most."""

    PATH = "path"
    MEMBERS = "members"
    SIGNATURES = "signatures"
    OUTLINE = "outline"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Finding:
    """One strategy's word on a place."""

    strategy: str
    signal: str
    score: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place with everything that was said of it. `text` as in `ContextFragment`."""

    path: str
    span: LineSpan | None
    findings: tuple[Finding, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class RankedPlace:
    """A file, or lines of it, with its fused score, between 0 and 1."""

    path: str
    span: LineSpan | None
    score: float
    findings: tuple[Finding, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Files, and places within files or without one, best first each. No file is there twice."""

    files: tuple[RankedPlace, ...] = ()
    places: tuple[RankedPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendering:
    """A place shown at one depth; `value` says what it is worth to show it so, more being better."""

    depth: Depth
    text: str
    tokens: int
    value: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A place and the ways in which it can be shown, of which at most one is; ascending in tokens."""

    place: RankedPlace
    renderings: tuple[Rendering, ...]


@dataclass(frozen=True, slots=True)
class PackedFragment:
    """What the answer shows of a place."""

    place: RankedPlace
    rendering: Rendering


@dataclass(frozen=True, slots=True)
class Shares:
    """How the tokens of an answer are divided; together they are no more than the budget."""

    preamble: int
    skeleton: int
    fragments: int


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """The answer to one question: never over its budget, and with an account of how it came about."""

    files: tuple[RankedPlace, ...]
    fragments: tuple[PackedFragment, ...]
    strategies: tuple[StrategyReport, ...]
    preamble: str
    skeleton: str
    tokens: int
    budget: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All that a model is shown, as it was counted."""
        parts = (self.preamble, self.skeleton, *(fragment.rendering.text for fragment in self.fragments))
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Fusion:
    """`signals` that nobody has measured count as `unknown`. `priors` are added for what a path is; `kinds`
    multiply the sum of what is not source."""

    signals: Mapping[Signal, float]
    priors: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[str, float] = field(default_factory=dict)
    unknown: float = 0.3

    def worth(self, shares: Mapping[Signal, float]) -> float:
        """Of everything said of a file, each signal's share of its highest score."""
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
    "aside": lambda path: float(bool(_ASIDE.search(path))),  # not what users run
}


def fusion_from_json(data: JsonValue) -> Fusion:
    """`ValueError` if that is no description of weights."""
    if not isinstance(data, Mapping):
        raise ValueError("weights are an object")
    signals = {
        (strategy, signal): _number(signal, weight)
        for strategy in _object(data, "signals")
        for signal, weight in _object(_object(data, "signals"), strategy).items()
    }
    priors = {name: _number(name, value) for name, value in _object(data, "priors").items()}
    if unknown := priors.keys() - _PRIORS.keys():
        raise ValueError(f"no such prior: {', '.join(sorted(unknown))}")
    kinds = {name: _number(name, value) for name, value in _object(data, "kinds").items()}
    return Fusion(signals, priors, kinds)


def _object(data: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    found = data.get(name, {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is no object")
    return found


def _number(name: str, value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"the weight of {name} is no number")
    return float(value)
