"""`read`, `write`, `delete`, `move`, `list` and `glob`, on awkward files."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.errors import Cancelled, InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.files.file_search import PathPattern
from cleveragents.tools.ports import Workplace
from cleveragents.tools.registry import ToolRegistry

Call = Callable[..., Any]
TOOLS = ToolRegistry(entries=())


def no_commands(*_: object, **__: object) -> Any:
    raise AssertionError("no command is run here")


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(ConfinedFiles(tmp_path), no_commands, CancellationToken())


@pytest.fixture
def call(place: Workplace) -> Call:
    return lambda tool, **arguments: TOOLS.get(tool).call(arguments, place)


def put(directory: Path, **files: str) -> None:
    for name, content in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def test_reads_a_whole_file_with_its_facts(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a").write_bytes("é\r\nb\r\n".encode())
    assert call("read", path="a") == {
        "path": "a",
        "content": "é\r\nb\r\n",
        "total_lines": 2,
        "truncated": False,
        "note": "",
        "encoding": "utf-8",
        "line_endings": "crlf",
        "size_bytes": 7,
        "sha256": sha256("é\r\nb\r\n".encode()).hexdigest(),
    }


@pytest.mark.parametrize(
    ("content", "lines", "endings"),
    [("", 0, "none"), ("\n", 1, "lf"), ("a", 1, "none"), ("a\nb", 2, "lf"), ("a\r\nb\n", 2, "mixed")],
)
def test_lines_are_counted_as_editors_do(
    tmp_path: Path, call: Call, content: str, lines: int, endings: str
) -> None:
    (tmp_path / "a").write_bytes(content.encode())
    got = call("read", path="a")
    assert (got["content"], got["total_lines"], got["line_endings"]) == (content, lines, endings)
    assert not got["truncated"]


def test_reads_a_part_of_a_file_and_notes_the_rest(tmp_path: Path, call: Call) -> None:
    put(tmp_path, a="1\n2\n3\n4\n5")
    got = call("read", path="a", offset=2, limit=2, line_numbers=True)
    assert got["content"] == "2\t2\n3\t3\n"
    assert (got["truncated"], got["note"], got["total_lines"]) == (True, "lines 4 to 5 follow", 5)
    last = call("read", path="a", offset=5)
    assert (last["content"], last["truncated"], last["note"]) == ("5", True, "")
    assert call("read", path="a", offset=6)["note"] == "the file has only 5 lines"


def test_unicode_line_separators_do_not_split_lines(tmp_path: Path, call: Call) -> None:
    put(tmp_path, a="1\u2028\x0c\x85\n2\n")
    assert call("read", path="a", offset=2)["content"] == "2\n"


def test_a_binary_file_is_not_shown(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a").write_bytes(b"\x7fELF\0\0")
    got = call("read", path="a")
    assert (got["content"], got["encoding"], got["note"]) == ("", "binary", "a binary file of 6 bytes")
    assert got["truncated"]


def test_an_unknown_encoding_is_reported(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9\n")
    got = call("read", path="a")
    assert (got["content"], got["encoding"]) == ("caf\\xe9\n", "unknown")


def test_a_huge_line_is_cut_with_a_note(tmp_path: Path, call: Call) -> None:
    put(tmp_path, a="x" * 5_000_000 + "\nend\n", b="short\n" + "y" * 300_000)
    got = call("read", path="a")
    assert got["content"] == "x" * 200_000
    assert got["note"] == "line 1 is cut after 200000 characters of 5000001"
    assert (got["total_lines"], got["truncated"]) == (2, True)
    assert call("read", path="a", offset=2)["content"] == "end\n"
    assert call("read", path="b")["note"] == "no room for more; continue with offset 2"


@pytest.mark.parametrize(("path", "reason"), [("gone", "does not exist"), ("d", "is a directory")])
def test_refuses_unreadable_paths(tmp_path: Path, call: Call, path: str, reason: str) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(ToolRefused, match=f"^read: .*{reason}"):
        call("read", path=path)


def test_a_file_is_created_and_replaced(tmp_path: Path, call: Call) -> None:
    first = call("write", path="new/a.sh", content="é", executable=True)
    assert (first["created"], first["size_bytes"]) == (True, 2)
    assert os.access(tmp_path / "new" / "a.sh", os.X_OK)
    second = call("write", path="new/a.sh", content="", expected_sha256=first["sha256"])
    assert (second["created"], second["size_bytes"]) == (False, 0)
    assert (tmp_path / "new" / "a.sh").read_bytes() == b""


def test_refuses_a_stale_write_also_of_a_deleted_file(tmp_path: Path, call: Call) -> None:
    """griffinwork40/agent-afk#2028: a write from an old view reverted later changes."""
    first = call("write", path="a", content="1")
    (tmp_path / "a").write_text("2")
    with pytest.raises(ToolRefused, match="changed since it was read"):
        call("write", path="a", content="3", expected_sha256=first["sha256"])
    assert (tmp_path / "a").read_text() == "2"
    (tmp_path / "a").unlink()
    with pytest.raises(ToolRefused, match="deleted after it was read"):
        call("write", path="a", content="3", expected_sha256=first["sha256"])
    assert not (tmp_path / "a").exists()


def test_refuses_to_write_to_a_directory(tmp_path: Path, call: Call) -> None:
    with pytest.raises(ToolRefused, match="is a directory; add the file's name"):
        call("write", path="new/", content="")
    assert not (tmp_path / "new").exists()


def test_line_endings_are_written_as_given(tmp_path: Path, call: Call) -> None:
    call("write", path="a", content="a\r\nb\n\ufeff")
    assert (tmp_path / "a").read_bytes() == "a\r\nb\n\ufeff".encode()


def test_writing_a_new_file_needs_the_create_capability(tmp_path: Path, place: Workplace) -> None:
    put(tmp_path, old="")
    write = TOOLS.get("write")
    for path, expected in (("old", Capability.EDIT), ("new", Capability.CREATE)):
        arguments = {"path": path, "content": ""}
        assert TOOLS.capability_of(write, arguments, place.files) is expected
    with pytest.raises(InvalidToolCall):
        write.capability_of({"path": "old"}, place.files)
    with pytest.raises(OutsideSandbox):
        write.capability_of({"path": "../old", "content": ""}, place.files)
    delete = TOOLS.get("delete")
    assert delete.capability_of({"path": "old"}, place.files) is Capability.DELETE


def test_files_links_and_directories_are_deleted(tmp_path: Path, call: Call) -> None:
    put(tmp_path, a="", d__x="", d__e__y="")
    (tmp_path / "link").symlink_to("d")
    assert call("delete", path="a")["files"] == 1
    assert call("delete", path="link")["files"] == 1
    with pytest.raises(ToolRefused, match="use `recursive`"):
        call("delete", path="d")
    assert (tmp_path / "d" / "x").exists()
    assert call("delete", path="d/", recursive=True) == {"path": "d/", "files": 2}
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ToolRefused, match=r"^delete: 'a' does not exist"):
        call("delete", path="a")


def test_moves_a_file_without_overwriting(tmp_path: Path, call: Call) -> None:
    put(tmp_path, a="1", b="2")
    with pytest.raises(ToolRefused, match=r"^move: 'b' already exists"):
        call("move", source="a", target="b")
    assert call("move", source="a", target="x/y") == {"source": "a", "target": "x/y"}
    assert (tmp_path / "x" / "y").read_text() == "1"


def test_lists_a_directory_with_depth_and_limit(tmp_path: Path, call: Call) -> None:
    put(tmp_path, a="12", d__x="", d__e__y="")
    assert call("list")["entries"][0] == {"path": "a", "kind": "file", "size_bytes": 2}
    assert [entry["path"] for entry in call("list")["entries"]] == ["a", "d"]
    assert [entry["path"] for entry in call("list", path="d", depth=2)["entries"]] == ["d/e", "d/e/y", "d/x"]
    assert call("list", depth=3, max_results=5)["truncated"] is False
    cut = call("list", depth=3, max_results=4)
    assert (len(cut["entries"]), cut["truncated"]) == (4, True)
    with pytest.raises(ToolRefused, match="is not a directory"):
        call("list", path="a")


def test_an_invalid_unicode_name_is_listed_escaped(tmp_path: Path, call: Call) -> None:
    (tmp_path / "\udcff").touch()
    assert [entry["path"] for entry in call("list")["entries"]] == ["\\udcff"]
    assert call("glob", pattern="*")["paths"] == []


def test_finds_paths_by_pattern_sorted_and_limited(tmp_path: Path, call: Call) -> None:
    put(tmp_path, b__z="", a="", b__y="", c="")
    (tmp_path / "link").symlink_to("b")
    assert call("glob", pattern="**") == {"paths": ["a", "b/y", "b/z", "c", "link"], "truncated": False}
    assert call("glob", pattern="**", max_results=5)["truncated"] is False
    assert call("glob", pattern="**", max_results=2) == {"paths": ["a", "b/y"], "truncated": True}
    assert call("glob", pattern="nothing")["paths"] == []


@pytest.mark.parametrize(
    ("pattern", "fits", "not_these"),
    [
        ("*.py", ["a.py", "src/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("/*.py", ["a.py"], ["src/a.py"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/x/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "src/a.txt"]),
        ("**/test_*.py", ["test_a.py", "x/y/test_b.py"], ["x/atest_b.py"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "a/src/b"]),
        ("src/", ["src/a", "x/src/a/b"], ["src"]),
        ("/src/", ["src/a"], ["x/src/a"]),
        ("**/a/**/b", ["a/b", "x/a/b", "a/x/y/b", "x/a/y/b"], ["a/b/c", "b"]),
        ("*.{ts,tsx}", ["a.ts", "x/a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{a,b}/{c,d}", ["a/c", "b/d"], ["a/a"]),
        ("{a}", ["{a}"], ["a"]),
        ("file[0-9].[!x]", ["file1.y"], ["filea.y", "file1.x"]),
        ("a?c", ["abc", "aéc"], ["ac", "a/c"]),
        ("[", ["["], ["a"]),
        ("*", ["a", ".hidden", "a/b"], []),
        ("./a", ["a"], ["b/a"]),
        ("/", ["a", "a/b"], []),
        ("a(b", ["a(b"], ["ab"]),
    ],
)
def test_patterns_match_as_documented(pattern: str, fits: list[str], not_these: list[str]) -> None:
    wanted = PathPattern(pattern)
    assert [path for path in fits if not wanted.matches(path)] == []
    assert [path for path in not_these if wanted.matches(path)] == []


@pytest.mark.parametrize("pattern", ["", ".", "a/../b", "x" * 501, "a\0b", "{a,b}" * 7])
def test_refuses_an_invalid_pattern(call: Call, pattern: str) -> None:
    with pytest.raises(InvalidToolCall, match="'pattern'"):
        call("glob", pattern=pattern)


def test_every_pattern_matches_quickly() -> None:
    """Stars and double stars that a backtracking matcher would try in all combinations."""
    assert not PathPattern("**/" + "a*" * 100 + "b").matches("/".join(["a" * 250] * 10))
    assert not PathPattern("**/a/" * 90 + "b").matches("/".join("a" * 500))


NAME = st.text(alphabet="ab.", min_size=1, max_size=3).filter(lambda name: name.strip("."))


@given(st.lists(NAME, min_size=1, max_size=4))
def test_a_path_matches_itself_and_looser_patterns(names: list[str]) -> None:
    path = "/".join(names)
    assert PathPattern("/" + path).matches(path)
    assert PathPattern("**/" + names[-1]).matches(path)
    assert PathPattern("/" + "/".join("*" for _ in names)).matches(path)
    assert not PathPattern("/" + "/".join("*" for _ in [*names, ""])).matches(path)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("list", {"depth": 9}), ("glob", {"pattern": "**"}), ("grep", {"pattern": "x", "fixed": True})],
)
def test_iterating_over_files_stops_when_cancelled(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    class StopsLater:
        """A signal that is cancelled at the third check."""

        looks = 0
        is_cancelled = False
        reason = "enough"

        def wait(self, timeout: float | None) -> bool:
            raise AssertionError

        def raise_if_cancelled(self) -> None:
            self.looks += 1
            if self.looks == 3:
                raise Cancelled(self.reason)

    put(tmp_path, a="", b="", c="")
    stop = StopsLater()
    with pytest.raises(Cancelled, match="enough"):
        TOOLS.get(tool).call(arguments, Workplace(ConfinedFiles(tmp_path), no_commands, stop))
    assert stop.looks == 3
