"""Assembly of an answer from the findings of strategies: merge, rank, render, pack, order, and fit.

The assembly runs on a thread that can be abandoned, because the built-in parts read code, and reading may
hang. The ranking is available before the answer, so that the pipeline can fall back to an answer of paths
alone.

This module also holds the simple built-in parts: the division of the token budget, the validation of findings
(their origin, existence and legibility), the order of fragments (best file first, and best fragment first
within a file), the preamble, and the selection of strategies (all that are not disabled).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

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
from cleveragents.context.model.context import (
    Choice,
    ContextAnswer,
    ContextFragment,
    ContextRequest,
    Depth,
    PackedFragment,
    Ranking,
    Shares,
    StrategyReport,
    StrategyStatus,
)
from cleveragents.context.pipeline import checks as checks
from cleveragents.context.pipeline.checks import CustomParts
from cleveragents.context.pipeline.depths import WholeDefinitions, paths_alone
from cleveragents.context.pipeline.packer import AnswerFitter, GreedyPacker, safe_count
from cleveragents.context.pipeline.ranking import (
    RERANK,
    MergedPlaces,
    PlainScorer,
    RerankStrategy,
    plain_ranking,
    reordered,
)
from cleveragents.context.pipeline.renderings import printable
from cleveragents.context.pipeline.skeleton import TreeSkeleton
from cleveragents.context.pipeline.steps import Deadline, attempted
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.errors import Closed
from cleveragents.core.text.redaction import redact_content_text, redact_text
from cleveragents.models.ports import Model

__all__ = [
    "UNRELATED",
    "AllStrategies",
    "Assembly",
    "AssemblyInput",
    "BestFileFirst",
    "DefaultParts",
    "FixedShares",
    "Notes",
    "ShortPreamble",
    "reports_without_text",
    "valid_fragments",
]


T = TypeVar("T")

_PREAMBLE: Final = (20, 150)

_SKELETON: Final = (8, 800)
"""Each pair: the divisor of the budget, and the maximum number of tokens. The fragments get the rest."""

_LONGEST_LABEL: Final = 500
_LONGEST_TEXT: Final = 20_000
_MOST_TEXTS: Final = 100

_WHAT: Final = (
    "Context for the question, most relevant file first; other files appear as names, signatures or outlines."
)
_FILES: Final = (5, 3, 1)
UNRELATED: Final = "nothing in this repository seems related to the question; these are the closest matches"


class Notes:
    """Notes on failures, each once. Any thread may add a note, because the list is only appended to."""

    _MOST = 50
    _LONGEST = 500

    def __init__(self, standing: Sequence[str] = ()) -> None:
        self._said: list[str] = list(standing)

    def add(self, note: str) -> None:
        shown = note[: self._LONGEST]
        if shown not in self._said and len(self._said) < self._MOST:  # guard: bounds the notes
            self._said.append(shown)

    def all(self) -> tuple[str, ...]:
        return tuple(self._said)


class FixedShares:
    """A `BudgetAllocator` that gives the skeleton an eighth of the budget, at most a page, and most of the
    rest to code. Immutable.
    """

    def allocate(self, budget: int) -> Shares:
        preamble = _share(budget, *_PREAMBLE)
        skeleton = _share(budget, *_SKELETON)
        return Shares(preamble, skeleton, budget - preamble - skeleton)


class BestFileFirst:
    """An `Orderer` that groups fragments by file: first the file as a whole, then its lines, best first.

    Files are ordered by their best fragment. The bare path of a file is dropped if more of the file is shown,
    because the headings of those fragments contain the path. Immutable.
    """

    def order(self, fragments: Sequence[PackedFragment]) -> Sequence[PackedFragment]:
        best: dict[str, float] = {}
        for fragment in fragments:
            place = fragment.place
            best[place.path] = max(best.get(place.path, 0.0), place.score)

        def rank_of(fragment: PackedFragment) -> tuple[float, str, bool, float, int, int]:
            place = fragment.place
            span = place.span
            first, last = (span.first, -span.last) if span else (0, 0)
            return (-best[place.path], place.path, span is not None, -place.score, first, last)

        more = {one.place.path for one in fragments if one.rendering.depth is not Depth.PATH}
        bare = [one for one in fragments if one.rendering.depth is Depth.PATH and one.place.path in more]
        return sorted((one for one in fragments if one not in bare), key=rank_of)


class ShortPreamble:
    """A `Preamble` with as many whole sentences as fit. Immutable."""

    def write(self, question: str, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        if not ranking.files and not ranking.places:
            return _fitting(["Nothing was found for the question."], tokens, count)
        paths = [printable(place.path) for place in ranking.files]
        texts = [f"{_WHAT} Most likely: {', '.join(paths[:many])}." for many in _FILES] if paths else []
        named = [
            f"{printable(one.name)} ({printable(one.path)}:{one.span.first})" for one in ranking.definitions
        ]
        best = [f"{_WHAT} Most likely: {', '.join(named[:many])}." for many in _FILES] if named else []
        return _fitting([*best, *texts, _WHAT], tokens, count)


class AllStrategies:
    """A `StrategySelector` that asks every strategy that is not disabled.

    A strategy that finds nothing costs little, so none is skipped. Immutable.
    """

    def __init__(self, switched_off: Collection[str] = ()) -> None:
        self._switched_off = frozenset(switched_off)

    def select(self, question: str, names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if name not in self._switched_off]


@dataclass(frozen=True, slots=True)
class DefaultParts:
    """The built-in versions of all parts except the executor. Each is used if it is not replaced, or if its
    replacement fails. `depths` is created for the available tokens and the question.
    """

    selector: StrategySelector = field(default_factory=AllStrategies)
    allocator: BudgetAllocator = field(default_factory=FixedShares)
    deduplicator: Deduplicator = field(default_factory=MergedPlaces)
    scorer: Scorer = field(default_factory=PlainScorer)
    depths: Callable[[int, str], DetailDepthResolver] = WholeDefinitions
    packer: Packer = field(default_factory=GreedyPacker)
    orderer: Orderer = field(default_factory=BestFileFirst)
    preamble: Preamble = field(default_factory=ShortPreamble)
    skeleton: Skeleton = field(default_factory=TreeSkeleton)


@dataclass(frozen=True, slots=True)
class AssemblyInput:
    """The input of one assembly."""

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
    """One assembly. Not thread-safe: run once, by one thread; another may read `ranking` and `strategies` at
    any time.
    """

    def __init__(
        self,
        task: AssemblyInput,
        own: DefaultParts,
        replaced: CustomParts,
        executor: StrategyExecutor,
        count: CountTokens,
        rerank: Callable[[], Model] | None,
    ) -> None:
        self.ranking: Ranking | None = None
        self.strategies = reports_without_text(task.reports)
        self._task = task
        self._own = own
        self._replaced = replaced
        self._executor = executor
        self._count = safe_count(count, task.notes.add)
        self._rerank = rerank

    def run(self) -> ContextAnswer:
        """Return the answer within its budget."""
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
            definitions=ranking.definitions,
        )
        if not ranking.is_related:
            self._task.notes.add(UNRELATED)
        if self._task.with_fragments:
            answer = self._filled(answer, ranking)
        return AnswerFitter(self._task.budget, self._count).fitted(answer)

    # ── ranking ───────────────────────────────────────────────────────────────────────────────────

    def _ranked(self) -> Ranking:
        task, own = self._task, self._own
        found = valid_fragments(task.reports, task.paths, task.notes.add)
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
        strategy = RerankStrategy(open_model, ranking, task.code)
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
        if told.status is not StrategyStatus.USED:  # guard: the ranking stays if reranking fails
            if told.status is not StrategyStatus.EMPTY:
                task.notes.add(f"{RERANK} gave no answer ({told.status.value}); the ranking is unchanged")
            return ranking
        return reordered(ranking, told.fragments)

    # ── the text ──────────────────────────────────────────────────────────────────────────────────

    def _filled(self, answer: ContextAnswer, ranking: Ranking) -> ContextAnswer:
        shares = self._task.shares
        preamble = self._preamble(ranking, shares.preamble)
        skeleton = self._skeleton(ranking, shares.skeleton)
        # The fragments get what the other parts did not use; two line breaks join the three parts.
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
        """Return the result of the part. The replacement is asked first, then the built-in version (`own`),
        then `last`, which only uses data in memory.
        """
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
        task.notes.add(f"the built-in {part} {outcome.problem}; the answer is incomplete")
        return last()


def _share(budget: int, one_in: int, most: int) -> int:
    return max(0, min(budget // one_in, most))


def valid_fragments(
    reports: Iterable[StrategyReport], paths: Collection[str], note: Callable[[str], None]
) -> list[ContextFragment]:
    """Return the fragments that name an existing file or have their own text, each attributed to the strategy
    that found it.
    """
    kept: list[ContextFragment] = []
    for report in reports:
        missing, texts = 0, 0
        for fragment in report.fragments:
            if fragment.path in paths:
                kept.append(_of(fragment, report.name, fragment.path, ""))
            elif not fragment.text.strip():
                missing += 1
            elif len(fragment.text) > _LONGEST_TEXT or texts == _MOST_TEXTS:
                note(f"{report.name}: some results were left out, because they are too long or too many")
            else:
                texts += 1
                label = printable(fragment.path[:_LONGEST_LABEL]) or report.name
                text = redact_content_text(fragment.text)
                kept.append(_of(replace(fragment, span=None), report.name, label, text))
        if missing:
            note(f"{report.name} returned {missing} places that do not exist")
    return kept


def reports_without_text(reports: Sequence[StrategyReport]) -> tuple[StrategyReport, ...]:
    """Return the reports for the answer, without the texts of fragments; selected texts are in the answer
    itself.
    """
    return tuple(
        replace(
            report,
            error=None if report.error is None else printable(redact_text(report.error)),
            fragments=tuple(_of(one, report.name, one.path, "") for one in report.fragments),
        )
        for report in reports
    )


def _of(fragment: ContextFragment, strategy: str, path: str, text: str) -> ContextFragment:
    if (fragment.strategy, fragment.path, fragment.text) == (strategy, path, text):
        return fragment
    return replace(fragment, strategy=strategy, path=path, text=text)


def _fitting(texts: list[str], tokens: int, count: CountTokens) -> str:
    return next((text for text in texts if count(text) <= tokens), "")
