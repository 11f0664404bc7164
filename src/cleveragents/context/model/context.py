"""What the context pipeline asks for, what strategies give, and what became of each of them.

A strategy is foreign code: what it returns is believed only after `keep_within` has looked at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from cleveragents.context.model.code import Span

__all__ = [
    "ContextFragment",
    "ContextRequest",
    "ExecutionReport",
    "FragmentLimits",
    "KeptFragments",
    "StrategyReport",
    "StrategyStatus",
    "keep_within",
]


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
    span: Span | None = None
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
    if type(span) is not Span or type(span.first) is not int or type(span.last) is not int:
        return False
    return 1 <= span.first <= span.last
