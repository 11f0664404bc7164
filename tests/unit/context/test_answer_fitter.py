"""Fitting an answer: whatever its parts report, the whole fits the budget and is legible."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.model.context import (
    ContextAnswer,
    Depth,
    PackedFragment,
    RankedPlace,
    Rendering,
)
from cleveragents.context.pipeline.packer import AnswerFitter, byte_bound, safe_count
from cleveragents.models.tokens import estimate_text
from cleveragents.testing.code_index import FakeCodeIndex
from tests.context_world import finding, fragment, query, world

WORDS = st.text(alphabet="ab \n\ud800é{", max_size=40)


def answer(texts: list[str], preamble: str = "", skeleton: str = "", said: int = 0) -> ContextAnswer:
    """Return an answer whose fragments report these token counts."""
    shown = tuple(
        PackedFragment(RankedPlace(f"{n}.py", None, 1.0), Rendering(Depth.FULL, text, said, 1.0))
        for n, text in enumerate(texts)
    )
    return ContextAnswer((), shown, (), preamble, skeleton, 0, 0, 0.0)


@given(st.lists(WORDS, max_size=12), WORDS, WORDS, st.integers(0, 200), st.integers(0, 50))
@settings(max_examples=150, deadline=None)
def test_the_counted_text_fits_whatever_fragments_report(
    texts: list[str], preamble: str, skeleton: str, budget: int, said: int
) -> None:
    fitted = AnswerFitter(budget, byte_bound).fitted(answer(texts, preamble, skeleton, said))
    assert byte_bound(fitted.text) == fitted.tokens <= budget == fitted.budget
    fitted.text.encode()


@pytest.mark.parametrize(
    ("budget", "left"),
    [(30, ["first", "second"]), (24, ["first"]), (17, []), (11, []), (4, [])],
)
def test_fragments_are_dropped_from_the_end(budget: int, left: list[str]) -> None:
    fitted = AnswerFitter(budget, byte_bound).fitted(answer(["first", "second"], "preamble", "tree", 3))
    assert [one.rendering.text for one in fitted.fragments] == left
    assert (fitted.preamble, fitted.skeleton) == (
        "preamble" if budget >= 11 else "",
        "tree" if budget >= 17 else "",
    )


def test_the_budget_holds_if_the_whole_has_more_tokens_than_its_parts() -> None:
    """With such a tokenizer, every sum of parts is too small."""

    def count(text: str) -> int:
        return estimate_text(text) * (1 + text.count("\n### "))

    with world() as made:
        found = finding(fragment("src/basket.py"), fragment("src/pay.py"), fragment("README.md"))
        given = made.pipeline({"words": found}, count=count).ask(query(budget_tokens=150))
    assert count(given.text) == given.tokens <= 150
    assert given.text


def test_bytes_are_counted_where_a_tokenizer_fails_and_nothing_takes_nothing() -> None:
    notes: list[str] = []

    def fail(text: str) -> Any:
        raise RuntimeError("broken")

    counted = safe_count(fail, notes.append)
    assert (counted(""), notes) == (0, [])
    assert counted("zwölf") == 6
    assert notes == ["the tokenizer failed; bytes were counted instead"]


def test_an_answer_from_memory_names_as_many_paths_as_fit() -> None:
    with world() as made:
        found = finding(*(fragment(path, score) for path, score in (("src/basket.py", 3), ("src/pay.py", 2))))
        pipeline = made.pipeline({"words": found}, count=lambda text: made.hang() or 0)
        small = pipeline.ask(query(budget_tokens=64))
        assert small.text == "### src/basket.py\n### src/pay.py"
        assert byte_bound(small.text) <= small.tokens <= 64


def test_an_answer_from_memory_stays_within_its_budget_too() -> None:
    long = {f"src/{'x' * 30}{n}.py": "" for n in range(9)}
    with world() as made:
        found = finding(*(fragment(path, 9 - n) for n, path in enumerate(long)))
        pipeline = made.pipeline(
            {"words": found}, index=FakeCodeIndex(long), count=lambda text: made.hang() or 0
        )
        bare = pipeline.ask(query(budget_tokens=100))
        assert len(bare.fragments) == 2
        assert len(bare.files) == 9
        assert byte_bound(bare.text) <= 100
