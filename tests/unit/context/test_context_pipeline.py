"""The context pipeline in the normal case, and with invalid questions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.model.code import Field, LineSpan
from cleveragents.context.model.context import Depth, Finding, Ranking, Shares, StrategyStatus
from cleveragents.context.pipeline.assembly import (
    AllStrategies,
    BestFileFirst,
    DefaultParts,
    FixedShares,
    ShortPreamble,
)
from cleveragents.context.pipeline.checks import PARTS
from cleveragents.context.pipeline.depths import WholeDefinitions
from cleveragents.context.pipeline.packer import GreedyPacker
from cleveragents.context.pipeline.ranking import MergedPlaces, PlainScorer
from cleveragents.context.pipeline.skeleton import TreeSkeleton
from cleveragents.context.query import MOST_CHARACTERS, ContextQuery
from cleveragents.core.decision import Decision, DecisionState, NewDecision
from cleveragents.core.errors import QuestionRefused, SourceMissing
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import Model
from cleveragents.models.tokens import estimate_text
from cleveragents.testing.code_index import FakeCodeIndex
from tests.context_world import (
    ROOT,
    SECONDS,
    TEXTS,
    Found,
    HostileIndex,
    World,
    answered,
    finding,
    fragment,
    query,
    world,
)

BOTH = {
    "words": finding(fragment("src/basket.py", 2.0, LineSpan(2, 3)), fragment("src/pay.py", 1.0)),
    "names": finding(fragment("src/basket.py", 7.0, strategy="names", signal="exact")),
}


def ask(strategies: Any = None, *, parts: dict[str, Any] | None = None, **options: Any) -> Any:
    with world() as made:
        return made.pipeline(BOTH if strategies is None else strategies, **(parts or {})).ask(
            query(**options)
        )


# ── the content of an answer ──────────────────────────────────────────────────────────────────────────


def test_an_answer_has_ranked_files_fragments_with_their_findings_and_a_report_of_each_strategy() -> None:
    answer = ask()
    assert [place.path for place in answer.files] == ["src/basket.py", "src/pay.py"]
    shown = {one.place.path: one for one in answer.fragments}
    assert {finding.strategy for finding in shown["src/basket.py"].place.findings} == {"words", "names"}
    assert Finding("names", "exact", 7.0) in shown["src/basket.py"].place.findings
    assert shown["src/basket.py"].rendering.depth is Depth.FULL
    assert [(told.name, told.status, len(told.fragments)) for told in answer.strategies] == [
        ("words", StrategyStatus.USED, 2),
        ("names", StrategyStatus.USED, 1),
    ]
    assert answer.notes == ()


def test_the_text_has_preamble_skeleton_and_the_best_file_first_and_is_counted_as_it_is() -> None:
    answer = ask()
    assert answer.text.startswith(answer.preamble)
    assert "pay.py" in answer.skeleton
    assert answer.text.index("def add") < answer.text.index("def pay")
    assert answer.tokens == estimate_text(answer.text)


@pytest.mark.parametrize("budget", [64, 90, 128, 250, 1000])
def test_a_smaller_budget_gives_less_depth_and_is_never_exceeded(budget: int) -> None:
    answer = ask(budget_tokens=budget)
    assert estimate_text(answer.text) == answer.tokens <= budget
    assert [place.path for place in answer.files] == ["src/basket.py", "src/pay.py"]
    assert "basket.py" in answer.text
    assert ("return card" in answer.text) == (budget >= 90)


def test_without_fragments_files_are_ranked_and_no_file_is_read() -> None:
    answer = ask(fragments=False)
    assert (answer.text, answer.tokens, len(answer.files)) == ("", 0, 2)
    with world() as made:
        unread = made.pipeline(BOTH, index=HostileIndex(made, "text raises")).ask(query(fragments=False))
    assert unread.notes == ()


def test_without_findings_the_answer_says_so_and_draws_the_repository() -> None:
    answer = ask({"words": finding()})
    assert answer.files == ()
    assert "Nothing was found" in answer.preamble
    assert "basket.py" in answer.skeleton
    assert [told.status for told in answer.strategies] == [StrategyStatus.EMPTY]


def test_fragments_without_a_file_show_their_text_and_missing_files_are_noted() -> None:
    note = fragment("commit abc", text="Pay by card only.")
    answer = ask({"words": finding(note, fragment("gone.py"), fragment("also/gone.py"))})
    assert "### commit abc\nPay by card only." in answer.text
    assert "words returned 2 places that do not exist" in answer.notes
    assert answer.strategies[0].fragments[0].text == ""


def test_texts_that_are_too_long_or_too_many_are_left_out_and_noted() -> None:
    long = fragment("commit 1", text="x " * 20_000)
    many = [fragment(f"commit {n}", text="short") for n in range(120)]
    for found in ([long], many):
        answer = ask({"words": finding(*found, fragment("", text="no name"))})
        assert "words: some results were left out, because they are too long or too many" in answer.notes
    assert "### words\nno name" in ask({"words": finding(fragment("", text="no name"))}).text


def test_a_finding_belongs_to_the_strategy_that_found_it() -> None:
    answer = ask({"words": finding(fragment(strategy="names"))})
    assert {one.strategy for one in answer.files[0].findings} == {"words"}


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_no_secret_is_in_the_answer_wherever_it_stood() -> None:
    index = FakeCodeIndex({**TEXTS, "src/pay.py": f"TOKEN = '{SECRET}'\n"})

    def fail() -> Any:
        raise RuntimeError(f"https://user:{SECRET}@host refused")

    strategies = {
        "words": finding(fragment("src/pay.py"), fragment("commit", text=f"uses {SECRET}")),
        "broken": lambda ground: Found("broken", fail),
    }

    class Preamble:
        def write(self, *_: Any) -> str:
            return f"see {SECRET}"

    answer = ask(strategies, parts={"index": index, "loads": {"preamble": Preamble}})
    assert "TOKEN = " in answer.text
    assert "see " in answer.text
    assert SECRET not in repr(answer)


# ── the question ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wrong",
    [
        {"question": ""},
        {"question": " \n\t"},
        {"question": " " * 100_000 + "late" + " " * 100_000},
        {"budget_tokens": 63},
        {"budget_tokens": -1},
        {"deadline_seconds": 0},
        {"deadline_seconds": float("nan")},
        {"deadline_seconds": float("inf")},
        {"index_seconds": -1.0},
    ],
)
def test_a_question_without_words_or_budget_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(QuestionRefused):
        ContextQuery(**{"question": "why?", "place": ROOT, **wrong})


def test_a_missing_place_is_an_error() -> None:
    index = FakeCodeIndex(TEXTS, missing=[Path("/gone")])
    with world() as made, pytest.raises(SourceMissing):
        made.pipeline(BOTH, index=index).ask(query(place=CodePlace(Path("/gone"))))


def test_only_the_start_and_end_of_a_huge_question_are_read() -> None:
    asked: list[str] = []

    class Listens(Found):
        def retrieve(self, request: Any, cancelled: Any) -> Any:
            asked.append(request.question)
            return []

    answer = ask({"words": lambda ground: Listens("words", list)}, question="why \ud800" + "x" * 5_000_000)
    assert len(asked[0]) <= MOST_CHARACTERS
    assert asked[0].startswith("why ?")
    assert any("the question is long" in note for note in answer.notes)


@pytest.mark.parametrize("question", ["!!!", "? 404 -> 7", "<!-- what happened? -->", "is it in this?"])
def test_a_question_without_search_words_names_no_file(question: str) -> None:
    answer = ask(question=question)
    assert answer.files == ()
    assert "Most likely" not in answer.text
    assert answer.notes == ("the question contains no searchable words",)
    assert {told.status for told in answer.strategies} == {StrategyStatus.CANCELLED}


@pytest.mark.parametrize("question", ["pay", "7.c"])
def test_one_word_or_a_path_is_enough_for_a_search(question: str) -> None:
    assert len(ask(question=question).files) == 2


def decision() -> Decision:
    made = NewDecision("which database?", "SQLite")
    return Decision("plan", 1, made, DecisionState.ACTIVE, datetime(2026, 1, 1, tzinfo=UTC))


def test_the_decisions_strategy_is_asked_only_if_there_are_decisions() -> None:
    one = decision()
    seen: list[Any] = []

    def make(ground: Any) -> Found:
        seen.append(tuple(ground.decisions))
        return Found("decisions", list)

    strategies = {**BOTH, "decisions": make}
    assert [told.name for told in ask(strategies).strategies] == ["words", "names"]
    told = ask(strategies, decisions=[one]).strategies
    assert [report.name for report in told] == ["words", "names", "decisions"]
    assert seen == [(one,)]


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────


def test_notes_of_the_index_are_passed_on_and_the_code_is_closed() -> None:
    with world() as made:
        index = HostileIndex(made, "status is partial")
        answer = made.pipeline(BOTH, index=index).ask(query())
        assert index.closed == 1
    assert answer.notes[0] == "built anew"
    assert "only 3 of 9 files" in answer.notes[1]


def looks_at_the_code(ground: Any) -> Found:
    """A typical strategy, which fails without code."""
    return Found("words", lambda: [fragment()] if len(ground.code.chunks.lengths) else [])


def test_unopened_code_does_not_count_against_strategies() -> None:
    decided = finding(fragment("decision:1", text="Use SQLite."), name="decisions")
    strategies = {"decisions": decided, "words": looks_at_the_code}
    with world() as made:
        broken = made.pipeline(strategies, index=HostileIndex(made, "open raises"))
        for _ in range(5):
            answer = broken.ask(query(decisions=[decision()]))
        told = [(one.name, one.status, one.error) for one in answer.strategies]
        good = made.pipeline(strategies).ask(query())
    assert told == [
        ("decisions", StrategyStatus.USED, None),
        ("words", StrategyStatus.CANCELLED, "there is no code to search"),
    ]
    assert "Use SQLite." in answer.text
    assert [one.status for one in good.strategies] == [StrategyStatus.USED]


def test_progress_is_reported_and_a_failing_listener_is_ignored() -> None:
    heard: list[tuple[int, int]] = []

    def listen(done: int, of: int) -> None:
        heard.append((done, of))
        raise RuntimeError("no terminal")

    assert ask(progress=listen).files
    assert heard == [(3, 3)]


@pytest.mark.parametrize(("index_seconds", "given"), [(None, 0.4), (1000.0, 8.0)])
def test_indexing_has_half_of_the_deadline_or_a_separate_limit(
    index_seconds: float | None, given: float
) -> None:
    allowed: list[float] = []

    class Watching(FakeCodeIndex):
        def open(self, place: CodePlace, **options: Any) -> Any:
            allowed.append(options["seconds"])
            made.clock.advance(SECONDS * 0.45 if index_seconds is None else 900.0)
            return super().open(place, **options)

    with world() as made:
        answer = made.pipeline(BOTH, index=Watching(TEXTS)).ask(query(index_seconds=index_seconds))
    assert allowed == [pytest.approx(SECONDS * given)]
    assert [told.status for told in answer.strategies] == [StrategyStatus.USED] * 2
    assert "def pay" in answer.text


def test_many_may_ask_at_once() -> None:
    with world() as made:
        pipeline = made.pipeline(BOTH)
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(pipeline.ask(query())), daemon=True)
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert {answer.text for answer in answers} == {ask().text}
        assert len(answers) == 8


# ── replaced parts ────────────────────────────────────────────────────────────────────────────────────


class Counting:
    """A correct part that records its calls."""

    def __init__(self, honest: Any, asked: list[str]) -> None:
        self._honest = honest
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._honest, name)
        self._asked.append(name)
        return act


def honest_parts(made: World) -> dict[str, Any]:
    return {
        "selector": AllStrategies(["names"]),
        "allocator": FixedShares(),
        "executor": made.executor,
        "deduplicator": MergedPlaces(),
        "scorer": PlainScorer(),
        "depths": WholeDefinitions(4000),
        "packer": GreedyPacker(),
        "orderer": BestFileFirst(),
        "preamble": ShortPreamble(),
        "skeleton": TreeSkeleton(),
    }


def test_a_part_may_ask_the_code_all_that_a_strategy_may() -> None:
    seen: list[Any] = []

    class Curious(PlainScorer):
        def rank(self, question: str, candidates: Any, code: Any) -> Any:
            seen.append(
                (code.place, code.status.files, len(code.chunks.lengths) >= 3, code.text("README.md"))
            )
            seen.append(sorted(code.postings(Field.NAME, ["basket", "nobody"])))
            return super().rank(question, candidates, code)

    ask(parts={"loads": {"scorer": Curious}})
    assert seen == [(ROOT, 3, True, TEXTS["README.md"]), ["basket"]]


def test_a_part_that_asks_code_that_could_not_be_opened_finds_none() -> None:
    seen: list[Any] = []

    class Curious(PlainScorer):
        def rank(self, question: str, candidates: Any, code: Any) -> Any:
            seen.append((code.place, code.files, code.postings(Field.NAME, ["basket"]), code.analyses([0])))
            for fails in (lambda: code.text("README.md"), lambda: code.chunks):
                with pytest.raises(LookupError):
                    fails()
            return super().rank(question, candidates, code)

    with world() as made:
        loads = {"scorer": Curious}
        answer = made.pipeline(BOTH, index=HostileIndex(made, "open raises"), loads=loads).ask(query())
    assert seen == [(ROOT, (), {}, {})]
    assert not any("the configured scorer" in note for note in answer.notes)


def test_all_ten_parts_can_be_replaced_and_are_asked() -> None:
    asked: list[str] = []
    with world() as made:
        honest = honest_parts(made)
        assert sorted(honest) == sorted(PARTS)
        loads = {name: (lambda part=part: Counting(part, asked)) for name, part in honest.items()}
        answer = made.pipeline(BOTH, loads=loads).ask(query())
    assert asked == [
        "allocate",
        "select",
        "execute",
        "merge",
        "rank",
        "write",
        "draw",
        "choices",
        "pack",
        "order",
    ]
    assert [told.name for told in answer.strategies] == ["words"]
    assert "def pay" in answer.text
    assert answer.notes == ()


def _offers(**acts: Callable[..., Any]) -> Callable[[], Any]:
    """Return a loader of a part with these methods."""
    return lambda: type("Part", (), {name: staticmethod(act) for name, act in acts.items()})


def _twice(part: Any, name: str) -> Callable[..., Any]:
    """Return a correct answer with every item duplicated."""
    return lambda *given: [*getattr(part, name)(*given)] * 2


LIES: dict[str, tuple[str, Callable[[], Any]]] = {
    "a strategy that there is not": ("selector", _offers(select=lambda question, names: ["other"])),
    "more than the budget": ("allocator", _offers(allocate=lambda budget: Shares(0, 1, budget))),
    "less than nothing": ("allocator", _offers(allocate=lambda budget: Shares(-5, 0, budget))),
    "places twice": ("deduplicator", _offers(merge=_twice(MergedPlaces(), "merge"))),
    "a place that nobody found": (
        "deduplicator",
        _offers(merge=lambda found: [*MergedPlaces().merge([fragment("other.py")])]),
    ),
    "a path that is not there": (
        "scorer",
        _offers(
            rank=lambda q, candidates, code: PlainScorer().rank(
                q, MergedPlaces().merge([fragment("x")]), code
            )
        ),
    ),
    "a file twice": (
        "scorer",
        _offers(rank=lambda q, c, code: Ranking(PlainScorer().rank(q, c, code).files * 2)),
    ),
    "choices of what is not ranked": (
        "depths",
        _offers(
            choices=lambda ranking, code, count: WholeDefinitions(100).choices(
                PlainScorer().rank("", MergedPlaces().merge([fragment("README.md")]), code), code, count
            )
        ),
    ),
    "a place packed twice": ("packer", _offers(pack=_twice(GreedyPacker(), "pack"))),
    "more than there is room for": (
        "packer",
        _offers(pack=lambda choices, tokens: GreedyPacker().pack(choices, tokens * 100)),
    ),
    "a fragment less": ("orderer", _offers(order=lambda packed: packed[1:])),
    "too long a preamble": ("preamble", _offers(write=lambda *_: "words " * 1000)),
    "too large a skeleton": ("skeleton", _offers(draw=lambda *_: "lines\n" * 5000)),
    "no report": ("executor", _offers(execute=lambda *_, **__: None)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_part_with_plausible_but_wrong_results_is_rejected(lie: str) -> None:
    part, load = LIES[lie]
    options = {"budget_tokens": 70} if lie == "more than there is room for" else {}
    answer = ask(parts={"loads": {part: load}}, **options)
    assert any(f"the configured {part} failed" in note for note in answer.notes), answer.notes
    assert answer.text == ask(**options).text


# ── reranking by a model ──────────────────────────────────────────────────────────────────────────────


class Speaking:
    """A model that gives one answer or does one thing."""

    def __init__(self, said: Any) -> None:
        self._said = said
        self.asked: list[Any] = []

    async def reply(self, request: Any, on_token: Any = None) -> Any:
        self.asked.append(request)
        if callable(self._said):
            await self._said()
        return type("Reply", (), {"message": Message(MessageRole.ASSISTANT, str(self._said))})


def rerank(said: Any, strategies: Any = None) -> tuple[Any, Speaking]:
    model = Speaking(said)

    def open_model() -> Model:
        opened: Any = model
        return opened

    with world() as made:
        pipeline = made.pipeline(strategies or BOTH, rerank=open_model)
        return answered(lambda: pipeline.ask(query()), made), model


@pytest.mark.parametrize("said", ["[2, 1]", "Here you are: [2]", '[2, 99, "x", 2, 0, -1, true]'])
def test_a_model_puts_the_files_that_it_names_first_and_loses_none(said: str) -> None:
    answer, _ = rerank(said)
    assert [place.path for place in answer.files] == ["src/pay.py", "src/basket.py"]
    assert answer.files[0].score >= answer.files[1].score
    assert [told.name for told in answer.strategies] == ["words", "names", "rerank"]
    assert answer.text.index("def pay") < answer.text.index("def add")


@pytest.mark.parametrize(
    "said", ["none of them", "[]", "[99]", "] [", "[1, 2", json.dumps({"a": 1}), "[[1]]"]
)
def test_a_wrong_model_answer_leaves_the_ranking_and_is_reported(said: str) -> None:
    answer, _ = rerank(said)
    assert [place.path for place in answer.files] == ["src/basket.py", "src/pay.py"]
    assert answer.strategies[-1].status is StrategyStatus.FAILED
    assert any("rerank gave no answer (failed)" in note for note in answer.notes)


def test_a_model_that_does_not_answer_is_left_behind() -> None:
    import asyncio

    with world() as made:

        async def wait() -> None:
            made.clock.advance(SECONDS)
            await asyncio.Event().wait()

        model: Any = Speaking(wait)
        pipeline = made.pipeline(BOTH, rerank=lambda: model)
        answer = answered(lambda: pipeline.ask(query()), made)
        assert [place.path for place in answer.files] == ["src/basket.py", "src/pay.py"]


def test_a_model_is_not_asked_when_no_time_is_left_or_the_executor_is_closed() -> None:
    with world() as made:

        class Slow(PlainScorer):
            def rank(self, *given: Any) -> Any:
                made.clock.advance(SECONDS)
                return super().rank(*given)

        class Closing(PlainScorer):
            def rank(self, *given: Any) -> Any:
                made.executor.close()
                return super().rank(*given)

        model: Any = Speaking("[2, 1]")
        for scorer in (Slow(), Closing()):
            pipeline = made.pipeline(BOTH, own=DefaultParts(scorer=scorer), rerank=lambda: model)
            answer = pipeline.ask(query())
            assert answer.files[0].path == "src/basket.py"
        assert model.asked == []


def test_one_file_needs_no_model() -> None:
    answer, model = rerank("[1]", {"words": finding(fragment())})
    assert model.asked == []
    assert answer.strategies[-1].status is StrategyStatus.EMPTY
    assert answer.notes == ()


def test_a_model_sees_paths_and_signatures_and_no_secret() -> None:
    index = FakeCodeIndex(
        {**TEXTS, "src/pay.py": f"def pay(card='{SECRET}'):\n    return 1\n", "a.bin": "\0"}
    )
    model: Any = Speaking("[1]")
    strategies = {"words": finding(fragment("src/pay.py"), fragment("a.bin"), fragment("src/basket.py"))}
    with world() as made:
        made.pipeline(strategies, index=index, rerank=lambda: model).ask(query(f"why {SECRET}?"))
    sent = "\n".join(message.text for message in model.asked[0].messages)
    assert "def pay(card='" in sent
    assert "a.bin" in sent
    assert SECRET not in sent
    assert "return 1" not in sent
    assert model.asked[0].max_output_tokens <= 200


def test_a_model_ranks_the_best_twenty_files() -> None:
    texts = {f"f{n:02}.py": f"def f{n}(): pass\n" for n in range(30)}
    strategies = {"words": finding(*(fragment(path, 100.0 - n) for n, path in enumerate(texts)))}
    model: Any = Speaking("[20, 1]")
    with world() as made:
        answer = made.pipeline(strategies, index=FakeCodeIndex(texts), rerank=lambda: model).ask(query())
    assert [place.path for place in answer.files][:3] == ["f19.py", "f00.py", "f01.py"]
    assert [place.path for place in answer.files][19:] == [f"f{n}.py" for n in (18, *range(20, 30))]
    assert [place.score for place in answer.files] == sorted((p.score for p in answer.files), reverse=True)
