"""Depths: places are shown whole, nothing is shown twice, and unreadable files appear by path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.code_index import CodePlace
from cleveragents.context.model.code import Chunk, Definition, FileAnalysis, LineSpan
from cleveragents.context.model.context import Choice, Depth, RankedPlace, Ranking
from cleveragents.context.pipeline.depths import WholeDefinitions
from cleveragents.context.pipeline.packer import GreedyPacker
from cleveragents.context.pipeline.renderings import LineUnit, printable, unit_of, without_crossings
from cleveragents.models.tokens import estimate_text
from cleveragents.testing.code_index import MemorySnapshot

PLACE = CodePlace(Path("/nowhere"))
SHOP = '''"""A shop."""

LIMIT = 10
TABLE = {
    "a": 1,
}


class Basket:
    """Holds what is bought."""

    size = 0

    def add(self, thing):
        """Puts one thing in."""
        self.size += 1
        return thing

    # Takes one thing out.
    def drop(self, thing):
        self.size -= 1


def pay(
    basket,
    card,
):
    """Takes the money."""
    total = basket.size
    return total * LIMIT
'''
LINES = SHOP.split("\n")
FILLER = "".join(f"def filler{n}(a, b):\n    return a + {n} * b\n\n\n" for n in range(60))


def lines_of(first: str, last: str) -> LineSpan:
    """Return the span from the line with `first` to the line with `last`."""
    at = next(n for n, line in enumerate(LINES, 1) if first in line)
    return LineSpan(at, next(n for n, line in enumerate(LINES, 1) if last in line and n >= at))


def offered(texts: dict[str, str], *places: tuple[str, LineSpan | None], room: int = 4000) -> list[Choice]:
    """Return the choices for these places; their files are ranked in the same order."""
    code = MemorySnapshot(texts, PLACE)
    ranked = [RankedPlace(path, span, 1.0 - number / 100) for number, (path, span) in enumerate(places)]
    files = {place.path: RankedPlace(place.path, None, place.score) for place in reversed(ranked)}
    ranking = Ranking(
        tuple(sorted(files.values(), key=lambda place: -place.score)),
        tuple(place for place in ranked if place.span is not None),
    )
    return list(WholeDefinitions(room).choices(ranking, code, estimate_text))


def shown(choice: Choice) -> dict[Depth, str]:
    return {rendering.depth: rendering.text for rendering in choice.renderings}


# ── the text at each depth ────────────────────────────────────────────────────────────────────────────


def test_a_short_file_is_offered_at_every_depth_and_whole() -> None:
    (choice,) = offered({"shop.py": SHOP}, ("shop.py", None))
    depths = shown(choice)
    assert list(depths) == list(Depth)
    assert depths[Depth.PATH] == "### shop.py"
    assert depths[Depth.MEMBERS].splitlines()[1] == (
        "LIMIT, TABLE, Basket, Basket.size, Basket.add, Basket.drop, pay"
    )
    assert depths[Depth.FULL] == f"### shop.py\n{SHOP.rstrip()}"


def test_signatures_are_whole_and_keep_their_nesting() -> None:
    (choice,) = offered({"shop.py": SHOP}, ("shop.py", None))
    assert shown(choice)[Depth.SIGNATURES].splitlines() == [
        "### shop.py (signatures)",
        "LIMIT = 10",
        "TABLE = { …",
        "class Basket:",
        "    size = 0",
        "    def add(self, thing):",
        "    def drop(self, thing):",
        "def pay(",
        "    basket,",
        "    card,",
        "):",
    ]


def test_an_outline_has_the_first_line_of_what_a_definition_says_of_itself() -> None:
    (choice,) = offered({"shop.py": SHOP}, ("shop.py", None))
    outline = shown(choice)[Depth.OUTLINE].splitlines()
    assert outline[outline.index("class Basket:") + 1] == '    """Holds what is bought."""'
    assert outline[outline.index("    def drop(self, thing):") - 1] == "    # Takes one thing out."
    assert '    """Takes the money."""' in outline


def test_an_outline_has_words_and_no_bare_quotes_and_takes_no_directive_for_a_comment() -> None:
    python = 'def pay(card):\n    """\n    Takes the money.\n    """\n    return card\n'
    (choice,) = offered({"pay.py": python}, ("pay.py", None))
    assert shown(choice)[Depth.OUTLINE].splitlines()[1:] == ["def pay(card):", '    """Takes the money.']
    pay, back = "int pay(int a) {\n  return a;\n}", "int back(void) {\n  return 0;\n}"
    source = f"#include <stdio.h>\n{pay}\n\n// Gives back.\n{back}\n"
    (choice,) = offered({"pay.c": source}, ("pay.c", None))
    assert [line for line in shown(choice)[Depth.OUTLINE].splitlines() if line.startswith(("#i", "//"))] == [
        "// Gives back."
    ]


def test_every_rendering_is_counted_and_worth_more_the_deeper_it_is() -> None:
    (choice,) = offered({"shop.py": SHOP}, ("shop.py", None))
    renderings = choice.renderings
    assert [one.tokens for one in renderings] == [estimate_text(one.text) for one in renderings]
    assert [one.value for one in renderings] == sorted(one.value for one in renderings)


def test_a_signature_of_very_many_lines_is_named_by_its_kind() -> None:
    text = "def long(\n" + "".join(f"    a{n},\n" for n in range(40)) + "):\n    return 1\n"
    (choice,) = offered({"long.py": text}, ("long.py", None))
    assert shown(choice)[Depth.SIGNATURES].splitlines()[1:] == ["function long"]


# ── whole units ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("within", [("self.size += 1", "self.size += 1"), ("def add", "return thing")])
def test_lines_of_a_method_are_shown_as_the_whole_method(within: tuple[str, str]) -> None:
    texts = {"shop.py": SHOP + FILLER}
    choices = offered(texts, ("shop.py", lines_of(*within)), room=600)
    full = [shown(choice)[Depth.FULL] for choice in choices if Depth.FULL in shown(choice)]
    method = lines_of("def add", "return thing")
    assert [text.splitlines()[0] for text in full] == [f"### shop.py:{method.first}-{method.last} Basket.add"]
    assert full[0].splitlines()[1:] == LINES[method.first - 1 : method.last]


def test_lines_outside_of_definitions_include_definitions_they_would_cut() -> None:
    analysis = FileAnalysis(
        "text",
        30,
        definitions=(Definition("f", "function", LineSpan(10, 20), LineSpan(10, 10)),),
        chunks=(Chunk(LineSpan(1, 9), None), Chunk(LineSpan(10, 20), 0), Chunk(LineSpan(21, 30), None)),
    )
    assert unit_of(LineSpan(3, 4), analysis) == LineUnit(LineSpan(1, 9), None)
    assert unit_of(LineSpan(8, 12), analysis) == LineUnit(LineSpan(1, 20), None)
    assert unit_of(LineSpan(25, 99), analysis) == LineUnit(LineSpan(21, 30), None)
    assert unit_of(LineSpan(31, 40), analysis) is None


def test_a_function_that_is_searched_in_pieces_is_shown_whole_and_a_class_by_its_head() -> None:
    function = Definition("f", "function", LineSpan(1, 100), LineSpan(1, 1))
    pieces = (Chunk(LineSpan(1, 50), 0), Chunk(LineSpan(51, 100), 0))
    assert unit_of(LineSpan(60, 61), FileAnalysis("x", 100, (function,), (), pieces)) == LineUnit(
        LineSpan(1, 100), 0
    )
    cls = Definition("C", "class", LineSpan(1, 100), LineSpan(1, 1))
    method = Definition("m", "function", LineSpan(20, 90), LineSpan(20, 20), parent=0)
    chunks = (Chunk(LineSpan(1, 19), 0), Chunk(LineSpan(20, 91), 1), Chunk(LineSpan(92, 100), 0))
    analysis = FileAnalysis("x", 100, (cls, method), (), chunks)
    assert unit_of(LineSpan(2, 3), analysis) == LineUnit(LineSpan(1, 19), 0)
    assert unit_of(LineSpan(20, 91), analysis) == LineUnit(LineSpan(20, 90), 1)
    assert unit_of(LineSpan(10, 30), analysis) == LineUnit(LineSpan(1, 100), 0)
    cutting = FileAnalysis("x", 100, (cls, method), (), (Chunk(LineSpan(1, 40), 0),))
    assert unit_of(LineSpan(2, 3), cutting) == LineUnit(LineSpan(1, 100), 0)


def test_units_that_would_share_some_lines_are_not_both_shown() -> None:
    one, two, inner = (
        LineUnit(LineSpan(1, 10), None),
        LineUnit(LineSpan(5, 15), None),
        LineUnit(LineSpan(2, 3), None),
    )
    assert without_crossings([one, two, inner, one]) == [one, inner]


@st.composite
def analyses(draw: st.DrawFn) -> FileAnalysis:
    """Return definitions that nest as in real files, and chunks that cover the file."""
    lines = draw(st.integers(1, 60))
    definitions: list[Definition] = []

    def nest(first: int, last: int, parent: int | None, depth: int) -> None:
        at = first
        while at <= last and depth < 3 and len(definitions) < 12 and draw(st.booleans()):
            begin = draw(st.integers(at, last))
            end = draw(st.integers(begin, last))
            definitions.append(
                Definition(
                    f"d{len(definitions)}",
                    draw(st.sampled_from(["class", "function"])),
                    LineSpan(begin, end),
                    LineSpan(begin, begin),
                    parent,
                )
            )
            nest(begin + 1, end, len(definitions) - 1, depth + 1)
            at = end + 1

    nest(1, lines, None, 0)
    owner: list[int | None] = [None] * (lines + 1)
    for position, definition in enumerate(definitions):
        for line in range(definition.span.first, definition.span.last + 1):
            owner[line] = position
    chunks: list[Chunk] = []
    for line in range(1, lines + 1):
        if chunks and owner[line] == owner[line - 1]:
            chunks[-1] = Chunk(LineSpan(chunks[-1].span.first, line), owner[line])
        else:
            chunks.append(Chunk(LineSpan(line, line), owner[line]))
    return FileAnalysis("x", lines, tuple(definitions), (), tuple(chunks))


def test_a_class_within_a_function_is_not_cut_either() -> None:
    spans = [("function", LineSpan(1, 3), None), ("class", LineSpan(2, 3), 0), ("class", LineSpan(3, 3), 1)]
    definitions = tuple(
        Definition(f"d{number}", kind, span, LineSpan(span.first, span.first), parent)
        for number, (kind, span, parent) in enumerate(spans)
    )
    chunks = tuple(Chunk(LineSpan(line, line), line - 1) for line in (1, 2, 3))
    unit = unit_of(LineSpan(2, 2), FileAnalysis("x", 3, definitions, (), chunks))
    assert unit is not None
    assert unit.span == LineSpan(2, 3)


@given(analyses(), st.integers(1, 70), st.integers(0, 30))
@settings(max_examples=200, deadline=None)
def test_no_unit_cuts_a_function_in_half_and_every_unit_has_the_lines_asked_for(
    analysis: FileAnalysis, first: int, length: int
) -> None:
    span = LineSpan(first, first + length)
    unit = unit_of(span, analysis)
    if unit is None:
        assert first > analysis.lines
        return
    assert unit.span.contains(LineSpan(first, min(span.last, analysis.lines)))
    for one in analysis.definitions:
        apart = one.span.last < unit.span.first or unit.span.last < one.span.first
        whole = unit.span.contains(one.span)
        around = one.span.contains(unit.span)
        assert apart or whole or around
        if around and not whole and one.kind == "function":
            inner = [other for other in analysis.definitions if one.span.contains(other.span)]
            assert (
                any(other is not one and other.span == unit.span for other in inner) or unit.span == one.span
            )


# ── nothing twice, nothing too much ───────────────────────────────────────────────────────────────────


def test_a_long_file_is_offered_by_places() -> None:
    choices = offered({"shop.py": SHOP + FILLER}, ("shop.py", lines_of("def pay", "return total")), room=600)
    assert Depth.FULL not in shown(choices[0])
    assert Depth.FULL in shown(choices[1])


def test_the_best_definition_is_worth_more_in_full_than_many_small_ones() -> None:
    """Also when it is long; and lines outside of definitions are worth least."""
    big = "def big(a):\n" + "".join(f"    a = a * {n}\n" for n in range(25))
    small = "".join(f"def small{n}(a):\n    return a\n\n\n" for n in range(30))
    source = f"import os\nimport sys\n\n\n{big}\n\n{small}"
    lines = source.split("\n")
    places = [RankedPlace("a.py", _span(lines, f"def small{n}("), 0.4) for n in range(8)]
    places += [RankedPlace("a.py", _span(lines, "def big("), 1.0), RankedPlace("a.py", LineSpan(1, 2), 0.9)]
    ranking = Ranking((RankedPlace("a.py", None, 1.0),), tuple(sorted(places, key=lambda one: -one.score)))
    code = MemorySnapshot({"a.py": source}, PLACE)
    choices = WholeDefinitions(400).choices(ranking, code, estimate_text)
    packed = GreedyPacker().pack(choices, 400)
    full = [one.place.span for one in packed if one.rendering.depth is Depth.FULL]
    assert _span(lines, "def big(") in full
    worth = {choice.place.span: max(one.value for one in choice.renderings) for choice in choices}
    assert worth[LineSpan(1, 4)] < worth[_span(lines, "def small0(")] < worth[_span(lines, "def big(")]


def _span(lines: list[str], head: str) -> LineSpan:
    first = next(number for number, line in enumerate(lines, start=1) if line.startswith(head))
    last = next(number for number in range(first, len(lines) + 1) if not lines[number].strip())
    return LineSpan(first, last)


def test_of_a_class_and_its_method_only_the_method_is_offered_in_full() -> None:
    method, cls = lines_of("def add", "return thing"), lines_of("class Basket", "self.size -= 1")
    choices = offered({"shop.py": SHOP + FILLER}, ("shop.py", cls), ("shop.py", method), room=600)
    full = [choice.place.span for choice in choices if Depth.FULL in shown(choice)]
    assert full == [method]


def test_two_places_of_one_definition_are_one_choice() -> None:
    one, other = lines_of("self.size += 1", "self.size += 1"), lines_of("return thing", "return thing")
    choices = offered({"shop.py": SHOP + FILLER}, ("shop.py", one), ("shop.py", other), room=600)
    assert len(choices) == 2


def test_a_definition_that_is_too_large_is_shown_by_the_deepest_whole_depth() -> None:
    big = "def big(a):\n    '''Does much.'''\n" + "".join(f"    a = a * {n}\n" for n in range(500))
    choices = offered({"big.py": big}, ("big.py", LineSpan(100, 101)), room=120)
    texts = [one.rendering.text for one in GreedyPacker().pack(choices, 120)]
    assert any("def big(a):" in text for text in texts)
    assert not any("a = a * 1\n" in text for text in texts)


def test_after_three_times_the_room_files_are_offered_by_path_alone() -> None:
    texts = {f"f{n}.py": SHOP for n in range(9)}
    texts = {path: f"{text}\nname = {path!r}\n" for path, text in texts.items()}
    choices = offered(texts, *((path, None) for path in texts), room=100)
    assert [len(choice.renderings) > 1 for choice in choices] == sorted(
        (len(choice.renderings) > 1 for choice in choices), reverse=True
    )
    assert list(shown(choices[-1])) == [Depth.PATH]


# ── very many definitions ─────────────────────────────────────────────────────────────────────────────

ABOUT = "how does the zanzibar rotation procedure work?"
MANY = "".join(f"def f{n}(): pass\n" for n in range(300)) + (
    "class Harbour:\n    def find_zanzibar(self): pass\n    def leave(self): pass\n"
)


@pytest.mark.parametrize(
    ("question", "named"),
    [(ABOUT, LineSpan(1, 1)), ("why?", LineSpan(302, 302))],
    ids=["by the question's words", "by the lines that were found"],
)
def test_relevant_definitions_are_named_with_their_parents(question: str, named: LineSpan) -> None:
    ranking = Ranking((RankedPlace("many.py", None, 1.0),), (RankedPlace("many.py", named, 1.0),))
    code = MemorySnapshot({"many.py": MANY}, PLACE)
    choice = WholeDefinitions(2000, question).choices(ranking, code, estimate_text)[0]
    names = shown(choice)[Depth.MEMBERS].splitlines()[1]
    assert names.startswith("f0, f1, ")
    assert names.endswith("Harbour, Harbour.find_zanzibar, and 243 more")
    signatures = shown(choice)[Depth.SIGNATURES].splitlines()
    assert signatures[-3:] == ["class Harbour:", "    def find_zanzibar(self): pass", "… and 103 more"]


# ── long texts ────────────────────────────────────────────────────────────────────────────────────────

PARAGRAPH = "Turn the wheel twice a day.\n"
GUIDE = "# Guide\n\n" + "".join(
    f"## {'Zanzibar rotation' if n == 300 else f'Procedure {n}'}\n\n{PARAGRAPH}It is the part {n}.\n\n"
    for n in range(400)
)
NOTES = "".join(f"line {n} of many\n" for n in range(514)).replace("line 444 of", "the zanzibar rotation of")


def sections(path: str, text: str, question: str = ABOUT, room: int = 2000) -> list[Choice]:
    ranking = Ranking((RankedPlace(path, None, 1.0),))
    code = MemorySnapshot({path: text}, PLACE)
    return list(WholeDefinitions(room, question).choices(ranking, code, estimate_text))


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [("guide.md", GUIDE, "It is the part 300."), ("notes.txt", NOTES, "the zanzibar rotation of many")],
)
def test_a_long_text_is_shown_by_its_matching_sections(path: str, text: str, said: str) -> None:
    packed = GreedyPacker().pack(sections(path, text), 2000)
    shown_whole = [one for one in packed if one.rendering.depth is Depth.FULL]
    assert said in shown_whole[0].rendering.text
    assert shown_whole[0].rendering.text.startswith(f"### {path}:")
    assert len(shown_whole) <= 6


def test_a_text_that_fits_is_shown_whole_and_an_irrelevant_one_outlined() -> None:
    (whole,) = sections("guide.md", GUIDE, room=100_000)
    assert shown(whole)[Depth.FULL].endswith("It is the part 399.\n")
    (outlined,) = sections("guide.md", GUIDE, question="where is Berlin?")
    assert Depth.FULL not in shown(outlined)


def test_a_long_text_is_shown_by_the_lines_that_strategies_named() -> None:
    code = MemorySnapshot({"notes.txt": NOTES}, PLACE)
    ranking = Ranking(
        (RankedPlace("notes.txt", None, 1.0),), (RankedPlace("notes.txt", LineSpan(10, 11), 1.0),)
    )
    choices = WholeDefinitions(1000, ABOUT).choices(ranking, code, estimate_text)
    assert [one.place.span for one in choices if Depth.FULL in shown(one)] == [LineSpan(1, 60)]


def test_a_long_source_is_shown_by_definitions_not_by_sections() -> None:
    choices = sections("long.py", FILLER, question="where is filler7?", room=300)
    assert [one.place.span for one in choices] == [None]


# ── texts without a file, and unreadable files ────────────────────────────────────────────────────────


def test_a_text_that_is_no_file_is_shown_whole_or_by_its_name() -> None:
    place = RankedPlace("decision 3", None, 1.0, (), "Use SQLite.")
    (choice,) = WholeDefinitions(100).choices(Ranking((), (place,)), MemorySnapshot({}, PLACE), estimate_text)
    assert shown(choice) == {Depth.PATH: "### decision 3", Depth.FULL: "### decision 3\nUse SQLite."}
    long = RankedPlace("decision 4", None, 1.0, (), "x " * 5000)
    (choice,) = WholeDefinitions(100).choices(Ranking((), (long,)), MemorySnapshot({}, PLACE), estimate_text)
    assert list(shown(choice)) == [Depth.PATH]


class Broken(MemorySnapshot):
    """A snapshot that reads nothing."""

    def text(self, path: str) -> str:
        raise OSError("gone")


class Nonsense(MemorySnapshot):
    """A snapshot with definitions that no file has."""

    def analyses(self, documents: Any) -> Any:
        nonsense: Any = (None,)
        return {document: FileAnalysis("x", 5, nonsense) for document in documents}


@pytest.mark.parametrize("kind", [Broken, Nonsense])
def test_an_unreadable_or_inconsistent_file_is_offered_by_path(kind: type[MemorySnapshot]) -> None:
    code = kind({"a.py": SHOP, "b.py": "x = 1\n"}, PLACE)
    ranking = Ranking(tuple(RankedPlace(path, None, 1.0) for path in ("a.py", "b.py", "not-there.py")))
    choices = WholeDefinitions(1000).choices(ranking, code, estimate_text)
    assert [list(shown(choice)) for choice in choices] == [[Depth.PATH]] * 3


def test_binary_and_empty_files_have_a_path_only() -> None:
    choices = offered({"a.bin": "\0\1\2", "empty.py": "\n \n"}, ("a.bin", None), ("empty.py", None))
    assert [list(shown(choice)) for choice in choices] == [[Depth.PATH], [Depth.PATH]]


def test_a_path_cannot_break_out_of_its_heading() -> None:
    assert printable("a\n### b\x1b[31m.py") == "a\ufffd### b\ufffd[31m.py"
    (choice,) = offered({"a\nb.py": "x = 1\n"}, ("a\nb.py", None))
    assert shown(choice)[Depth.PATH] == "### a\ufffdb.py"


def test_a_file_with_very_many_definitions_says_how_many_are_left_out() -> None:
    text = "".join(f"def f{n}(): pass\n" for n in range(300))
    (choice,) = offered({"many.py": text}, ("many.py", None), room=10000)
    assert shown(choice)[Depth.MEMBERS].endswith(", and 240 more")
    assert shown(choice)[Depth.SIGNATURES].endswith("… and 100 more")
