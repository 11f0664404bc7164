"""Validation of replaced parts: each check accepts valid data unchanged and raises for everything else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import (
    Candidate,
    Choice,
    ContextFragment,
    Depth,
    ExecutionReport,
    Finding,
    PackedFragment,
    RankedDefinition,
    RankedPlace,
    Ranking,
    Rendering,
    Shares,
    StrategyReport,
    StrategyStatus,
)
from cleveragents.context.pipeline import checks as checks

FOUND = ContextFragment("a.py", "", 1.0, "words")
SAID = Finding("words", "", 1.0)
CANDIDATE = Candidate("a.py", LineSpan(1, 2), (SAID,))
PLACE = RankedPlace("a.py", None, 0.5, (SAID,))
DEFINITION = RankedDefinition("a.py", LineSpan(1, 2), "f", "function", 0.5, ("named in the question",))
RANKING = Ranking((PLACE,), (replace(PLACE, span=LineSpan(1, 2)),), (DEFINITION,))
RENDERING = Rendering(Depth.FULL, "text", 4, 1.0)
CHOICE = Choice(PLACE, (RENDERING,))
PACKED = PackedFragment(PLACE, RENDERING)
REPORT = StrategyReport("words", StrategyStatus.USED, (FOUND,), 0.1)


def names(answer: Any) -> Any:
    return checks.checked_names(answer, ["words", "names"])


def shares(answer: Any) -> Any:
    return checks.checked_shares(answer, 100)


def report(answer: Any) -> Any:
    return checks.checked_report(answer, ["words"])


def candidates(answer: Any) -> Any:
    return checks.checked_candidates(answer, [FOUND, FOUND])


def ranking(answer: Any) -> Any:
    return checks.checked_ranking(answer, {"a.py", "b.py"})


def choices(answer: Any) -> Any:
    return checks.checked_choices(answer, RANKING, len)


def packing(answer: Any) -> Any:
    return checks.checked_packing(answer, [CHOICE], 10)


def order(answer: Any) -> Any:
    return checks.checked_order(answer, [PACKED])


def text(answer: Any) -> Any:
    return checks.checked_text(answer, 10, len)


class Lying(str):
    """A string subclass that could run code when it is read."""


SENSE: list[tuple[Callable[[Any], Any], Any]] = [
    (names, ("names", "words")),
    (names, ()),
    (shares, Shares(0, 20, 80)),
    (report, ExecutionReport((REPORT,))),
    (candidates, (CANDIDATE, replace(CANDIDATE, span=None))),
    (ranking, RANKING),
    (ranking, Ranking()),
    (choices, (CHOICE,)),
    (packing, (PACKED,)),
    (packing, ()),
    (order, (PACKED,)),
    (text, "short"),
]


@pytest.mark.parametrize(("check", "answer"), SENSE)
def test_valid_answers_are_accepted_unchanged(check: Callable[[Any], Any], answer: Any) -> None:
    assert check(answer) == answer


def test_tokens_are_counted_anew_and_renderings_put_in_order() -> None:
    lies = (Rendering(Depth.FULL, "longer text", 0, 1.0), Rendering(Depth.PATH, "text", -5, 0.1))
    (checked,) = choices([Choice(PLACE, lies)])
    assert [rendering.tokens for rendering in checked.renderings] == [4, 11]


def test_a_report_is_limited_like_a_strategys_result() -> None:
    endless: Any = itertools.repeat(FOUND)
    (told,) = report(ExecutionReport((replace(REPORT, fragments=endless),))).strategies
    assert (len(told.fragments), told.truncated) == (1000, True)


NONSENSE: list[tuple[Callable[[Any], Any], Any]] = [
    (names, "words"),
    (names, ["words", "words"]),
    (names, ["other"]),
    (names, [7]),
    (names, itertools.repeat("words")),
    (shares, None),
    (shares, Shares(0, 21, 80)),
    (shares, Shares(-1, 0, 0)),
    (shares, replace(Shares(0, 0, 0), preamble=1.5)),
    (shares, replace(Shares(0, 0, 0), preamble=True)),
    (report, None),
    (report, ExecutionReport(())),
    (report, ExecutionReport((REPORT, REPORT))),
    (report, ExecutionReport((replace(REPORT, name="other"),))),
    (report, ExecutionReport((replace(REPORT, status="used"),))),
    (report, ExecutionReport((replace(REPORT, error=7),))),
    (report, ExecutionReport((replace(REPORT, seconds=float("nan")),))),
    (report, ExecutionReport((replace(REPORT, seconds="long"),))),
    (report, ExecutionReport((replace(REPORT, fragments=(7,)),))),
    (candidates, [CANDIDATE] * 3),
    (candidates, [replace(CANDIDATE, path="b.py")]),
    (candidates, [replace(CANDIDATE, path=Lying("a.py"))]),
    (candidates, [replace(CANDIDATE, text=None)]),
    (candidates, [replace(CANDIDATE, span=(1, 2))]),
    (candidates, [replace(CANDIDATE, span=LineSpan(0, 2))]),
    (candidates, [replace(CANDIDATE, span=LineSpan(3, 2))]),
    (candidates, [replace(CANDIDATE, span=LineSpan(1.0, 2.0))]),
    (candidates, [replace(CANDIDATE, findings=None)]),
    (candidates, [replace(CANDIDATE, findings=("words",))]),
    (candidates, [replace(CANDIDATE, findings=(replace(SAID, strategy=None),))]),
    (candidates, [replace(CANDIDATE, findings=(replace(SAID, score=float("inf")),))]),
    (candidates, [replace(CANDIDATE, findings=itertools.repeat(SAID))]),
    (ranking, [PLACE]),
    (ranking, Ranking((PLACE, PLACE))),
    (ranking, Ranking((replace(PLACE, path="c.py"),))),
    (ranking, Ranking((replace(PLACE, score=1.5),))),
    (ranking, Ranking((replace(PLACE, score=float("nan")),))),
    (ranking, Ranking((replace(PLACE, score=True),))),
    (ranking, Ranking((), (replace(PLACE, path="c.py"),))),
    (ranking, replace(RANKING, files=itertools.repeat(PLACE))),
    (ranking, replace(RANKING, definitions=(PLACE,))),
    (ranking, replace(RANKING, definitions=(replace(DEFINITION, path="c.py"),))),
    (ranking, replace(RANKING, definitions=(replace(DEFINITION, span=None),))),
    (ranking, replace(RANKING, definitions=(replace(DEFINITION, name=Lying("f")),))),
    (ranking, replace(RANKING, definitions=(replace(DEFINITION, score=2.0),))),
    (ranking, replace(RANKING, definitions=(replace(DEFINITION, reasons=(7,)),))),
    (ranking, replace(RANKING, definitions=itertools.repeat(DEFINITION))),
    (choices, [PLACE]),
    (choices, [replace(CHOICE, place=replace(PLACE, path="b.py"))]),
    (choices, [replace(CHOICE, place=None)]),
    (choices, [replace(CHOICE, renderings=[replace(RENDERING, depth="full")])]),
    (choices, [replace(CHOICE, renderings=[replace(RENDERING, text=Lying("x"))])]),
    (choices, [replace(CHOICE, renderings=[replace(RENDERING, value=-1.0)])]),
    (choices, [replace(CHOICE, renderings=[replace(RENDERING, value=float("nan"))])]),
    (choices, [replace(CHOICE, renderings=[replace(RENDERING, text="x" * 9_000_000)])]),
    (choices, [replace(CHOICE, renderings=itertools.repeat(RENDERING))]),
    (packing, [PACKED, PACKED]),
    (packing, [replace(PACKED, rendering=replace(RENDERING, text="other"))]),
    (packing, [replace(PACKED, place=replace(PLACE, path="b.py"))]),
    (order, []),
    (order, [PACKED, PACKED]),
    (order, [replace(PACKED, place=replace(PLACE, path="b.py"))]),
    (text, None),
    (text, Lying("short")),
    (text, "longer than ten"),
]


@pytest.mark.parametrize(("check", "answer"), NONSENSE)
def test_invalid_answers_raise(check: Callable[[Any], Any], answer: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        check(answer)


def test_at_most_one_rendering_per_choice_is_packed_within_the_room() -> None:
    small = replace(RENDERING, text="s", tokens=1)
    both = Choice(PLACE, (small, RENDERING))
    with pytest.raises(ValueError, match="twice"):
        checks.checked_packing([PackedFragment(PLACE, small), PACKED], [both, both], 10)
    with pytest.raises(ValueError, match="more than 3 tokens"):
        checks.checked_packing([PACKED], [CHOICE], 3)
