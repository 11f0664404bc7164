"""The small parts of the pipeline: selection, shares, merging, order, preamble, skeleton, ranking."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.code_index import CodePlace
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import (
    Candidate,
    ContextFragment,
    Depth,
    Finding,
    PackedFragment,
    RankedPlace,
    Ranking,
    Rendering,
)
from cleveragents.context.pipeline.assembly import AllStrategies, BestFileFirst, FixedShares, ShortPreamble
from cleveragents.context.pipeline.ranking import MergedPlaces, plain_ranking
from cleveragents.context.pipeline.skeleton import TreeSkeleton
from cleveragents.models.tokens import estimate_text
from cleveragents.testing.code_index import MemorySnapshot

PLACE = CodePlace(Path("/nowhere"))


def ranking_of(*paths: str) -> Ranking:
    return Ranking(tuple(RankedPlace(path, None, 1.0) for path in paths))


def found(
    path: str, score: float, strategy: str = "words", lines: tuple[int, int] | None = None
) -> ContextFragment:
    return ContextFragment(path, "", score, strategy, LineSpan(*lines) if lines else None)


# ── selection and shares ──────────────────────────────────────────────────────────────────────────────


def test_every_strategy_is_asked_but_those_switched_off() -> None:
    assert list(AllStrategies(["slow"]).select("why?", ["a", "slow", "b"])) == ["a", "b"]


@given(st.integers(0, 10**9))
def test_the_shares_are_the_budget(budget: int) -> None:
    shares = FixedShares().allocate(budget)
    assert shares.preamble + shares.skeleton + shares.fragments == budget
    assert min(shares.preamble, shares.skeleton) >= 0
    assert shares.fragments >= budget * 0.8


# ── merging ───────────────────────────────────────────────────────────────────────────────────────────


def test_findings_about_the_same_lines_are_one_place() -> None:
    merged = MergedPlaces().merge([found("a.py", 2, "words", (1, 5)), found("a.py", 1, "names", (1, 5))])
    assert [(one.path, one.span) for one in merged] == [("a.py", LineSpan(1, 5))]
    assert {finding.strategy for finding in merged[0].findings} == {"words", "names"}


def test_only_the_best_finding_of_a_signal_counts() -> None:
    merged = MergedPlaces().merge([found("a.py", 1), found("a.py", 3), found("a.py", 2)])
    assert [finding.score for finding in merged[0].findings] == [3.0]


def test_lines_that_partly_overlap_are_one_place_even_around_others() -> None:
    fragments = [found("a.py", 1, "words", lines) for lines in ((1, 100), (10, 20), (50, 120), (200, 210))]
    spans = {one.span for one in MergedPlaces().merge(fragments)}
    assert spans == {LineSpan(1, 120), LineSpan(10, 20), LineSpan(200, 210)}


def test_a_method_is_a_separate_place_from_its_class_and_file() -> None:
    fragments = [found("a.py", 1), found("a.py", 1, "words", (1, 90)), found("a.py", 1, "words", (5, 9))]
    assert len(MergedPlaces().merge(fragments)) == 3


def test_texts_of_one_name_are_apart() -> None:
    texts = [ContextFragment("decision", text, 1.0, "decisions") for text in ("one", "two")]
    assert [one.text for one in MergedPlaces().merge(texts)] == ["one", "two"]


SPANS = st.tuples(st.integers(1, 40), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(SPANS, max_size=20))
@settings(max_examples=100, deadline=None)
def test_merged_places_nest_or_are_apart_and_no_line_is_lost(spans: list[tuple[int, int]]) -> None:
    merged = [one.span for one in MergedPlaces().merge([found("a.py", 1, "words", span) for span in spans])]
    kept = [span for span in merged if span is not None]
    for one in kept:
        for other in kept:
            apart = one.last < other.first or other.last < one.first
            assert apart or one.contains(other) or other.contains(one)
    lines = {line for first, last in spans for line in range(first, last + 1)}
    assert lines == {line for span in kept for line in range(span.first, span.last + 1)}


# ── ranking without a scorer ──────────────────────────────────────────────────────────────────────────


def test_signals_count_by_their_own_measure() -> None:
    """1000 of one signal and 0.5 of another are the highest score of each: neither dominates."""
    candidates = [
        Candidate("both.py", None, (Finding("a", "", 900.0), Finding("b", "", 0.4))),
        Candidate("one.py", None, (Finding("a", "", 1000.0),)),
        Candidate("two.py", None, (Finding("b", "", 0.5),)),
    ]
    assert [place.path for place in plain_ranking(candidates).files] == ["both.py", "one.py", "two.py"]


def test_a_file_is_ranked_by_its_lines_and_listed_once() -> None:
    candidates = [
        Candidate("a.py", LineSpan(1, 2), (Finding("a", "", 1.0),)),
        Candidate("a.py", LineSpan(5, 6), (Finding("a", "", 3.0),)),
        Candidate("b.py", None, (Finding("a", "", 2.0),)),
        Candidate("decision", None, (Finding("d", "", 1.0),), "text"),
    ]
    ranking = plain_ranking(candidates)
    assert [place.path for place in ranking.files] == ["a.py", "b.py"]
    assert [(place.path, place.span) for place in ranking.places][:2] == [
        ("a.py", LineSpan(5, 6)),
        ("decision", None),
    ]


def test_negative_scores_do_not_count() -> None:
    candidates = [Candidate("a.py", None, (Finding("a", "", -5.0),)), Candidate("b.py", None, ())]
    assert [place.score for place in plain_ranking(candidates).files] == [0.0, 0.0]


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────


def packed(path: str, score: float, first: int | None = None) -> PackedFragment:
    span = None if first is None else LineSpan(first, first + 5)
    return PackedFragment(RankedPlace(path, span, score), Rendering(Depth.FULL, path, 1, score))


def test_the_best_file_is_first_and_within_a_file_the_best_fragment() -> None:
    fragments = [
        packed("b.py", 0.5, 30),
        packed("a.py", 0.4),
        packed("b.py", 0.9, 80),
        packed("b.py", 0.1),
        packed("a.py", 0.6, 1),
    ]
    ordered = [
        (one.place.path, one.place.span.first if one.place.span else 0)
        for one in BestFileFirst().order(fragments)
    ]
    assert ordered == [("b.py", 0), ("b.py", 80), ("b.py", 30), ("a.py", 0), ("a.py", 1)]


# ── preamble ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tokens", [0, 3, 30, 60, 1000])
def test_the_preamble_is_whole_sentences_within_its_share(tokens: int) -> None:
    text = ShortPreamble().write("why?", ranking_of("a.py", "b.py"), tokens, estimate_text)
    assert estimate_text(text) <= tokens
    assert not text or text.endswith(".")


def test_the_preamble_names_the_best_files_or_says_that_nothing_was_found() -> None:
    assert "a.py, b.py" in ShortPreamble().write("why?", ranking_of("a.py", "b.py"), 200, estimate_text)
    assert "Nothing" in ShortPreamble().write("why?", Ranking(), 200, estimate_text)
    only_text = Ranking((), (RankedPlace("decision", None, 1.0, (), "text"),))
    assert "Nothing" not in ShortPreamble().write("why?", only_text, 200, estimate_text)


# ── skeleton ──────────────────────────────────────────────────────────────────────────────────────────

NAMES = st.text(alphabet="ab/ é\n", min_size=1, max_size=12).filter(lambda name: name.strip("/") == name)


@given(st.lists(NAMES, max_size=40, unique=True), st.integers(0, 120), st.data())
@settings(max_examples=100, deadline=None)
def test_the_skeleton_fits_whatever_there_is(paths: list[str], tokens: int, data: st.DataObject) -> None:
    code = MemorySnapshot(dict.fromkeys(paths, ""), PLACE)
    best = data.draw(st.lists(st.sampled_from(paths), max_size=5, unique=True)) if paths else []
    drawn = TreeSkeleton().draw(code, ranking_of(*best), tokens, estimate_text)
    assert estimate_text(drawn) <= tokens


def test_a_small_repository_is_drawn_whole() -> None:
    code = MemorySnapshot(dict.fromkeys(["src/a.py", "src/deep/b.py", "README.md"], ""), PLACE)
    drawn = TreeSkeleton().draw(code, Ranking(), 200, estimate_text)
    assert drawn.splitlines()[1:] == ["README.md", "src/ (2 files)", "  a.py", "  deep/ (1 file)", "    b.py"]


def test_a_large_repository_shows_the_best_files_and_counts_the_rest() -> None:
    paths = [f"part{n}/sub{m}/file{k}.py" for n in range(20) for m in range(20) for k in range(20)]
    code = MemorySnapshot(dict.fromkeys(paths, ""), PLACE)
    drawn = TreeSkeleton().draw(code, ranking_of("part7/sub3/file5.py"), 500, estimate_text)
    lines = drawn.splitlines()
    assert estimate_text(drawn) <= 500
    assert "    file5.py" in lines
    assert "    (19 more files)" in lines
    assert "part19/ (400 files)" in lines


def test_a_best_file_that_is_not_there_is_not_drawn() -> None:
    code = MemorySnapshot({"a/b.py": ""}, PLACE)
    drawn = TreeSkeleton().draw(code, ranking_of("a/gone.py", "gone/b.py"), 100, estimate_text)
    assert "gone" not in drawn


def test_nothing_is_drawn_of_nothing_and_a_directory_of_thousands_stays_closed() -> None:
    assert TreeSkeleton().draw(MemorySnapshot({}, PLACE), Ranking(), 100, estimate_text) == ""
    flat = MemorySnapshot({f"file{n}.py": "" for n in range(3000)}, PLACE)
    drawn = TreeSkeleton().draw(flat, ranking_of("file7.py"), 400, estimate_text)
    assert drawn.splitlines()[1:] == ["file7.py", "(2999 more files)"]
