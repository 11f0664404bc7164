"""G10: the pipeline answers by its deadline and within its budget, whatever strategies, parts and index do.

The same checks run on a naive pipeline, which waits for every strategy and validates nothing, and catch it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.context import ContextAnswer, ContextRequest, StrategyReport, StrategyStatus
from cleveragents.context.pipeline.assembly import DefaultParts
from cleveragents.context.pipeline.checks import PARTS
from cleveragents.context.pipeline.pipeline import PipelineParts
from cleveragents.context.query import ContextQuery
from cleveragents.models.tokens import estimate_text
from tests.context_world import (
    LONG,
    PATHS,
    SECONDS,
    HostileIndex,
    World,
    answered,
    check_answer,
    finding,
    fragment,
    part_misdeeds,
    query,
    strategy_misdeeds,
    world,
)

STRATEGIES = sorted(strategy_misdeeds(World()))
MISDEEDS = sorted(part_misdeeds(World()))
BUDGETS = st.sampled_from([64, 100, 300, 8000])


# ── strategies ────────────────────────────────────────────────────────────────────────────────────────


def check_strategies(
    ask: Callable[..., Any], names: list[str], budget: int, patience: float = LONG
) -> ContextAnswer:
    with world() as made:
        every = strategy_misdeeds(made)
        asked = {f"{number} {name}": every[name] for number, name in enumerate(names)}
        answer = answered(lambda: ask(made, asked, query(budget_tokens=budget)), made, patience)
        check_answer(answer, list(asked), budget)
        return answer


def by_pipeline(made: World, strategies: Mapping[str, Any], asked: ContextQuery) -> ContextAnswer:
    return made.pipeline(strategies).ask(asked)


@given(st.lists(st.sampled_from(STRATEGIES), max_size=6), BUDGETS)
@settings(max_examples=60, deadline=None)
def test_the_answer_comes_and_reports_each_strategy_whatever_they_do(names: list[str], budget: int) -> None:
    check_strategies(by_pipeline, names, budget)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("raises", StrategyStatus.FAILED),
        ("exits", StrategyStatus.FAILED),
        ("cannot be made", StrategyStatus.FAILED),
        ("is nothing", StrategyStatus.FAILED),
        ("one huge", StrategyStatus.FAILED),
        ("hangs", StrategyStatus.LATE),
        ("hangs when made", StrategyStatus.LATE),
        ("is cancelled", StrategyStatus.CANCELLED),
        ("empty", StrategyStatus.EMPTY),
        ("finds", StrategyStatus.USED),
        ("endless", StrategyStatus.USED),
    ],
)
def test_the_answer_says_what_became_of_each(name: str, status: StrategyStatus) -> None:
    answer = check_strategies(by_pipeline, [name, "finds"], 8000)
    assert answer.strategies[0].status is status
    if status is not StrategyStatus.LATE:
        assert answer.files[0].path == PATHS[0]


def test_the_time_left_by_a_hung_strategy_is_used() -> None:
    """It takes most of the time, not all: the rest is enough for the full results of the others."""
    with world() as made:
        slow = {"slow": strategy_misdeeds(made)["hangs in the middle"], "words": finding(fragment())}
        answer = answered(lambda: made.pipeline(slow).ask(query()), made)
        assert [told.status for told in answer.strategies] == [StrategyStatus.LATE, StrategyStatus.USED]
        assert "return thing" in answer.text


def test_hung_strategies_that_hold_every_thread_do_not_keep_the_pipeline_from_answering() -> None:
    with world(max_workers=1, max_stragglers=0) as made:
        hanging = {"hangs": strategy_misdeeds(made)["hangs"]}
        answered(lambda: made.pipeline(hanging).ask(query()), made)
    with world(max_workers=1, max_stragglers=0) as made:
        made.pipeline({"hangs": strategy_misdeeds(made)["hangs"]}).ask(query())
        answer = answered(lambda: made.pipeline({"words": finding(fragment())}).ask(query()), made)
        assert [told.status for told in answer.strategies] == [StrategyStatus.SATURATED]
        assert "basket.py" in answer.skeleton


def test_a_breaker_reports_when_it_opens_and_closes() -> None:
    with world() as made:
        broken = made.pipeline({"words": strategy_misdeeds(made)["raises"]})
        told = [broken.ask(query()).strategies[0].status for _ in range(4)]
        assert told == [*[StrategyStatus.FAILED] * 3, StrategyStatus.BREAKER_OPEN]
        made.clock.advance(31)
        repaired = made.pipeline({"words": finding(fragment())})
        assert [repaired.ask(query()).strategies[0].status for _ in range(2)] == [StrategyStatus.USED] * 2


# ── replaced parts ────────────────────────────────────────────────────────────────────────────────────


def check_parts(misdeeds: Mapping[str, str], budget: int = 8000) -> ContextAnswer:
    with world() as made:
        every = part_misdeeds(made)
        loads = {part: every[name] for part, name in misdeeds.items()}
        pipeline = made.pipeline({"words": finding(fragment())}, loads=loads)
        answer = answered(lambda: pipeline.ask(query(budget_tokens=budget)), made)
        check_answer(answer, ["words"], budget)
        return answer


@pytest.mark.parametrize("misdeed", MISDEEDS)
@pytest.mark.parametrize("part", PARTS)
def test_a_misbehaving_part_is_replaced_by_the_built_in_one_and_noted(part: str, misdeed: str) -> None:
    answer = check_parts({part: misdeed})
    assert any(f"the configured {part} " in note for note in answer.notes)
    assert answer.strategies[0].status is StrategyStatus.USED
    assert [place.path for place in answer.files] == [PATHS[0]]
    assert "return thing" in answer.text


@given(st.dictionaries(st.sampled_from(PARTS), st.sampled_from(MISDEEDS), min_size=2), BUDGETS)
@settings(max_examples=40, deadline=None)
def test_the_answer_comes_whatever_parts_misbehave_together(misdeeds: dict[str, str], budget: int) -> None:
    check_parts(misdeeds, budget)


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────


def check_index(
    misdeed: str, strategies: Mapping[str, Any] | None = None
) -> tuple[ContextAnswer, HostileIndex]:
    with world() as made:
        index = HostileIndex(made, misdeed)
        pipeline = made.pipeline(strategies or {"words": finding(fragment())}, index=index)
        answer = answered(lambda: pipeline.ask(query()), made)
        check_answer(answer, list(strategies or ["words"]), 8000)
    return answer, index


@pytest.mark.parametrize("misdeed", HostileIndex.MISDEEDS)
def test_the_answer_comes_whatever_the_index_does(misdeed: str) -> None:
    answer, index = check_index(misdeed)
    assert index.closed == (0 if misdeed in ("open raises", "enter raises") else 1)
    if not misdeed.startswith("close"):
        assert answer.notes


@pytest.mark.parametrize(
    "misdeed", ["text raises", "text hangs", "text is nothing", "analyses raise", "analyses hang"]
)
def test_files_that_cannot_be_read_are_named(misdeed: str) -> None:
    answer, _ = check_index(misdeed)
    assert [place.path for place in answer.files] == [PATHS[0]]
    assert PATHS[0] in answer.text


@pytest.mark.parametrize("misdeed", ["open hangs", "enter hangs"])
def test_an_index_opened_too_late_is_closed_by_its_opener(misdeed: str) -> None:
    answer, index = check_index(misdeed)
    assert any("the code could not be opened" in note for note in answer.notes)
    assert index.closed == 1


def test_the_code_stays_open_until_a_straggler_is_done_with_it() -> None:
    with world() as made:
        index = HostileIndex(made, "nothing")
        seen: list[int] = []

        def make(ground: StrategyGround) -> Any:
            made.hang()
            seen.append(index.closed)
            return finding(fragment())(ground)

        made.pipeline({"slow": make}, index=index).ask(query())
        assert index.closed == 0
    assert (seen, index.closed) == ([0], 1)


def test_the_code_stays_open_while_an_abandoned_assembly_reads_it() -> None:
    with world() as made:
        index = HostileIndex(made, "text hangs")
        answer = made.pipeline({"words": finding(fragment())}, index=index).ask(query())
        assert any("only paths are listed" in note for note in answer.notes)
        assert index.closed == 0
    assert index.closed == 1


# ── other failures ────────────────────────────────────────────────────────────────────────────────────


def _garbage(text: str) -> Any:
    return "many"


def _failing(text: str) -> int:
    raise ValueError("no such token")


@pytest.mark.parametrize("count", [_garbage, _failing, lambda text: -1])
def test_a_misbehaving_tokenizer_costs_room_but_not_the_answer(count: Any) -> None:
    with world() as made:
        pipeline = made.pipeline({"words": finding(fragment())}, count=count)
        answer = answered(lambda: pipeline.ask(query(budget_tokens=400)), made)
    assert "return thing" in answer.text
    assert "the tokenizer failed; bytes were counted instead" in answer.notes
    assert len(answer.text.encode()) <= 400


def test_a_tokenizer_that_hangs_leaves_an_answer_by_paths() -> None:
    with world() as made:
        pipeline = made.pipeline({"words": finding(fragment())}, count=lambda text: made.hang() or 0)
        answer = answered(lambda: pipeline.ask(query()), made)
        check_answer(answer, ["words"], 8000)
        assert answer.text == f"### {PATHS[0]}"
        assert any("only paths are listed" in note for note in answer.notes)


class Broken:
    """Every built-in part, broken."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("a bug of ours")


@pytest.mark.parametrize(
    "part", ["scorer", "skeleton", "preamble", "depths", "deduplicator", "packer", "orderer"]
)
def test_a_bug_in_a_built_in_part_still_yields_an_answer(part: str) -> None:
    broken: Any = Broken()
    own = DefaultParts(**{part: (lambda room, question: broken) if part == "depths" else broken})
    with world() as made:
        answer = answered(lambda: made.pipeline({"words": finding(fragment())}, own=own).ask(query()), made)
        check_answer(answer, ["words"], 8000)
        assert PATHS[0] in answer.text
        assert any("a bug of ours" in note for note in answer.notes)


def test_a_closed_executor_is_reported() -> None:
    with world() as made:
        made.executor.close()
        answer = made.pipeline({"words": finding(fragment())}).ask(query())
        assert [told.status for told in answer.strategies] == [StrategyStatus.CANCELLED]
        made.steps.close()
        answer = made.pipeline({"words": finding(fragment())}).ask(query())
        check_answer(answer, ["words"], 8000)


class Signal:
    is_cancelled = True


def test_a_question_that_is_cancelled_is_answered_at_once_with_what_there_is() -> None:
    with world() as made:
        answer = made.pipeline({"words": finding(fragment())}).ask(query(cancelled=Signal()))
        check_answer(answer, ["words"], 8000)
        assert [told.status for told in answer.strategies] == [StrategyStatus.CANCELLED]


# ── a naive pipeline is caught ────────────────────────────────────────────────────────────────────────


class NaivePipeline:
    """Asks one strategy after another, waits for each, and puts all results into the answer."""

    def __init__(self, parts: PipelineParts) -> None:
        self._parts = parts

    def ask(self, asked: ContextQuery) -> ContextAnswer:
        reports = []
        with self._parts.index.open(asked.place) as code:
            ground = StrategyGround(code, self._parts.history)
            for name, make in self._parts.strategies.items():
                found = tuple(make(ground).retrieve(ContextRequest(asked.question), Signal()))
                reports.append(StrategyReport(name, StrategyStatus.USED, found))
        text = "\n".join(f"{one.path} {one.text}" for report in reports for one in report.fragments)
        return ContextAnswer((), (), tuple(reports), text, "", estimate_text(text), asked.budget_tokens, 0.0)


def naively(made: World, strategies: Mapping[str, Any], asked: ContextQuery) -> ContextAnswer:
    return NaivePipeline(made.parts(strategies)).ask(asked)


def test_the_naive_pipeline_answers_when_nothing_is_wrong() -> None:
    check_strategies(naively, ["finds"], 8000)


@pytest.mark.parametrize("name", ["raises", "exits", "hangs", "none", "many texts", "cannot be made"])
def test_the_same_checks_catch_a_pipeline_that_waits_and_believes(name: str) -> None:
    with pytest.raises(AssertionError):
        check_strategies(naively, [name], 100, patience=0.5 if name == "hangs" else LONG)


def test_time_is_counted_from_the_question_to_the_answer() -> None:
    with world() as made:

        def make(ground: StrategyGround) -> Any:
            made.clock.advance(SECONDS / 4)
            return finding(fragment())(ground)

        assert made.pipeline({"words": make}).ask(query()).seconds == SECONDS / 4
