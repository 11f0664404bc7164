"""From what strategies found to an answer: merge, rank, render, pack, order, and make it fit.

All of it runs on a thread that can be left behind, because our own parts read the code, and that may hang.
The assembly leaves its ranking where the pipeline finds it, so that an answer by paths alone is still to be
had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cleveragents.context.code_index import CodeSnapshot
from cleveragents.context.context_parts import (
    BudgetAllocator,
    CountTokens,
    Deduplicator,
    DetailDepthResolver,
    Orderer,
    Packer,
    Preamble,
    Scorer,
    Skeleton,
    StrategyExecutor,
    StrategySelector,
)
from cleveragents.context.model.context import ContextRequest, StrategyReport, StrategyStatus
from cleveragents.context.model.context_answer import (
    Choice,
    ContextAnswer,
    PackedFragment,
    Ranking,
    Shares,
)
from cleveragents.context.pipeline import checks as checks
from cleveragents.context.pipeline.allocator import FixedShares
from cleveragents.context.pipeline.components import ReplacedParts
from cleveragents.context.pipeline.deduplicator import MergedPlaces
from cleveragents.context.pipeline.depths import WholeDefinitions, paths_alone
from cleveragents.context.pipeline.fitting import Fitting, safe_count
from cleveragents.context.pipeline.found import believed, retold
from cleveragents.context.pipeline.orderer import BestFileFirst
from cleveragents.context.pipeline.packer import GreedyPacker
from cleveragents.context.pipeline.preamble import ShortPreamble
from cleveragents.context.pipeline.ranking import PlainScorer, plain_ranking
from cleveragents.context.pipeline.reranking import RERANK, Reranking, reordered
from cleveragents.context.pipeline.selector import EveryStrategy
from cleveragents.context.pipeline.skeleton import TreeSkeleton
from cleveragents.context.pipeline.steps import Deadline, attempted
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.errors import Closed
from cleveragents.models.ports import Model

__all__ = ["Assembly", "Notes", "OwnParts", "Task"]

T = TypeVar("T")


class Notes:
    """What went differently, each thing once. Any thread may add: one list, which is only appended to."""

    _MOST = 50
    _LONGEST = 500

    def __init__(self, standing: Sequence[str] = ()) -> None:
        self._said: list[str] = list(standing)

    def add(self, note: str) -> None:
        shown = note[: self._LONGEST]
        if shown not in self._said and len(self._said) < self._MOST:  # guard: a flood of notes is no answer
            self._said.append(shown)

    def all(self) -> tuple[str, ...]:
        return tuple(self._said)


@dataclass(frozen=True, slots=True)
class OwnParts:
    """Our own nine of the ten parts, used where nobody replaced them or where a replacement fails; the tenth
    is the executor. `depths` is made for the tokens that there is room for, and for the question."""

    selector: StrategySelector = field(default_factory=EveryStrategy)
    allocator: BudgetAllocator = field(default_factory=FixedShares)
    deduplicator: Deduplicator = field(default_factory=MergedPlaces)
    scorer: Scorer = field(default_factory=PlainScorer)
    depths: Callable[[int, str], DetailDepthResolver] = WholeDefinitions
    packer: Packer = field(default_factory=GreedyPacker)
    orderer: Orderer = field(default_factory=BestFileFirst)
    preamble: Preamble = field(default_factory=ShortPreamble)
    skeleton: Skeleton = field(default_factory=TreeSkeleton)


@dataclass(frozen=True, slots=True)
class Task:
    """What one assembly works on."""

    question: str
    budget: int
    shares: Shares
    code: CodeSnapshot
    paths: frozenset[str]
    reports: tuple[StrategyReport, ...]
    with_fragments: bool
    deadline: Deadline
    notes: Notes
    cancelled: CancelSignal | None = None


class Assembly:
    """Not thread-safe: run once, by one thread; another may read `ranking` and `strategies` at any time."""

    def __init__(
        self,
        task: Task,
        own: OwnParts,
        replaced: ReplacedParts,
        executor: StrategyExecutor,
        count: CountTokens,
        rerank: Callable[[], Model] | None,
    ) -> None:
        self.ranking: Ranking | None = None
        self.strategies = retold(task.reports)
        self._task = task
        self._own = own
        self._replaced = replaced
        self._executor = executor
        self._count = safe_count(count, task.notes.add)
        self._rerank = rerank

    def run(self) -> ContextAnswer:
        """The answer, within its budget."""
        ranking = self._ranked()
        self.ranking = ranking
        if self._rerank is not None:
            ranking = self.ranking = self._reranked(ranking, self._rerank)
        answer = ContextAnswer(
            files=ranking.files,
            fragments=(),
            strategies=self.strategies,
            preamble="",
            skeleton="",
            tokens=0,
            budget=self._task.budget,
            seconds=0.0,
        )
        if self._task.with_fragments:
            answer = self._filled(answer, ranking)
        return Fitting(self._task.budget, self._count).fitted(answer)

    # ── ranking ───────────────────────────────────────────────────────────────────────────────────

    def _ranked(self) -> Ranking:
        task, own = self._task, self._own
        found = believed(task.reports, task.paths, task.notes.add)
        candidates = self._ask(
            "deduplicator",
            lambda part: checks.checked_candidates(part.merge(found), found),
            lambda: tuple(own.deduplicator.merge(found)),
        )
        code = task.code
        known = task.paths | {candidate.path for candidate in candidates}
        return self._ask(
            "scorer",
            lambda part: checks.checked_ranking(part.rank(task.question, candidates, code), known),
            lambda: own.scorer.rank(task.question, candidates, code),
            lambda: plain_ranking(candidates),
        )

    def _reranked(self, ranking: Ranking, open_model: Callable[[], Model]) -> Ranking:
        task = self._task
        seconds = task.deadline.left / 2
        strategy = Reranking(open_model, ranking, task.code)
        if seconds <= 0:
            return ranking
        try:
            report = self._executor.execute(
                [strategy],
                ContextRequest(task.question),
                deadline_seconds=seconds,
                cancelled=task.cancelled,
            )
        except Closed:
            return ranking
        told = report.strategies[0]
        self.strategies = (*self.strategies, told)
        if told.status is not StrategyStatus.USED:  # guard: whatever went wrong, the ranking stays
            if told.status is not StrategyStatus.EMPTY:
                task.notes.add(f"{RERANK} had no answer ({told.status.value}); the ranking is as it was")
            return ranking
        return reordered(ranking, told.fragments)

    # ── the text ──────────────────────────────────────────────────────────────────────────────────

    def _filled(self, answer: ContextAnswer, ranking: Ranking) -> ContextAnswer:
        shares = self._task.shares
        preamble = self._preamble(ranking, shares.preamble)
        skeleton = self._skeleton(ranking, shares.skeleton)
        # What the others left of their shares is the fragments'; two line breaks join the three.
        spent = self._count(preamble) + self._count(skeleton) + 2
        given = shares.preamble + shares.skeleton + shares.fragments
        room = max(0, min(self._task.budget, given) - spent)
        fragments = self._fragments(ranking, room)
        return replace(answer, preamble=preamble, skeleton=skeleton, fragments=fragments)

    def _preamble(self, ranking: Ranking, tokens: int) -> str:
        question, count = self._task.question, self._count
        return self._ask(
            "preamble",
            lambda part: checks.checked_text(part.write(question, ranking, tokens, count), tokens, count),
            lambda: self._own.preamble.write(question, ranking, tokens, count),
            str,
        )

    def _skeleton(self, ranking: Ranking, tokens: int) -> str:
        code, count = self._task.code, self._count
        return self._ask(
            "skeleton",
            lambda part: checks.checked_text(part.draw(code, ranking, tokens, count), tokens, count),
            lambda: self._own.skeleton.draw(code, ranking, tokens, count),
            str,
        )

    def _fragments(self, ranking: Ranking, room: int) -> tuple[PackedFragment, ...]:
        choices = self._choices(ranking, room)
        packed: Sequence[PackedFragment] = self._ask(
            "packer",
            lambda part: checks.checked_packing(part.pack(choices, room), choices, room),
            lambda: tuple(self._own.packer.pack(choices, room)),
        )
        return self._ask(
            "orderer",
            lambda part: checks.checked_order(part.order(packed), packed),
            lambda: tuple(self._own.orderer.order(packed)),
        )

    def _choices(self, ranking: Ranking, room: int) -> Sequence[Choice]:
        code, count = self._task.code, self._count
        return self._ask(
            "depths",
            lambda part: checks.checked_choices(part.choices(ranking, code, count), ranking, count),
            lambda: tuple(self._own.depths(room, self._task.question).choices(ranking, code, count)),
            lambda: tuple(paths_alone(ranking, count)),
        )

    def _ask(
        self,
        part: str,
        use: Callable[[Any], T],
        own: Callable[[], T],
        last: Callable[[], T] | None = None,
    ) -> T:
        """What the replaced part gives, or else our own; and if that fails, what needs nothing but memory."""
        task = self._task
        given = self._replaced.ask(
            part, use, deadline=task.deadline, note=task.notes.add, cancelled=task.cancelled
        )
        if given is not None:
            return given
        if last is None:
            return own()
        outcome = attempted(own)
        if outcome.given:
            return outcome.given[0]
        task.notes.add(f"our own {part} {outcome.problem}; the answer has less than it could")
        return last()
