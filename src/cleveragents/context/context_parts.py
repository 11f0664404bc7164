"""The ten parts of the context pipeline, each replaceable, and what strategies are made from.

A part is replaced by configuration (`context.<part>`) or by an entry point of the group
`cleveragents.context`; a strategy is added as a module of `context/strategies` or by an entry
point of `cleveragents.context_strategies`. The pipeline believes none of them: one that raises, hangs or
answers nonsense is done without, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cleveragents.context.code_index import CodePlace, CodeSnapshot
from cleveragents.context.model.context import (
    Candidate,
    Choice,
    ContextFragment,
    ContextRequest,
    ExecutionReport,
    PackedFragment,
    Ranking,
    Shares,
)
from cleveragents.context.strategy import CancelSignal, ContextStrategy
from cleveragents.core.decision import Decision

__all__ = [
    "BudgetAllocator",
    "CommitHistory",
    "CountTokens",
    "Deduplicator",
    "DetailDepthResolver",
    "MakeStrategy",
    "Orderer",
    "Packer",
    "PastCommit",
    "Preamble",
    "Scorer",
    "Skeleton",
    "StrategyExecutor",
    "StrategyGround",
    "StrategySelector",
]

CountTokens = Callable[[str], int]
"""The tokenizer in use: what it says of a text counts against the budget."""


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit of the history, without its merge parents' changes."""

    id: str
    at: datetime
    message: str
    paths: tuple[str, ...]


class CommitHistory(Protocol):
    """The past of a repository. Any thread may ask."""

    def commits(self, place: CodePlace, *, limit: int) -> Sequence[PastCommit]:
        """The latest ones that lead to what the place holds, newest first; none where there is no git."""
        ...


@dataclass(frozen=True, slots=True)
class StrategyGround:
    """What a strategy may use for one question. `decisions` are those of the plan that asks."""

    code: CodeSnapshot
    history: CommitHistory
    decisions: Sequence[Decision] = ()


MakeStrategy = Callable[[StrategyGround], ContextStrategy]
"""How a strategy is offered: cheap, without I/O; the work is done by `retrieve`."""


class StrategySelector(Protocol):
    def select(self, question: str, names: Sequence[str]) -> Sequence[str]:
        """The names of the strategies to ask, of those there are."""
        ...


class BudgetAllocator(Protocol):
    def allocate(self, budget: int) -> Shares: ...


class StrategyExecutor(Protocol):
    def execute(
        self,
        strategies: Sequence[ContextStrategy],
        request: ContextRequest,
        *,
        deadline_seconds: float,
        strategy_seconds: float | None = None,
        cancelled: CancelSignal | None = None,
    ) -> ExecutionReport: ...


class Deduplicator(Protocol):
    def merge(self, fragments: Sequence[ContextFragment]) -> Sequence[Candidate]:
        """Each place once, with all that was said of it."""
        ...


class Scorer(Protocol):
    def rank(self, question: str, candidates: Sequence[Candidate], code: CodeSnapshot) -> Ranking: ...


class DetailDepthResolver(Protocol):
    def choices(self, ranking: Ranking, code: CodeSnapshot, count: CountTokens) -> Sequence[Choice]:
        """For the best places, the depths at which each can be shown; no definition is cut in half."""
        ...


class Packer(Protocol):
    def pack(self, choices: Sequence[Choice], tokens: int) -> Sequence[PackedFragment]:
        """At most one rendering of each choice, together within `tokens`, worth as much as possible."""
        ...


class Orderer(Protocol):
    def order(self, fragments: Sequence[PackedFragment]) -> Sequence[PackedFragment]: ...


class Preamble(Protocol):
    def write(self, question: str, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        """What precedes the fragments, within `tokens`."""
        ...


class Skeleton(Protocol):
    def draw(self, code: CodeSnapshot, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        """The shape of the repository, within `tokens` however large it is."""
        ...
