"""The context pipeline: finds the code that a model should see for a question.

    open the code → select strategies → run them in parallel → merge → rank → render → pack → order → fit

The pipeline always answers by its deadline and within its budget, with notes on failures. Every step that
could hang or raise runs on a thread that can be abandoned. Strategies and replaced parts run on the shared
executor, behind its breaker. The built-in steps have their own threads, so hung strategies cannot block the
answer.

If the built-in steps fail as well, the answer lists the files that the strategies found, by path alone. This
answer is built from memory: building it reads nothing, waits for nothing, and counts bytes as tokens, because
no text has more tokens than bytes.

A strategy is created on the thread that runs it, because creating it also runs foreign code. A strategy also
keeps the snapshot of the code open, because an abandoned strategy may still read it long after the answer.
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
"""The strategy that is asked only if there are decisions, and needs no code."""
_NO_CODE: Final = "there is no code to search"
_NO_WORD: Final = "the question contains no searchable words"
_ASSEMBLY: Final = (0.3, 5.0)

_ASSEMBLY_WITH_MODEL: Final = (0.6, 30.0)
"""The share of the time reserved for the steps after the strategies, and its maximum in seconds."""

_LAST: Final = 0.1
"""The share of that time reserved for an answer by path alone."""

_OTHERS: Final = 0.45
"""The share of the time for a replaced executor: slightly less than a part gets, so that it returns in time.
"""
_CLOSING_SECONDS: Final = 1.0
_LEAST_SECONDS: Final = 0.01

_MOST_FILES: Final = 50


@dataclass(frozen=True, slots=True)
class PipelineParts:
    """The parts of the pipeline.

    `executor` runs strategies and replaced parts, `steps` the built-in steps; they are separate, so that hung
    threads of one do not block the other. `notes` are added to every answer.
    """

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
    """Answers questions about code.

    Any number of threads may ask at once; it keeps no state between questions.
    """

    def __init__(self, parts: PipelineParts, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._clock = clock

    def ask(self, query: ContextQuery) -> ContextAnswer:
        """Return the answer by the deadline and within the budget, whatever goes wrong; its notes report
        problems.

        Raises `SourceMissing` if the directory or commit does not exist.
        """
        began = self._clock()
        notes = Notes(self._parts.notes)
        if query.is_shortened:
            read = f"{MOST_CHARACTERS:,} characters in total, from its start and its end,"
            notes.add(f"the question is long; only {read} were read")
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
            # Slightly less than the step has, so that it returns by itself with what is indexed by then.
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
        """Release the code on another thread, because closing may also hang."""
        begun: list[bool] = []

        def close(_: CancelSignal) -> None:
            begun.append(True)
            opened.held.release_hold()

        seconds = min(max(deadline.left, _LEAST_SECONDS), _CLOSING_SECONDS)
        run_step(self._parts.steps, "index.close", close, seconds=seconds)
        if not begun:  # guard: without a free thread, another one closes it
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
            with opened.held.held():  # guard: an abandoned assembly still reads the code
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
        notes.add(f"only paths are listed: assembling the answer {outcome.problem}")
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
            return _none_of(strategies, StrategyStatus.SATURATED, "no time was left to start")
        try:
            report = self._parts.executor.execute(
                strategies, request, deadline_seconds=seconds, cancelled=cancelled
            )
        except Closed as closed:
            return _none_of(strategies, StrategyStatus.CANCELLED, str(closed))
        return report.strategies


def _search_deadline(clock: Callable[[], float], query: ContextQuery, deadline: Deadline) -> Deadline:
    """Return the deadline of the search.

    Indexing may take additional time (`index_seconds`); the search after it has at most `deadline_seconds`.
    """
    return Deadline(clock, min(query.deadline_seconds, deadline.left))


def _askable(query: ContextQuery, opened: OpenedCode, names: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the reason why strategies are skipped, or an empty string, and the strategies to ask."""
    if _says_nothing(query.asked):  # guard: results without a search word would not relate to the question
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
    """Return an answer that lists files by path alone, from the ranking so far or else from the findings of
    the strategies.
    """
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
        if spent + tokens + 1 > task.budget:  # guard: within the budget for any tokenizer
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
    """A `ContextStrategy` under its registered name. Any thread may run it: it keeps no state."""

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
        # The executor takes what it needs from any iterable and drops the rest.
        return cast("Sequence[ContextFragment]", self._found(request, cancelled))

    def _found(self, request: ContextRequest, cancelled: CancelSignal) -> Iterator[ContextFragment]:
        with self._held.held() as code:  # guard: a straggler's code is not closed under it
            ground = StrategyGround(code, self._history, self._decisions)
            yield from self._make(ground).retrieve(request, cancelled)
