"""`grep` and `replace`: their matches, their changes, and that no pattern hangs them."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleveragents.core.errors import Cancelled, InvalidToolCall, StoreFull, ToolRefused
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.tools.builtin import replace as replace_module
from cleveragents.tools.builtin.grep import TOOL as GREP
from cleveragents.tools.builtin.replace import TOOL as REPLACE
from cleveragents.tools.files import file_search, matchers, regex_program
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace

Call = Callable[..., Any]


def no_commands(*_: object, **__: object) -> Any:
    raise AssertionError("no command is run here")


@pytest.fixture
def stop() -> CancellationToken:
    return CancellationToken()


@pytest.fixture
def place(tmp_path: Path, stop: CancellationToken) -> Workplace:
    return Workplace(ConfinedFiles(tmp_path), no_commands, stop)


@pytest.fixture
def grep(place: Workplace) -> Call:
    return lambda pattern, **options: GREP.call({"pattern": pattern, **options}, place)


@pytest.fixture
def replace(place: Workplace) -> Call:
    return lambda pattern, replacement, **options: REPLACE.call(
        {"pattern": pattern, "replacement": replacement, **options}, place
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\nThree\r\n")
    (tmp_path / "src" / "b.py").write_text("def two():\n    return 'two'\n")
    (tmp_path / "binary").write_bytes(b"two\0two")
    (tmp_path / "latin").write_bytes(b"two \xe9")
    (tmp_path / "link").symlink_to("a.txt")
    return tmp_path


def found(result: Any) -> list[tuple[str, int, str]]:
    return [(match["path"], match["line"], match["text"]) for match in result["matches"]]


@pytest.mark.parametrize("fixed", [True, False])
def test_lines_are_found_in_order_of_path(files: Path, grep: Call, fixed: bool) -> None:
    result = grep("two", fixed=fixed)
    assert found(result) == [
        ("a.txt", 2, "two"),
        ("src/b.py", 1, "def two():"),
        ("src/b.py", 2, "    return 'two'"),
    ]
    assert (result["files"], result["truncated"], result["note"]) == (2, False, "")
    assert [skipped["path"] for skipped in result["skipped"]] == ["latin"]
    assert "not UTF-8" in result["skipped"][0]["reason"]


def test_an_expression_matches_lines_with_any_ending(files: Path, grep: Call) -> None:
    assert found(grep("^t.o$")) == [("a.txt", 2, "two")]
    assert found(grep("t.o$")) == [("a.txt", 2, "two")]
    assert found(grep("^THREE", ignore_case=True)) == [("a.txt", 3, "Three")]
    assert found(grep("three", ignore_case=True, fixed=True)) == [("a.txt", 3, "Three")]
    assert found(grep("t.o", fixed=True)) == []


def test_selects_files_and_shows_context_lines(files: Path, grep: Call) -> None:
    result = grep("two", glob="*.txt", context=1)
    assert result["matches"] == [
        {"path": "a.txt", "line": 2, "text": "two", "before": ["one"], "after": ["Three"]}
    ]
    assert result["files"] == 1


@pytest.mark.parametrize("fixed", [True, False])
def test_truncated_results_are_marked(files: Path, grep: Call, fixed: bool) -> None:
    assert grep("two", max_results=3, fixed=fixed)["truncated"] is False
    for most in (1, 2):
        cut = grep("two", max_results=most, fixed=fixed)
        assert len(cut["matches"]) == most
        assert (cut["truncated"], cut["note"]) == (True, f"there are more than {most} matches")


def test_a_huge_line_is_searched_and_shown_partially(tmp_path: Path, grep: Call) -> None:
    (tmp_path / "a").write_text("x" * 5_000_000 + "y")
    for fixed in (True, False):
        (match,) = grep("xy", fixed=fixed)["matches"]
        assert match["text"] == "x" * 500 + "…"


def test_a_too_large_file_is_skipped_and_named(
    files: Path, grep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_search, "SEARCHED_FILE_LIMIT_BYTES", 20)
    result = grep("two", glob="*.py")
    assert result["matches"] == []
    assert result["skipped"] == [{"path": "src/b.py", "reason": "larger than 20 bytes"}]


def children() -> set[psutil.Process]:
    """Other tests may have children as well, such as a database server: only new and remaining ones count."""
    return set(psutil.Process().children())


CATASTROPHIC = ["(a+)+b", "(a|a)*b", "(a|aa)+$b", "(.*a){20}b"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_no_expression_hangs_the_search(tmp_path: Path, grep: Call, pattern: str) -> None:
    (tmp_path / "a").write_text("a" * 5000)
    (tmp_path / "0").write_text("aab")
    others = children()
    begun = time.monotonic()
    result = grep(pattern, timeout_seconds=0.4)
    assert time.monotonic() - begun < 60
    assert result["truncated"]
    assert "the time limit was reached at " in result["note"]
    assert children() <= others


def test_a_fixed_search_has_a_time_limit_too(files: Path, grep: Call) -> None:
    result = grep("two", fixed=True, timeout_seconds=1e-9)
    assert (result["matches"], result["truncated"]) == ([], True)


class StopsLater:
    """A signal that is cancelled at the given check."""

    is_cancelled = False
    reason = "enough"

    def __init__(self, look: int) -> None:
        self.left = look

    def wait(self, timeout: float | None) -> bool:
        raise AssertionError

    def raise_if_cancelled(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Cancelled(self.reason)


def test_a_cancellation_interrupts_a_stuck_expression(tmp_path: Path) -> None:
    """It is checked every twentieth of a second, so the eighth check is long after the match began."""
    (tmp_path / "a").write_text("a" * 5000)
    place = Workplace(ConfinedFiles(tmp_path), no_commands, StopsLater(8))
    others = children()
    begun = time.monotonic()
    with pytest.raises(Cancelled, match="enough"):
        GREP.call({"pattern": "(a+)+b", "timeout_seconds": 60}, place)
    assert time.monotonic() - begun < 50
    assert children() <= others


@pytest.mark.parametrize("pattern", ["(a", "a{2,1}", "(?P<1>a)", "[z-a]", "(?<=a*)b"])
def test_refuses_an_invalid_expression_with_the_reason(files: Path, grep: Call, pattern: str) -> None:
    with pytest.raises(ToolRefused, match=r"^grep: .* is not a valid pattern: "):
        grep(pattern)


@pytest.mark.parametrize("bound", ["_BATCH_FILES", "_BATCH_CHARACTERS"])
@pytest.mark.parametrize("fixed", [True, False])
def test_files_are_searched_in_batches(
    tmp_path: Path, grep: Call, monkeypatch: pytest.MonkeyPatch, bound: str, fixed: bool
) -> None:
    monkeypatch.setattr(file_search, bound, 2)
    for number in range(5):
        (tmp_path / f"{number}").write_text("two")
    result = grep("two", fixed=fixed)
    assert [match["path"] for match in result["matches"]] == ["0", "1", "2", "3", "4"]
    assert [match["path"] for match in grep("two", fixed=fixed, max_results=3)["matches"]] == ["0", "1", "2"]


def test_a_pattern_has_a_maximum_length(grep: Call) -> None:
    for pattern in ("", "x" * 1001):
        with pytest.raises(InvalidToolCall, match="'pattern'"):
            grep(pattern)


def test_a_dead_matching_process_counts_as_a_timeout(stop: CancellationToken) -> None:
    others = children()
    with matchers.RegexMatcher("a", ignore_case=False, seconds=30, stop=stop) as matcher:
        (child,) = children() - others
        child.kill()
        child.wait()
        assert list(matcher.lines(["a", "b"], 1)) == [None]
        assert list(matcher.replace(["a"], "b")) == [None]


def test_an_unresponsive_matching_process_times_out(stop: CancellationToken) -> None:
    """Its CPU limit would never end it."""
    others = children()
    with matchers.RegexMatcher("a", ignore_case=False, seconds=2, stop=stop) as matcher:
        assert list(matcher.lines(["a", "b"], 1)) == [[0], []]
        (child,) = children() - others
        child.suspend()
        assert list(matcher.lines(["a"], 1)) == [None]


def test_a_matching_process_ends_when_its_cpu_time_is_used_up(
    stop: CancellationToken,
) -> None:
    """Its parent may have been killed and cannot end it."""
    others = children()
    with matchers.RegexMatcher("(a+)+b", ignore_case=False, seconds=1, stop=stop) as matcher:
        (child,) = children() - others
        assert list(matcher.lines(["aab", "a" * 5000, "b"], 1)) == [[0], None]
        assert child.wait(20) is not None


def test_replaces_text_in_all_matching_files(files: Path, replace: Call) -> None:
    result = replace("two", "zwei", glob="**")
    assert result["files"] == [{"path": "a.txt", "count": 1}, {"path": "src/b.py", "count": 2}]
    assert result["total"] == 3
    assert [skipped["path"] for skipped in result["skipped"]] == ["latin"]
    assert (files / "a.txt").read_bytes() == b"one\r\nzwei\r\nThree\r\n"
    assert (files / "src" / "b.py").read_text() == "def zwei():\n    return 'zwei'\n"
    assert (files / "binary").read_bytes() == b"two\0two"
    assert (files / "link").is_symlink()


def test_expressions_and_groups_are_replaced(files: Path, replace: Call) -> None:
    result = replace(r"^(\w+) (\w+)", r"\2 \1", regex=True, glob="*.py")
    assert result["total"] == 1
    assert (files / "src" / "b.py").read_text() == "two def():\n    return 'two'\n"


def test_ignore_case_works_and_backslashes_are_literal(files: Path, replace: Call) -> None:
    assert replace("THREE", r"\1\n", ignore_case=True)["total"] == 1
    assert (files / "a.txt").read_bytes() == b"one\r\ntwo\r\n\\1\\n\r\n"


def test_a_pattern_without_matches_changes_nothing(files: Path, place: Workplace, replace: Call) -> None:
    assert replace("nowhere", "x") == {
        "files": [],
        "total": 0,
        "skipped": [{"path": "latin", "reason": "not UTF-8 text (byte 4)"}],
    }
    assert replace("two", "two")["total"] == 0
    assert place.files.touched() == ()


@pytest.mark.parametrize(
    ("pattern", "replacement", "reason"),
    [("(a", "", "not a valid pattern"), ("(t)wo", r"\2", "invalid group reference")],
)
def test_an_invalid_expression_changes_nothing(
    files: Path, place: Workplace, replace: Call, pattern: str, replacement: str, reason: str
) -> None:
    with pytest.raises(ToolRefused, match=f"^replace: .*{reason}"):
        replace(pattern, replacement, regex=True)
    assert place.files.touched() == ()


def test_an_expression_that_takes_too_long_changes_nothing(
    tmp_path: Path, place: Workplace, replace: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replace_module, "_SECONDS", 0.4)
    (tmp_path / "0").write_text("aab")
    (tmp_path / "a").write_text("a" * 5000)
    with pytest.raises(ToolRefused, match="the time limit was reached at "):
        replace("(a+)+b", "x", regex=True)
    with pytest.raises(ToolRefused, match="the time limit was reached"):
        monkeypatch.setattr(replace_module, "_SECONDS", 0.0)
        replace("a", "x")
    assert (tmp_path / "0").read_text() == "aab"


@pytest.mark.parametrize("bound", ["FILE_LIMIT_BYTES", "_TOTAL_LIMIT_BYTES"])
def test_a_change_that_is_too_large_changes_nothing(
    files: Path, place: Workplace, replace: Call, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(replace_module, bound, 60)
    with pytest.raises(ToolRefused, match=r"the size limit was reached at 'src/b\.py'"):
        replace("two", "x" * 25)
    assert place.files.touched() == ()


@pytest.mark.parametrize("error", [StoreFull("b"), KeyboardInterrupt()])
def test_a_failed_write_restores_the_other_files(tmp_path: Path, error: BaseException) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f"two {name}")

    def fails_at_last(path: str) -> None:
        if path == "c":
            raise error

    files = ConfinedFiles(tmp_path, before_change=fails_at_last)
    place = Workplace(files, no_commands, CancellationToken())
    with pytest.raises(type(error)):
        REPLACE.call({"pattern": "two", "replacement": "x"}, place)
    assert [(tmp_path / name).read_text() for name in "abc"] == ["two a", "two b", "two c"]


def test_a_cancellation_between_two_files_restores_the_first(tmp_path: Path, stop: CancellationToken) -> None:
    for name in "ab":
        (tmp_path / name).write_text("two")
    files = ConfinedFiles(tmp_path, before_change=lambda _: bool(stop.cancel("enough")))
    with pytest.raises(Cancelled):
        REPLACE.call({"pattern": "two", "replacement": "x"}, Workplace(files, no_commands, stop))
    assert [(tmp_path / name).read_text() for name in "ab"] == ["two", "two"]


TEXT = st.text(alphabet="abAB \n\r\té.", max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(TEXT, st.text(alphabet="aA.\n", min_size=1, max_size=3), TEXT, st.booleans())
def test_a_fixed_text_is_replaced_as_python_does(
    tmp_path: Path, replace: Call, text: str, pattern: str, replacement: str, ignore_case: bool
) -> None:
    (tmp_path / "f").write_bytes(text.encode())
    result = replace(pattern, replacement, ignore_case=ignore_case)
    flags = re.IGNORECASE if ignore_case else 0
    expected = re.sub(re.escape(pattern), lambda _: replacement, text, flags=flags)
    assert (tmp_path / "f").read_bytes() == expected.encode()
    assert bool(result["total"]) == (expected != text)


PATTERNS = ["a", "a*", "(a)(b)?", "^a", "b$", "[ab]+", r"\s", "a|b", "(?i)a.", r"\bA"]


@given(TEXT, st.sampled_from(PATTERNS), st.sampled_from(["", "x", r"<\g<0>>", r"\n"]), st.booleans())
def test_an_expression_is_replaced_as_python_does(
    text: str, pattern: str, replacement: str, ignore_case: bool
) -> None:
    said = converse(
        {"pattern": pattern, "ignore_case": ignore_case, "cpu_seconds": 10**6},
        {"texts": [text], "replacement": replacement},
    )
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    expected = re.subn(pattern, replacement, text, flags=flags)
    assert said == [{}, dict(zip(("text", "count"), expected, strict=True))]


def converse(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the program's answers to these requests, without a process."""
    source = io.BytesIO()
    for request in requests:
        regex_program._send(source, request)
    source.seek(0)
    sink = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regex_program.resource, "setrlimit", lambda *_: None)
        regex_program.main(source, sink)
    sink.seek(0)
    said = []
    while (answer := regex_program._receive(sink)) is not None:
        said.append(answer)
    return said


def test_the_matching_program_ends_with_its_input_and_survives_an_invalid_pattern() -> None:
    assert converse() == []
    first = {"pattern": "(a)", "ignore_case": False, "cpu_seconds": 1}
    assert converse({**first, "pattern": "("})[0]["error"].startswith("missing )")
    said = converse(first, {"texts": ["a"], "replacement": r"\7"}, {"texts": ["b\na\na", "b"], "limit": 1})
    assert "invalid group" in said[1]["error"]
    assert said[2:] == [{"lines": [1]}, {"lines": []}]
    assert json.dumps(said)
