"""The ten parts of the context pipeline, each replaceable, and the inputs of strategies.

Replace a part by configuration (`context.<part>`) or an entry point of the group `cleveragents.context`. Add
a strategy as a module of `context/strategies` or an entry point of `cleveragents.context_strategies`. The
pipeline trusts none of them: if a part or strategy raises, hangs or returns invalid data, the pipeline
continues without it and notes this in the answer.
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
"""The tokenizer in use: counts the tokens of a text against the budget."""


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit of the history. A merge commit does not include the changes of its merged parents."""

    id: str
    at: datetime
    message: str
    paths: tuple[str, ...]


class CommitHistory(Protocol):
    """The history of a repository. Any thread may use it."""

    def commits(self, place: CodePlace, *, limit: int) -> Sequence[PastCommit]:
        """Return the latest commits of the place, newest first; none without git."""
        ...


@dataclass(frozen=True, slots=True)
class StrategyGround:
    """The data that a strategy may use for one question. `decisions` are the decisions of the plan that asks
    the question.
    """

    code: CodeSnapshot
    history: CommitHistory
    decisions: Sequence[Decision] = ()


MakeStrategy = Callable[[StrategyGround], ContextStrategy]
"""Creates a strategy. It must be cheap and do no I/O; `retrieve` does the work."""


class StrategySelector(Protocol):
    def select(self, question: str, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the strategies to ask, out of `names`."""
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
        """Return each place of the fragments once, with all findings about it."""
        ...


class Scorer(Protocol):
    def rank(self, question: str, candidates: Sequence[Candidate], code: CodeSnapshot) -> Ranking: ...


class DetailDepthResolver(Protocol):
    def choices(self, ranking: Ranking, code: CodeSnapshot, count: CountTokens) -> Sequence[Choice]:
        """Return the possible depths of the best places; no definition is cut in half."""
        ...


class Packer(Protocol):
    def pack(self, choices: Sequence[Choice], tokens: int) -> Sequence[PackedFragment]:
        """Return at most one rendering of each choice, together within `tokens` and with the highest total
        value.
        """
        ...


class Orderer(Protocol):
    def order(self, fragments: Sequence[PackedFragment]) -> Sequence[PackedFragment]: ...


class Preamble(Protocol):
    def write(self, question: str, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        """Return the text before the fragments, within `tokens`."""
        ...


class Skeleton(Protocol):
    def draw(self, code: CodeSnapshot, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        """Return an outline of the repository, within `tokens` regardless of its size."""
        ...
