"""All kinds of changes to files, each exactly reversed by an undo."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from cleveragents.apply.ports import CommitRequest
from cleveragents.core.errors import ApplyConflict, ApplyRefused
from tests.apply_bench import Edit, Link, Program, World, git, snapshot, world_at, write

Build = Callable[..., World]

LINES = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"
BINARY = bytes(range(256)) * 4


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Return a function that creates a world with these files."""
    with ExitStack() as opened:

        def make(files: Mapping[str, Edit], *, repository: bool = True) -> World:
            return opened.enter_context(world_at(tmp_path / "home", files, repository=repository))

        yield make


CASES: dict[str, tuple[Mapping[str, Edit], Mapping[str, Edit]]] = {
    "an edit": ({"a": LINES}, {"a": b"one" + LINES[1:]}),
    "a creation in new directories": ({"a": b"x"}, {"b/c/d": b"new"}),
    "a deletion that empties directories": ({"a": b"x", "b/c/d": b"old"}, {"b/c/d": None}),
    "a deletion beside a file that stays": ({"b/c": b"x", "b/d": b"y"}, {"b/d": None}),
    "a rename": ({"a": LINES}, {"a": None, "moved/b": LINES}),
    "a file made executable": ({"run": b"#!/bin/sh\n"}, {"run": Program(b"#!/bin/sh\n")}),
    "a program made a plain file": ({"run": Program(b"#!/bin/sh\n")}, {"run": b"#!/bin/sh\n"}),
    "a link to another place": ({"a": b"x", "b": b"y", "l": Link("a")}, {"l": Link("b")}),
    "a file made a link": ({"a": b"x", "l": b"text"}, {"l": Link("a")}),
    "a link made a file": ({"a": b"x", "l": Link("a")}, {"l": b"text"}),
    "a link that leads out is content like any other": ({"a": b"x"}, {"l": Link("/etc/passwd")}),
    "binary content": ({"b": BINARY}, {"b": BINARY[::-1]}),
    "an empty file": ({"a": b"x"}, {"a": b"", "b": b""}),
    "a file that becomes a directory": ({"d": b"x"}, {"d": None, "d/e": b"y"}),
    "a directory that becomes a file": (
        {"d/e": b"x", "d/f/g": b"y"},
        {"d/e": None, "d/f/g": None, "d": b"z"},
    ),
    "names of all kinds": (
        {"späce and ü": b"1", "new\nline": b"2", 'quo"te\\': b"3", "-dash": b"4"},
        {"späce and ü": b"one", "new\nline": b"two", 'quo"te\\': None, "-dash": b"four", "\ttab": b"5"},
    ),
    "a name that is no text": ({os.fsdecode(b"caf\xe9"): b"1"}, {os.fsdecode(b"caf\xe9"): b"2"}),
    "a plan that changed nothing": ({"a": b"x"}, {}),
}


@pytest.mark.parametrize("repository", [True, False], ids=["repository", "directory"])
@pytest.mark.parametrize("case", CASES)
def test_apply_and_undo_are_byte_exact(build: Build, tmp_path: Path, case: str, repository: bool) -> None:
    files, edits = CASES[case]
    world = build(files, repository=repository)
    world.plan("p", edits)
    (tmp_path / "expected").mkdir()
    write(tmp_path / "expected", files)
    write(tmp_path / "expected", edits)
    before, index = world.files(), _index(world)
    applied = world.apply("p")
    assert world.files() == snapshot(tmp_path / "expected")
    assert applied.changes.keys() == {path for path in edits if files.get(path) != edits[path]}
    assert _index(world) == index, "the index is not touched without a commit"
    undone = world.undo("p")
    assert world.files() == before
    assert undone.changes.keys() == applied.changes.keys()
    assert _index(world) == index
    assert not list(world.resource.glob(".git/cleveragents*"))


def test_applying_again_changes_nothing(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": LINES + b"10\n"})
    world.apply("p")
    after = world.files()
    assert world.apply("p").changes == {}
    assert world.files() == after


def test_other_files_of_the_user_stay_unchanged(build: Build) -> None:
    world = build({"a": LINES, ".gitignore": b"ignored\n", "b": b"clean\n"})
    world.write({"b": b"edited\n", "untracked": b"mine\n", "ignored": b"mine, too\n", "empty": b""})
    world.git("add", "b")
    world.plan("p", {"a": b"one" + LINES[1:]})
    before = world.files()
    world.apply("p")
    assert world.files() == before | {"a": ("file 644", b"one" + LINES[1:])}
    assert world.git("diff", "--cached", "--name-only") == "b"


def test_an_edit_keeps_permissions(build: Build) -> None:
    world = build({"secret": b"a\n", "run": Program(b"a\n"), "tool": b"a\n"})
    (world.resource / "secret").chmod(0o600)
    (world.resource / "run").chmod(0o750)
    (world.resource / "tool").chmod(0o640)
    world.plan("p", {"secret": b"b\n", "run": b"b\n", "tool": Program(b"b\n")})
    world.apply("p")
    modes = {path: (world.resource / path).stat().st_mode & 0o777 for path in ("secret", "run", "tool")}
    assert modes == {"secret": 0o600, "run": 0o640, "tool": 0o750}


def test_line_endings_follow_the_attributes(build: Build) -> None:
    world = build(
        {".gitattributes": b"*.bat eol=crlf\n*.txt text\n", "a.bat": b"1\r\n2\r\n3\r\n", "b.txt": b"x\n"}
    )
    world.plan("p", {"a.bat": b"1\r\ntwo\r\n3\r\n", "c.bat": b"new\r\n"})
    world.apply("p")
    assert (world.resource / "a.bat").read_bytes() == b"1\r\ntwo\r\n3\r\n"
    assert (world.resource / "c.bat").read_bytes() == b"new\r\n"
    world.undo("p")
    assert (world.resource / "a.bat").read_bytes() == b"1\r\n2\r\n3\r\n"


def test_attributes_of_the_plan_apply_to_its_files(build: Build) -> None:
    world = build({"a": b"x\n"})
    world.plan("p", {".gitattributes": b"*.bat eol=crlf\n", "a.bat": b"1\r\n"})
    world.apply("p")
    assert (world.resource / "a.bat").read_bytes() == b"1\r\n"


def test_apply_changes_a_linked_worktree_but_not_the_main_one(build: Build, tmp_path: Path) -> None:
    world = build({"a": LINES})
    linked = tmp_path / "linked"
    world.git("worktree", "add", "-q", "-b", "side", str(linked))
    main = snapshot(world.resource, with_git=True)
    world.resource, main_resource = linked, world.resource
    world.plan("p", {"a": b"one" + LINES[1:], "new": b"x"})
    world.apply("p")
    assert (linked / "new").read_bytes() == b"x"
    assert git(linked, "status", "--porcelain") == " M a\n?? new"
    now = snapshot(main_resource, with_git=True)
    assert {path for path in now if not path.startswith(".git/objects")} - main.keys() <= {
        ".git/refs/cleveragents",
        ".git/refs/cleveragents/base",
        ".git/refs/cleveragents/base/p",
    }
    assert git(main_resource, "status", "--porcelain") == ""


def test_applies_a_thousand_files_at_once(build: Build) -> None:
    world = build({f"d{n % 10}/f{n}": b"old %d\n" % n for n in range(1000)})
    world.plan("p", {f"d{n % 10}/f{n}": b"new %d\n" % n for n in range(1000)})
    before = world.files()
    assert len(world.apply("p").changes) == 1000
    assert (world.resource / "d7/f997").read_bytes() == b"new 997\n"
    world.undo("p")
    assert world.files() == before


def test_undo_is_refused_before_an_apply_and_after_an_undo(build: Build) -> None:
    world = build({"a": b"x\n"})
    world.plan("p", {"a": b"y\n"})
    with pytest.raises(ApplyRefused, match="the plan has no apply to undo"):
        world.undo("p")
    world.apply("p")
    world.undo("p")
    with pytest.raises(ApplyRefused, match="the plan has no apply to undo"):
        world.undo("p")


@pytest.mark.parametrize("way", ["repository", "directory", "commit"])
@pytest.mark.parametrize("case", CASES)
def test_files_that_the_user_restored_count_as_undone(build: Build, case: str, way: str) -> None:
    files, edits = CASES[case]
    world = build(files, repository=way != "directory")
    world.plan("p", edits)
    world.write({"mine": b"since\n"})
    before = world.files()
    world.apply("p", CommitRequest("apply") if way == "commit" and edits else None)
    world.write({path: files.get(path) for path in edits} | {"mine": b"later\n"})
    assert world.files() == {**before, "mine": ("file 644", b"later\n")}
    assert world.undo("p").changes == {}
    assert world.files() == {**before, "mine": ("file 644", b"later\n")}


@pytest.mark.parametrize("way", ["directory", "commit"])
def test_files_that_the_user_restored_in_part_do_not_count_as_undone(build: Build, way: str) -> None:
    world = build({"a": LINES, "b": LINES[::-1]}, repository=way != "directory")
    world.plan("p", {"a": None, "moved/a": LINES, "b": b"new\n"})
    world.apply("p", CommitRequest("apply") if way == "commit" else None)
    world.write({"a": LINES, "moved/a": None, "b": b"mine\n"})
    before = world.files()
    with pytest.raises(ApplyConflict):
        world.undo("p")
    assert world.files() == before


def test_later_changes_survive_an_undo(build: Build) -> None:
    world = build({"a": LINES, "b": b"x\n"})
    world.plan("first", {"a": b"one" + LINES[1:]})
    world.plan("second", {"a": LINES[:-2] + b"nine\n"})
    world.apply("first")
    world.apply("second")
    world.write({"b": b"mine\n"})
    world.undo("first")
    assert (world.resource / "a").read_bytes() == LINES[:-2] + b"nine\n"
    assert (world.resource / "b").read_bytes() == b"mine\n"


def test_an_undo_does_not_depend_on_the_users_object_store(build: Build) -> None:
    """The user's edit was never committed, so only our store has it."""
    world = build({"a": LINES})
    world.plan("p", {"a": b"one" + LINES[1:]})
    world.write({"a": LINES + b"mine\n"})
    world.git("add", "a")
    world.apply("p")
    world.git("add", "a")
    world.git("gc", "-q", "--prune=now")
    world.undo("p")
    assert (world.resource / "a").read_bytes() == LINES + b"mine\n"


def test_a_preparation_works_once_inside_its_block(build: Build) -> None:
    world = build({"a": b"x\n"})
    world.plan("p", {"a": b"y\n"})
    with world.prepare("p") as preparation:
        preparation.apply()
        with pytest.raises(ApplyRefused, match="prepare the apply again"):
            preparation.apply()
    world.undo("p")
    with world.prepare("p") as preparation:
        pass
    with pytest.raises(ApplyRefused, match="prepare the apply again"):
        preparation.apply()
    assert (world.resource / "a").read_bytes() == b"x\n"


def _index(world: World) -> bytes:
    index = world.resource / ".git" / "index"
    return index.read_bytes() if index.exists() else b""
