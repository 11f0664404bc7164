"""`edit` and `multi_edit`: an exact replacement, or a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleveragents.core.errors import Cancelled, EditMismatch, InvalidToolCall, ToolRefused
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.tools.builtin.edit import TOOL as EDIT
from cleveragents.tools.builtin.multi_edit import TOOL as MULTI_EDIT
from cleveragents.tools.builtin.read import TOOL as READ
from cleveragents.tools.builtin.write import TOOL as WRITE
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.files.exact_edit import ExactEdit
from cleveragents.tools.ports import Workplace

CODE = "import os\n\n\ndef first(a):\n    return a\n\n\ndef second(b):\n    if b:\n        return first(b)\n"

Call = Callable[..., dict[str, Any]]


def no_commands(*_: object, **__: object) -> Any:
    raise AssertionError("no command is run here")


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(ConfinedFiles(tmp_path), no_commands, CancellationToken())


@pytest.fixture
def edit(place: Workplace) -> Call:
    return lambda **arguments: EDIT.call({"path": "a.py", **arguments}, place)


def diagnosis(text: str, old: str, new: str = "something else entirely") -> str:
    with pytest.raises(EditMismatch) as mismatch:
        ExactEdit(old, new).apply("a.py", text)
    assert str(mismatch.value).startswith("a.py: ")
    assert str(mismatch.value).endswith("; nothing was changed")
    return mismatch.value.diagnosis


def test_replaces_the_text_and_reports_the_line(tmp_path: Path, edit: Call) -> None:
    (tmp_path / "a.py").write_text(CODE)
    done = edit(old="    return a\n", new="    return a + 1\n")
    assert (tmp_path / "a.py").read_text() == CODE.replace("return a\n", "return a + 1\n")
    assert (done["replacements"], done["lines"]) == (1, [5])


def test_replaces_all_places_with_count_all(tmp_path: Path, edit: Call) -> None:
    (tmp_path / "a.py").write_text(CODE)
    done = edit(old="return", new="yield", count="all")
    assert (tmp_path / "a.py").read_text() == CODE.replace("return", "yield")
    assert (done["replacements"], done["lines"]) == (2, [5, 10])


def test_refuses_an_ambiguous_place(tmp_path: Path, edit: Call) -> None:
    (tmp_path / "a.py").write_text(CODE)
    with pytest.raises(EditMismatch, match=r"occurs 2 times \(line 5, 10\)"):
        edit(old="return", new="yield")
    assert (tmp_path / "a.py").read_text() == CODE


def test_overlapping_occurrences_are_ambiguous() -> None:
    assert "occurs 2 times" in diagnosis("aaa", "aa")
    assert ExactEdit("aa", "b", "all").apply("a.py", "aaa").text == "ba"


def test_very_many_places_are_not_all_counted() -> None:
    assert "20 times or more" in diagnosis("x\n" * 1_000_000, "x\n")


def test_the_first_line_that_differs_is_shown_with_both_sides() -> None:
    """holon-run/holon#2741: patches failed for a mismatch whose place was not shown."""
    old = "def second(b):\n    if c:\n        return first(b)\n"
    assert diagnosis(CODE, old) == (
        "`old` differs from the file at line 9 (line 2 of `old`): expected '    if c:', found '    if b:'"
    )


def test_a_long_block_is_located_by_its_matching_lines() -> None:
    """holon-run/holon#2741: most failures were in blocks of several thousand characters."""
    lines = [f"    value_{number} = compute({number})" for number in range(500)]
    text = "\n".join(lines)
    wrong = list(lines[100:400])
    wrong[217] = "    value_317 = compute(318)"
    found = diagnosis(text, "\n".join(wrong))
    assert "line 318 (line 218 of `old`)" in found
    assert "compute(318)" in found
    assert "compute(317)" in found


def test_missing_and_extra_lines_are_located() -> None:
    found = diagnosis("aa\nbb\nxx\ncc\ndd", "aa\nbb\ncc\ndd")
    assert "line 3 (line 3 of `old`): expected 'cc', found 'xx'" in found
    assert "after the file ends: 'zz'" in diagnosis("aa\nbb", "aa\nbb\nzz")
    assert "before the file begins: 'zz'" in diagnosis("aa\nbb", "zz\naa\nbb")


@pytest.mark.parametrize(
    ("text", "old", "kind"),
    [
        ("def f():\n\treturn 1\n", "def f():\n    return 1\n", "only the indentation differs"),
        ("a = 1\nb = 2  \n", "a = 1\nb = 2\n", "only trailing whitespace differs"),
        ("a = f( x )\n", "a = f(x)\n", "only whitespace differs"),
        ("a\r\nb\nc\r\n", "a\nb\n", "only the line ending differs"),
        ("f(a,\n  b)\n", "f(a, b)", "only blanks and line breaks differ"),
    ],
)
def test_a_whitespace_difference_is_named(text: str, old: str, kind: str) -> None:
    assert kind in diagnosis(text, old)


def test_a_single_line_is_compared_with_the_most_similar_one() -> None:
    found = diagnosis(CODE, "def frist(a):")
    assert "line 4" in found
    assert "found 'def first(a):'" in found


def test_a_long_line_is_shown_where_it_differs() -> None:
    text = "x = [" + "1, " * 1000 + "2, " + "1, " * 1000 + "]"
    found = diagnosis(text, text.replace("2", "3"))
    assert "3, " in found
    assert "2, " in found
    assert len(found) < 600


def test_a_text_without_similar_lines_is_reported() -> None:
    assert (
        diagnosis(CODE, "class Unheard:\n    pass") == "no line of the file resembles the first line of `old`"
    )
    assert "no line" in diagnosis("abc", "\n\n\n")
    assert diagnosis("", "a") == "the file is empty"


def test_an_edit_already_made_is_recognised() -> None:
    """cardstack/boxel#6101: a model never learned that its patch had failed, and repeated it."""
    once = ExactEdit("    return a\n", "    return a + 1\n").apply("a.py", CODE).text
    found = diagnosis(once, "    return a\n", "    return a + 1\n")
    assert "line 5" in found
    assert "`new` already exists at line 5: was this edit already made?" in found


def test_a_stale_edit_reverts_nothing(tmp_path: Path, edit: Call, place: Workplace) -> None:
    """griffinwork40/agent-afk#2028: an edit made from an old view silently reverted later changes."""
    (tmp_path / "a.py").write_text(CODE)
    seen: Any = READ.call({"path": "a.py"}, place)
    edit(old="return a\n", new="return a + 1\n")
    after = (tmp_path / "a.py").read_text()
    with pytest.raises(EditMismatch):
        edit(old="def first(a):\n    return a\n", new="def first(a, c):\n    return a\n")
    for stale in (
        lambda: edit(old="import os", new="import sys", expected_sha256=seen["sha256"]),
        lambda: WRITE.call({"path": "a.py", "content": CODE, "expected_sha256": seen["sha256"]}, place),
        lambda: MULTI_EDIT.call(
            {"path": "a.py", "edits": [{"old": "os", "new": "sys"}], "expected_sha256": seen["sha256"]}, place
        ),
    ):
        with pytest.raises(ToolRefused, match="changed since it was read"):
            stale()
    assert (tmp_path / "a.py").read_text() == after
    now: Any = READ.call({"path": "a.py"}, place)
    again = edit(old="import os", new="import sys", expected_sha256=now["sha256"].upper())
    assert edit(old="import sys", new="import os", expected_sha256=again["sha256"])["replacements"] == 1


def test_line_endings_are_not_guessed(tmp_path: Path, edit: Call) -> None:
    text = CODE.replace("\n", "\r\n")
    (tmp_path / "a.py").write_bytes(text.encode())
    old, new = "def first(a):\n    return a\n", "def first(a):\n    return 2\n"
    with pytest.raises(
        EditMismatch, match=r'only the line endings differ, from line 4 on: .* line_endings "file"'
    ):
        edit(old=old, new=new)
    with pytest.raises(EditMismatch, match="`new` has LF line endings, but the file has CRLF"):
        edit(old="import os", new="import os\nimport sys")
    assert (tmp_path / "a.py").read_bytes() == text.encode()
    edit(old=old, new=new, line_endings="file")
    assert (tmp_path / "a.py").read_bytes() == text.replace("return a\r", "return 2\r").encode()
    edit(old="import os\r\n", new="import sys\r\n")
    edit(old="import sys", new="import re")


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
        ("a\r\nb\n", "a\r\nb", "x\r\ny", "x\r\ny\n"),
        ("ab", "a", "x\ny", "x\nyb"),
    ],
)
def test_uses_the_files_line_endings_only_if_they_are_uniform(
    text: str, old: str, new: str, after: str
) -> None:
    assert ExactEdit(old, new, endings="file").apply("a.py", text).text == after


def test_refuses_an_edit_without_a_change(tmp_path: Path, edit: Call) -> None:
    (tmp_path / "a.py").write_text("a\n")
    with pytest.raises(EditMismatch, match="are the same"):
        edit(old="a", new="a")
    with pytest.raises(InvalidToolCall, match="'old'"):
        edit(old="", new="a")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"a\0b", "binary"), (b"caf\xe9", r"not UTF-8 text \(byte 3\)"), (None, "does not exist")],
)
def test_refuses_to_edit_binary_files(tmp_path: Path, edit: Call, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "a.py").write_bytes(content)
    with pytest.raises(ToolRefused, match=f"^edit: .*{reason}"):
        edit(old="a", new="b")


def test_huge_lines_are_edited_and_diagnosed_in_bounded_time(tmp_path: Path, edit: Call) -> None:
    line = "é" * 2_500_000
    (tmp_path / "a.py").write_text(line + "ü", encoding="utf-8")
    with pytest.raises(EditMismatch):
        edit(old="ää", new="ö")
    edit(old="ü", new="\ufeff")
    assert (tmp_path / "a.py").read_text(encoding="utf-8") == line + "\ufeff"


def test_several_edits_are_applied_in_order(tmp_path: Path, place: Workplace) -> None:
    (tmp_path / "a.py").write_text("one\n")
    edits = [{"old": "one", "new": "two two"}, {"old": "two", "new": "three", "count": "all"}]
    done: Any = MULTI_EDIT.call({"path": "a.py", "edits": edits}, place)
    assert (tmp_path / "a.py").read_text() == "three three\n"
    assert done["replacements"] == [1, 2]


def test_one_failing_edit_is_named_and_cancels_all(tmp_path: Path, place: Workplace) -> None:
    (tmp_path / "a.py").write_text("one\n")
    edits = [{"old": "one", "new": "two"}, {"old": "one", "new": "three"}]
    with pytest.raises(EditMismatch, match="edit 2 of 2: "):
        MULTI_EDIT.call({"path": "a.py", "edits": edits}, place)
    assert (tmp_path / "a.py").read_text() == "one\n"
    assert place.files.touched() == ()


def test_a_cancelled_call_edits_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    stop = CancellationToken()
    stop.cancel("enough")
    place = Workplace(ConfinedFiles(tmp_path), no_commands, stop)
    with pytest.raises(Cancelled):
        MULTI_EDIT.call({"path": "a.py", "edits": [{"old": "one", "new": "two"}]}, place)
    assert (tmp_path / "a.py").read_text() == "one\n"


TEXT = st.text(alphabet="ab \t\n\ré\u2028", max_size=30)


@given(TEXT, TEXT, TEXT, TEXT)
def test_nothing_but_the_replaced_text_changes(before: str, old: str, after: str, new: str) -> None:
    text = before + old + after
    try:
        edited = ExactEdit(old or "a", new).apply("f", text).text
    except EditMismatch:
        return
    place = text.find(old or "a")
    assert edited == text[:place] + new + text[place + len(old or "a") :]


@given(TEXT, st.text(alphabet="ab\n", min_size=1, max_size=3), TEXT)
def test_all_places_are_replaced_as_python_does(text: str, old: str, new: str) -> None:
    try:
        edited = ExactEdit(old, new, "all").apply("f", text)
    except EditMismatch:
        assert old == new or old not in text or "\r\n" in text
        return
    assert edited.text == text.replace(old, new)
    assert edited.replacements == text.count(old)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.text(alphabet="abc\n", min_size=1, max_size=20),
    st.lists(
        st.tuples(st.text(alphabet="abc", min_size=1, max_size=2), st.text(alphabet="abcd", max_size=2)),
        min_size=1,
        max_size=4,
    ),
)
def test_all_edits_are_made_or_none(
    tmp_path: Path, place: Workplace, text: str, edits: list[tuple[str, str]]
) -> None:
    (tmp_path / "a.py").write_bytes(text.encode())
    expected = text
    possible = True
    for old, new in edits:
        possible = possible and old != new and expected.count(old) == 1 and (old + old)[1:-1].find(old) < 0
        expected = expected.replace(old, new)
    asked = {"path": "a.py", "edits": [{"old": old, "new": new} for old, new in edits]}
    try:
        MULTI_EDIT.call(asked, place)
        assert (tmp_path / "a.py").read_bytes() == expected.encode()
    except EditMismatch:
        assert not possible
        assert (tmp_path / "a.py").read_bytes() == text.encode()
