"""Corrections of one line, as a small model writes them, and what is never done with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.tools.line_edits import LineEdits
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace

ANSWERS = Path(__file__).parents[2] / "answers" / "qwen2.5-coder-1.5b" / "corrections.jsonl"
CODE = "def count(s, t, i, j, dp):\n    if s[i] == t[j]:\n        dp[i, j] = dp[i - 1, j] + 1\n"
TEST = "def test_count():\n    assert lcs_length(*input_data) == expected\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "lcs.py").write_text(CODE)
    (tmp_path / "test_lcs.py").write_text(TEST)
    return tmp_path


def correct(root: Path, wrong: str, corrected: str, shown: str = "lcs.py test_lcs.py") -> dict[str, Any]:
    place = Workplace(ConfinedFiles(root), cast("Any", None), CancellationToken())
    arguments = {"wrong_line": wrong, "corrected_line": corrected, "shown": shown, "goal": "Fix lcs.py"}
    return cast("dict[str, Any]", LineEdits().call(arguments, place))


def test_of_the_answers_of_a_model_only_the_right_one_changes_the_file(root: Path) -> None:
    answers = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
    outcomes = [correct(root, answer["wrong_line"], answer["corrected_line"]) for answer in answers]
    assert [list(outcome["changed"]) for outcome in outcomes] == [[], [], [], [], ["lcs.py: line 3"]]
    assert all(outcome["problems"] for outcome in outcomes[:-1])
    assert (root / "lcs.py").read_text() == CODE.replace("dp[i - 1, j]", "dp[i - 1, j - 1]")
    assert (root / "test_lcs.py").read_text() == TEST


def test_several_lines_get_the_indentation_of_the_old_line(root: Path) -> None:
    correct(root, "if s[i] == t[j]:", "if s:\n    pass\nif s[i] == t[j]:")
    assert (root / "lcs.py").read_text().splitlines()[1:4] == [
        "    if s:",
        "        pass",
        "    if s[i] == t[j]:",
    ]


def test_line_endings_stay(root: Path) -> None:
    (root / "lcs.py").write_bytes(CODE.replace("\n", "\r\n").encode())
    correct(root, "dp[i, j] = dp[i - 1, j] + 1", "dp[i, j] = 1")
    assert (root / "lcs.py").read_bytes().endswith(b"        dp[i, j] = 1\r\n")


def test_a_line_that_does_not_compile_is_refused(root: Path) -> None:
    assert "would not compile" in correct(root, "if s[i] == t[j]:", "if s[i] ==:")["problems"][0]
    assert (root / "lcs.py").read_text() == CODE


def test_tests_and_files_that_were_not_shown_stay(root: Path) -> None:
    assert correct(root, "assert lcs_length(*input_data) == expected", "pass")["problems"]
    assert correct(root, "if s[i] == t[j]:", "if s:", shown="test_lcs.py")["problems"]
    assert (root / "lcs.py").read_text() == CODE
    assert (root / "test_lcs.py").read_text() == TEST


def test_a_line_in_two_files_is_refused(root: Path) -> None:
    (root / "other.py").write_text(CODE)
    assert correct(root, "if s[i] == t[j]:", "if s:", shown="lcs.py other.py")["problems"] == [
        "several files have this line"
    ]


def test_a_line_that_occurs_twice_in_a_file_is_refused(root: Path) -> None:
    (root / "twice.py").write_text("def a():\n    return 1\n\n\ndef b():\n    return 1\n")
    problem = "the line occurs 2 times in twice.py; correct another line"
    assert correct(root, "return 1", "return 2", shown="twice.py")["problems"] == [problem]


@pytest.mark.parametrize("content", [b"\x89PNG\x00\xff", b"caf\xe9\n"])
def test_a_shown_file_that_is_not_text_has_no_lines(root: Path, content: bytes) -> None:
    (root / "logo.png").write_bytes(content)
    assert correct(root, "if s[i] == t[j]:", "if s:", shown="logo.png lcs.py")["changed"] == [
        "lcs.py: line 2"
    ]


@pytest.mark.parametrize("separator", ["\u2028", "\x0c", "\x85"])
def test_only_a_line_feed_ends_a_line(root: Path, separator: str) -> None:
    """A line that ends in another separator is not joined with the next one."""
    (root / "a.js").write_text(f"let a = '{separator}';{separator}\nlet b;\n", encoding="utf-8")
    assert correct(root, f"let a = '{separator}';", f"let a = '{separator}!';", shown="a.js")["changed"]
    assert (root / "a.js").read_text(encoding="utf-8") == f"let a = '{separator}!';\nlet b;\n"


def test_a_byte_order_mark_stays(root: Path) -> None:
    (root / "mark.py").write_bytes(b"\xef\xbb\xbfx = 1\ny = 2\n")
    assert correct(root, "x = 1", "x = 3", shown="mark.py")["changed"] == ["mark.py: line 1"]
    assert correct(root, "\ufeffx = 3", "\ufeffx = 4", shown="mark.py")["changed"] == ["mark.py: line 1"]
    assert (root / "mark.py").read_bytes() == b"\xef\xbb\xbfx = 4\ny = 2\n"


def test_an_empty_or_unchanged_line_is_refused(root: Path) -> None:
    assert correct(root, " ", "pass")["problems"]
    assert correct(root, "if s[i] == t[j]:", " if s[i] == t[j]: ")["problems"]
