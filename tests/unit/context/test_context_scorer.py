"""The fusion of strategy findings into one ranking."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.code_index import CodePlace
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import Candidate, Finding, Fusion, Ranking, fusion_from_json
from cleveragents.context.pipeline.ranking import FusedScorer
from cleveragents.context.search.fusion_weights import fusion_weights
from cleveragents.testing.code_index import MemorySnapshot

CODE = MemorySnapshot({}, CodePlace(Path("/nowhere")))
FUSION = Fusion(
    {("keyword", "file"): 1.0, ("mentions", "path"): 2.0},
    priors={"aside": -1.0},
    kinds={"test": 0.5, "text": 0.25},
)


def _file(path: str, **scores: float) -> Candidate:
    findings = tuple(Finding(*key.split("__"), score) for key, score in scores.items())
    return Candidate(path, None, findings)


def _ranked(*candidates: Candidate, question: str = "it hangs", fusion: Fusion = FUSION) -> Ranking:
    return FusedScorer(fusion).rank(question, candidates, CODE)


def _paths(ranking: Ranking) -> list[str]:
    return [place.path for place in ranking.files]


def test_signals_count_by_their_share_and_not_by_their_size() -> None:
    ranking = _ranked(
        _file("a.py", keyword__file=900.0),
        _file("b.py", keyword__file=450.0, mentions__path=0.001),
    )
    assert _paths(ranking) == ["b.py", "a.py"]
    assert ranking.files[0].score == 1.0
    assert len(ranking.files[0].findings) == 2


def test_a_signal_without_a_learned_weight_counts_a_little() -> None:
    ranking = _ranked(_file("a.py", keyword__file=1.0), _file("b.py", foreign__x=5.0), _file("c.py"))
    assert _paths(ranking) == ["a.py", "b.py", "c.py"]


def test_tests_and_texts_come_after_code_that_fits_as_well() -> None:
    same = {"keyword__file": 1.0}
    ranking = _ranked(_file("README.md", **same), _file("tests/test_a.py", **same), _file("src/a.py", **same))
    assert _paths(ranking) == ["src/a.py", "tests/test_a.py", "README.md"]


@pytest.mark.parametrize(
    ("question", "first"), [("flaky tests of a", "tests/test_a.py"), ("typo in docs", "README.md")]
)
def test_questions_about_tests_or_texts_find_them(question: str, first: str) -> None:
    files = [
        _file("README.md", keyword__file=1.0),
        _file("src/a.py", keyword__file=0.4),
        _file("tests/test_a.py", keyword__file=1.0),
    ]
    assert _paths(_ranked(*files, question=question))[0] == first


def test_a_test_that_the_question_names_is_not_held_back() -> None:
    files = [
        _file("src/a.py", keyword__file=1.0),
        _file("tests/test_a.py", keyword__file=0.2, mentions__path=1.0),
    ]
    assert _paths(_ranked(*files)) == ["tests/test_a.py", "src/a.py"]


def test_auxiliary_files_rank_below_product_code() -> None:
    ranking = _ranked(_file("examples/a.py", keyword__file=1.0), _file("pkg/a.py", keyword__file=0.8))
    assert _paths(ranking) == ["pkg/a.py", "examples/a.py"]
    assert all(0 <= place.score <= 1 for place in ranking.files)


def test_places_go_by_their_own_worth_within_their_file() -> None:
    near, far = LineSpan(1, 4), LineSpan(9, 12)
    ranking = _ranked(
        _file("a.py", keyword__file=2.0),
        Candidate("a.py", far, (Finding("keyword", "chunk", 1.0),)),
        Candidate("a.py", near, (Finding("keyword", "chunk", 4.0),)),
        Candidate("b.py", near, (Finding("keyword", "chunk", 4.0),)),
        Candidate("decision:1", None, (Finding("decisions", "", 3.0),), "Decided"),
        Candidate("c.py", far, (Finding("keyword", "odd", 0.0),)),
    )
    assert _paths(ranking) == ["a.py", "b.py", "c.py"]
    order = [(place.path, place.span) for place in ranking.places]
    assert order[:3] == [("a.py", near), ("decision:1", None), ("a.py", far)]
    assert "decision:1" not in _paths(ranking)


def test_without_findings_nothing_is_ranked() -> None:
    assert _ranked() == Ranking()
    assert _ranked(_file("a.py", keyword__file=0.0)).files[0].score == 0.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a.py", "tests/test_b.py", "c.md", "d/e.go"]),
            st.sampled_from([None, LineSpan(1, 2), LineSpan(2, 9)]),
            st.lists(
                st.tuples(st.sampled_from(["keyword", "x"]), st.sampled_from(["file", ""]), st.floats(-9, 9))
            ),
        ),
        max_size=12,
        unique_by=lambda item: (item[0], item[1]),
    )
)
def test_scores_are_between_0_and_1_and_no_file_is_there_twice(
    items: Sequence[tuple[str, LineSpan | None, Sequence[tuple[str, str, float]]]],
) -> None:
    ranking = _ranked(
        *(Candidate(path, span, tuple(Finding(*one) for one in said)) for path, span, said in items)
    )
    assert all(0 <= place.score <= 1 for place in (*ranking.files, *ranking.places))
    assert len(set(_paths(ranking))) == len(ranking.files)
    assert set(_paths(ranking)) == {path for path, _, _ in items}


def test_our_weights_can_be_read_and_prefer_what_the_question_names() -> None:
    fusion = fusion_weights()
    assert fusion.worth({("mentions", "path"): 1.0}) > 0
    assert fusion.kind("tests/test_a.py") < fusion.kind("src/a.py")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"signals": 3}',
        '{"signals": {"a": 1}}',
        '{"signals": {"a": {"b": "x"}}}',
        '{"signals": {"a": {"b": Infinity}}}',
        '{"priors": {"x": 1}}',
        '{"kinds": {"test": true}}',
    ],
)
def test_invalid_weights_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        fusion_from_json(json.loads(text))


def test_missing_weights_are_zero() -> None:
    fusion = fusion_from_json({})
    assert math.isclose(fusion.prior("docs/a.py"), 0.0)
    assert fusion.kind("a_test.py") == 1.0
