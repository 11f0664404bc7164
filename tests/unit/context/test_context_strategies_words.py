"""Strategies based on words: keyword, guidance, decisions, embeddings; and properties of all strategies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.context_parts import MakeStrategy
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import FragmentLimits, keep_within
from cleveragents.context.strategies import decisions, embeddings, guidance, keyword
from cleveragents.core.decision import Alternative, Decision, DecisionState, NewDecision
from tests.strategy_bench import FILES, Always, ask, ground_of, paths_by, retrieved

NAMES = (
    "decisions",
    "embeddings",
    "guidance",
    "history",
    "imports",
    "keyword",
    "mentions",
    "symbols",
    "tests",
)
MAKERS: Mapping[str, MakeStrategy] = {
    name: import_module(f"cleveragents.context.strategies.{name}").make for name in NAMES
}
QUESTION = "RetryPolicy waits too long\n\nThe `next_backoff` of kite.policy grows. See src/kite/policy.py\n"


def test_keywords_find_the_file_that_speaks_of_them() -> None:
    found = ask(keyword.make, "which backoff is there for the next attempt")
    for signal in ("file_full", "chunks_full", "file_title", "cover_title", "cover_chunk"):
        assert paths_by(found, signal)[0] == "src/kite/policy.py", signal


def test_common_words_count_if_there_are_no_others() -> None:
    files = {"a.py": "def version():\n    return 1\n", "b.py": "def other():\n    return 2\n"}
    found = ask(keyword.make, "where is the version", ground_of(files))
    assert paths_by(found, "file_full") == ["a.py"]


def test_documentation_of_code_is_searched_separately() -> None:
    assert paths_by(ask(keyword.make, "is it tried again"), "doc") == ["src/kite/policy.py"]


def test_keywords_find_the_very_function() -> None:
    found = ask(keyword.make, "open the socket for frames")
    best = next(fragment for fragment in found if fragment.signal == "chunk")
    assert best.path == "src/kite/wire.py"
    assert best.span is not None
    assert best.span.contains(LineSpan(5, 5))


def test_a_path_is_found_by_its_words_in_another_form() -> None:
    found = ask(keyword.make, "parsing of cookies")
    assert paths_by(found, "share")[0] == "web/src/parse.ts"
    assert "web/src/cookieJar.ts" in paths_by(found, "path")


def test_tests_and_texts_are_found_apart_from_sources() -> None:
    found = ask(keyword.make, "patience grows with every failure; retries wait for the backoff")
    assert paths_by(found, "test")[0] == "tests/test_policy.py"
    assert paths_by(found, "text")[0] == "docs/usage.md"
    assert not any("test" in path or path.endswith(".md") for path in paths_by(found, "file_full"))


def test_the_same_content_at_two_paths_is_found_at_both() -> None:
    twins = {"a/one.py": FILES["src/kite/policy.py"], "b/two.py": FILES["src/kite/policy.py"]}
    found = ask(keyword.make, "next backoff", ground_of(twins))
    assert set(paths_by(found, "file_title")) == {"a/one.py", "b/two.py"}


def test_guidance_finds_general_documents_and_those_about_the_question() -> None:
    found = ask(guidance.make, "how long does a retry wait")
    assert paths_by(found, "standing")[0] == "AGENTS.md"
    assert paths_by(found, "documents")[0] == "docs/usage.md"


def test_a_text_that_the_title_names_is_found_nearest_to_the_root() -> None:
    files = {**FILES, "web/README.md": "# Web\n", "docs/read.md": "x\n"}
    found = ask(guidance.make, "the readme is wrong", ground_of(files))
    assert paths_by(found, "named") == ["README.md", "web/README.md"]


def _decision(number: int, choice: str, state: DecisionState = DecisionState.ACTIVE) -> Decision:
    made = NewDecision(
        "How are retries spaced?", choice, "simple", (Alternative("random", "hard to test"), Alternative("x"))
    )
    return Decision("plan", number, made, state, datetime(2026, 1, 1, tzinfo=UTC))


def test_active_matching_decisions_are_returned_in_full() -> None:
    ground = ground_of(
        decisions=[
            _decision(1, "linear backoff"),
            _decision(2, "exponential backoff", DecisionState.SUPERSEDED),
        ]
    )
    (found,) = ask(decisions.make, "which backoff do retries have", ground)
    assert found.path == "decision:1"
    assert found.text.splitlines() == [
        "Decided: How are retries spaced?",
        "Choice: linear backoff",
        "Why: simple",
        "Not: random (hard to test)",
    ]
    assert ask(decisions.make, "cookies", ground) == []


def test_embeddings_are_offered_where_their_library_is() -> None:
    assert embeddings.offered()
    found = ask(embeddings.make, "how long to wait before trying once more: backoff of a request")
    assert "src/kite/policy.py" in paths_by(found, "file")
    assert all(fragment.span for fragment in found if fragment.signal == "piece")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_where_there_is_nothing(name: str) -> None:
    assert ask(MAKERS[name], QUESTION, ground_of({})) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("question", ["", "?!", "the of and", "\x00", "東京の再試行", "ǅ ﬃ İ", "\ud800"])
def test_a_question_without_words_is_no_failure(name: str, question: str) -> None:
    ask(MAKERS[name], question, ground_of({**FILES, "src/日本.py": "def 再試行():\n    return 1\n"}))


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_kept_best_first(name: str) -> None:
    found = ask(MAKERS[name], QUESTION, ground_of(decisions=[_decision(1, "linear backoff")]))
    assert keep_within(found, FragmentLimits(fragments=5000)).fragments == tuple(found)
    for signal in {fragment.signal for fragment in found}:
        scores = [fragment.score for fragment in found if fragment.signal == signal]
        assert scores == sorted(scores, reverse=True), signal
    assert {fragment.strategy for fragment in found} <= {name}


@pytest.mark.parametrize("name", NAMES)
def test_a_cancelled_strategy_stops_early(name: str) -> None:
    ground = ground_of(decisions=[_decision(1, "linear backoff")])
    whole = ask(MAKERS[name], QUESTION, ground)
    assert len(retrieved(MAKERS[name], QUESTION, ground, Always())) <= len(whole)


@pytest.mark.parametrize("name", NAMES)
def test_a_million_characters_are_asked_in_part(name: str) -> None:
    question = "backoff retry_policy src/kite/policy.py\n" * 25_000
    assert len(ask(MAKERS[name], question)) < 5000


@settings(max_examples=15, deadline=None)
@given(st.text(max_size=200))
def test_no_question_makes_a_strategy_fail(text: str) -> None:
    ground = ground_of()
    for name in NAMES:
        if name != "embeddings":
            ask(MAKERS[name], text, ground)
