"""What the context pipeline makes of what strategies found: a ranking, choices of detail, an answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cleveragents.context.model.code import Span
from cleveragents.context.model.context import StrategyReport

__all__ = [
    "Candidate",
    "Choice",
    "ContextAnswer",
    "Depth",
    "Finding",
    "PackedFragment",
    "RankedPlace",
    "Ranking",
    "Rendering",
    "Shares",
]


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
    span: Span | None
    findings: tuple[Finding, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class RankedPlace:
    """A file, or lines of it, with its fused score, between 0 and 1."""

    path: str
    span: Span | None
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
