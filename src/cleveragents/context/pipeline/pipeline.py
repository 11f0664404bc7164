"""The context pipeline: from a question about a repository to what a model should see of it.

    open the code → select strategies → run them at once → merge → rank → render → pack → order → fit

It always answers, by its deadline and within its budget, and says what went wrong: every step that could
hang or raise runs on a thread that can be left behind. Strategies and replaced parts run on the executor
that is shared, behind its breaker; our own steps have threads of their own, so that a crew full of hung
strategies does not keep us from answering. When even our own steps fail, the answer is what the strategies
found, by path alone, put together here from what is in memory.

An answer from nothing but what is in memory: which files the strategies named, by path alone.

It is given when putting a better one together failed or took too long; so it reads nothing, waits for
nothing, and counts tokens by bytes, which no tokenizer exceeds.

A strategy that is made when it is run, on the thread that runs it, and holds the code while it looks.

Making one is foreign code too; and one that was left behind at its deadline may still be reading when the
answer is long gone, so the code stays open until it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from cleveragents.context.code_index import CodeIndex
from cleveragents.context.context_parts import (
    CommitHistory,
    CountTokens,
    MakeStrategy,
    StrategyExecutor,
    StrategyGround,
)
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.model.context import (
    ContextAnswer,
    ContextFragment,
    ContextRequest,
    Depth,
    PackedFragment,
    Ranking,
    Rendering,
    Shares,
    StrategyReport,
    StrategyStatus,
)
from cleveragents.context.model.question import read_question
from cleveragents.context.pipeline import checks as checks
from cleveragents.context.pipeline.assembly import Assembly, AssemblyInput, DefaultParts, Notes
from cleveragents.context.pipeline.checks import CustomParts
from cleveragents.context.pipeline.packer import byte_bound
from cleveragents.context.pipeline.ranking import MergedPlaces, plain_ranking
from cleveragents.context.pipeline.renderings import ShownCode, printable
from cleveragents.context.pipeline.snapshot_opener import (
    HeldSnapshot,
    OpenedCode,
    PendingSnapshot,
    nothing_opened,
)
from cleveragents.context.pipeline.steps import Deadline, run_step
from cleveragents.context.query import MOST_CHARACTERS, ContextQuery
from cleveragents.context.strategy import CancelSignal, ContextStrategy
from cleveragents.core.decision import Decision
from cleveragents.core.errors import Closed
from cleveragents.models.ports import Model

__all__ = ["ContextPipeline", "NamedStrategy", "PipelineParts", "bare_answer"]


_NEEDS_DECISIONS: Final = "decisions"
"""The strategy that is asked when there are some, and needs no code."""
_NO_CODE: Final = "there is no code to look at"
_NO_WORD: Final = "there is no word in the question to look for"
_ASSEMBLY: Final = (0.3, 5.0)

_ASSEMBLY_WITH_MODEL: Final = (0.6, 30.0)
"""Which part of the time is kept for what comes after the strategies, and the most seconds of it."""

_LAST: Final = 0.1
"""Which part of that is kept for an answer by path alone."""

_OTHERS: Final = 0.45
"""Which part of the time another executor has: a little less than any part has, so that it is in time."""
_CLOSING_SECONDS: Final = 1.0
_LEAST_SECONDS: Final = 0.01

_MOST_FILES: Final = 50


@dataclass(frozen=True, slots=True)
class PipelineParts:
    """What the pipeline is made of. `executor` runs strategies and replaced parts, `steps` our own steps;
    they are two, so that neither's hung threads stand in the other's way. `notes` are said with every
    answer."""

    index: CodeIndex
    history: CommitHistory
    strategies: Mapping[str, MakeStrategy]
    executor: StrategyExecutor
    steps: StrategyExecutor
    replaced: CustomParts
    count: CountTokens
    own: DefaultParts = field(default_factory=DefaultParts)
    rerank: Callable[[], Model] | None = None
    notes: tuple[str, ...] = ()


class ContextPipeline:
    """Answers questions about code. Any number of threads may ask at once; it keeps nothing between two."""

    def __init__(self, parts: PipelineParts, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._clock = clock

    def ask(self, query: ContextQuery) -> ContextAnswer:
        """The answer, by the deadline and within the budget, whatever went wrong; its notes say what did.

        `SourceMissing`: there is no such directory or commit.
        """
        began = self._clock()
        notes = Notes(self._parts.notes)
        if query.is_shortened:
            read = f"{MOST_CHARACTERS:,} characters of it, its beginning and its end, were read"
            notes.add(f"the question is long; {read}")
        deadline = Deadline(self._clock, query.deadline_seconds)
        if query.index_seconds is not None:
            deadline = deadline.extended(query.index_seconds)
        opened = self._open(query, deadline, notes) or nothing_opened(query.place)
        try:
            answer = self._answer(query, opened, _search_deadline(self._clock, query, deadline), notes)
        finally:
            self._close(opened, deadline)
        return replace(answer, notes=notes.all(), seconds=self._clock() - began)

    # ── the code ──────────────────────────────────────────────────────────────────────────────────

    def _open(self, query: ContextQuery, deadline: Deadline, notes: Notes) -> OpenedCode | None:
        opening = PendingSnapshot(self._parts.index, query.place, query.progress, clock=self._clock)
        allowed = query.index_seconds or query.deadline_seconds / 2
        seconds = min(allowed, deadline.left)
        outcome = run_step(
            self._parts.steps,
            "index",
            # A little less than it has: so it comes back by itself with what is indexed by then.
            lambda cancelled: opening.open(seconds * 0.8, cancelled),
            seconds=seconds,
            cancelled=query.cancelled,
        )
        opened = opening.take()
        missing = outcome.given[0] if outcome.given else None
        if missing is not None:
            raise missing
        if opened is None:
            notes.add(f"the code could not be opened: the index {outcome.problem}")
        else:
            for note in opened.notes:
                notes.add(note)
        return opened

    def _close(self, opened: OpenedCode, deadline: Deadline) -> None:
        """Lets go of the code on another thread, because closing may hang as well."""
        begun: list[bool] = []

        def close(_: CancelSignal) -> None:
            begun.append(True)
            opened.held.release_hold()

        seconds = min(max(deadline.left, _LEAST_SECONDS), _CLOSING_SECONDS)
        run_step(self._parts.steps, "index.close", close, seconds=seconds)
        if not begun:  # guard: with no thread free there, it is closed all the same
            threading.Thread(target=opened.held.release_hold, name="context-close", daemon=True).start()

    # ── the answer ────────────────────────────────────────────────────────────────────────────────

    def _answer(
        self, query: ContextQuery, opened: OpenedCode, deadline: Deadline, notes: Notes
    ) -> ContextAnswer:
        parts = self._parts
        shares = self._shares(query, deadline, notes)
        reports = self._searched(query, opened, deadline, notes)
        task = AssemblyInput(
            question=query.asked,
            budget=query.budget_tokens,
            shares=shares,
            code=ShownCode(opened.code, tuple(opened.files.values()), notes.add),
            paths=frozenset(opened.files),
            reports=reports,
            with_fragments=query.fragments,
            deadline=deadline,
            notes=notes,
            cancelled=query.cancelled,
        )
        assembly = Assembly(task, parts.own, parts.replaced, parts.executor, parts.count, parts.rerank)

        def assemble(_: CancelSignal) -> ContextAnswer:
            with opened.held.held():  # guard: left behind, it still reads
                return assembly.run()

        outcome = run_step(
            parts.steps,
            "assembly",
            assemble,
            seconds=deadline.left * (1 - _LAST),
            cancelled=query.cancelled,
        )
        if outcome.given:
            return outcome.given[0]
        notes.add(f"only paths are named, because putting the answer together {outcome.problem}")
        return bare_answer(task, assembly.strategies, assembly.ranking)

    def _shares(self, query: ContextQuery, deadline: Deadline, notes: Notes) -> Shares:
        budget = query.budget_tokens
        given = self._parts.replaced.ask(
            "allocator",
            lambda part: checks.checked_shares(part.allocate(budget), budget),
            deadline=deadline,
            note=notes.add,
            cancelled=query.cancelled,
        )
        return given or self._parts.own.allocator.allocate(budget)

    # ── the strategies ────────────────────────────────────────────────────────────────────────────

    def _searched(
        self, query: ContextQuery, opened: OpenedCode, deadline: Deadline, notes: Notes
    ) -> tuple[StrategyReport, ...]:
        parts = self._parts
        names = self._selected(query, deadline, notes)
        problem, asked = _askable(query, opened, names)
        if problem == _NO_WORD:
            notes.add(problem)
        decisions = tuple(query.decisions)
        strategies = [
            NamedStrategy(name, parts.strategies[name], opened.held, parts.history, decisions)
            for name in asked
        ]
        told = {one.name: one for one in self._run(query, strategies, deadline, notes)}
        return tuple(
            told.get(name) or StrategyReport(name, StrategyStatus.CANCELLED, error=problem) for name in names
        )

    def _run(
        self, query: ContextQuery, strategies: Sequence[ContextStrategy], deadline: Deadline, notes: Notes
    ) -> tuple[StrategyReport, ...]:
        if not strategies:
            return ()
        parts = self._parts
        names = [strategy.name for strategy in strategies]
        request = ContextRequest(query.asked, str(query.place.root))
        given = parts.replaced.ask(
            "executor",
            lambda part: checks.checked_report(
                part.execute(
                    strategies, request, deadline_seconds=deadline.left * _OTHERS, cancelled=query.cancelled
                ),
                names,
            ),
            deadline=deadline,
            note=notes.add,
            cancelled=query.cancelled,
        )
        if given is not None:
            return given.strategies
        share, most = _ASSEMBLY_WITH_MODEL if parts.rerank else _ASSEMBLY
        kept = min(deadline.left * share, most)
        return self._executed(strategies, request, deadline.left - kept, query.cancelled)

    def _selected(self, query: ContextQuery, deadline: Deadline, notes: Notes) -> Sequence[str]:
        names = [name for name in self._parts.strategies if name != _NEEDS_DECISIONS or query.decisions]
        question = query.asked
        given = self._parts.replaced.ask(
            "selector",
            lambda part: checks.checked_names(part.select(question, names), names),
            deadline=deadline,
            note=notes.add,
            cancelled=query.cancelled,
        )
        return self._parts.own.selector.select(question, names) if given is None else given

    def _executed(
        self,
        strategies: Sequence[ContextStrategy],
        request: ContextRequest,
        seconds: float,
        cancelled: CancelSignal | None,
    ) -> tuple[StrategyReport, ...]:
        if seconds <= 0:
            return _none_of(strategies, StrategyStatus.SATURATED, "there was no time left to begin")
        try:
            report = self._parts.executor.execute(
                strategies, request, deadline_seconds=seconds, cancelled=cancelled
            )
        except Closed as closed:
            return _none_of(strategies, StrategyStatus.CANCELLED, str(closed))
        return report.strategies


def _search_deadline(clock: Callable[[], float], query: ContextQuery, deadline: Deadline) -> Deadline:
    """Indexing may have taken time of its own; the rest has the deadline that was asked for."""
    return Deadline(clock, min(query.deadline_seconds, deadline.left))


def _askable(query: ContextQuery, opened: OpenedCode, names: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Which strategies are asked, and why the others are not."""
    if _says_nothing(query.asked):  # guard: what is found without a word says nothing of the question
        return _NO_WORD, ()
    if not opened.is_code:  # guard: each would fail, and its breaker serves every repository
        return _NO_CODE, [name for name in names if name == _NEEDS_DECISIONS]
    return "", names


def _says_nothing(text: str) -> bool:
    question = read_question(text)
    return not question.paths and not question.frames and not terms_of(question.text)


def _none_of(
    strategies: Sequence[ContextStrategy], status: StrategyStatus, error: str
) -> tuple[StrategyReport, ...]:
    return tuple(StrategyReport(strategy.name, status, error=error) for strategy in strategies)


def bare_answer(
    task: AssemblyInput, strategies: tuple[StrategyReport, ...], ranking: Ranking | None
) -> ContextAnswer:
    """Of the ranking as far as it got, or else of one by what the strategies said."""
    if ranking is None:
        named = [
            fragment for report in strategies for fragment in report.fragments if fragment.path in task.paths
        ]
        ranking = plain_ranking(MergedPlaces().merge(named))
    fragments: list[PackedFragment] = []
    spent = 0
    for place in ranking.files[:_MOST_FILES] if task.with_fragments else ():
        text = f"### {printable(place.path)}"
        tokens = byte_bound(text)
        if spent + tokens + 1 > task.budget:  # guard: within the budget whoever counts
            break
        spent += tokens + 1
        fragments.append(PackedFragment(place, Rendering(Depth.PATH, text, tokens, place.score)))
    return ContextAnswer(
        files=ranking.files,
        fragments=tuple(fragments),
        strategies=strategies,
        preamble="",
        skeleton="",
        tokens=spent,
        budget=task.budget,
        seconds=0.0,
    )


class NamedStrategy:
    """`ContextStrategy` by the name under which it is offered. Any thread may run it: it keeps nothing."""

    def __init__(
        self,
        name: str,
        make: MakeStrategy,
        held: HeldSnapshot,
        history: CommitHistory,
        decisions: Sequence[Decision],
    ) -> None:
        self.name = name
        self._make = make
        self._held = held
        self._history = history
        self._decisions = decisions

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        # The executor takes as much as it wants of any iterable, and drops it afterwards.
        return cast("Sequence[ContextFragment]", self._found(request, cancelled))

    def _found(self, request: ContextRequest, cancelled: CancelSignal) -> Iterator[ContextFragment]:
        with self._held.held() as code:  # guard: a straggler's code is not closed under it
            ground = StrategyGround(code, self._history, self._decisions)
            yield from self._make(ground).retrieve(request, cancelled)
