"""Submodules: a plan removes one whole or not at all, and no work in one is lost by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.apply.journal import Journal
from cleveragents.apply.moves import Mover
from cleveragents.apply.ports import CommitRequest
from cleveragents.core.change import GITLINK
from cleveragents.core.errors import ApplyConflict, ApplyRefused
from cleveragents.core.faults import NoFaults
from cleveragents.git.plumbing import index_line
from cleveragents.testing.clock import RaiseAt
from tests.applying import Edit, Submodule, World, new_sandbox, world_at

MODULES = b'[submodule "sub"]\n\tpath = deps/sub\n\turl = ../sub\n'
POINTS = ("stage.before", "stage.after", "journal.before", "journal.after", "move.after", "done.before")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A repository with a submodule that is not checked out."""
    files: dict[str, Edit] = {"a": b"a\n", ".gitmodules": MODULES, "deps/sub": Submodule()}
    with world_at(tmp_path / "home", files) as world:
        yield world


def remove(world: World, *, names: tuple[str, ...] = ("deps/sub", ".gitmodules")) -> None:
    """A plan that removes these."""
    sandbox = new_sandbox(world.resource, "p", world.home / "sandboxes/p")
    if ".gitmodules" in names:
        (sandbox.root / ".gitmodules").unlink()
    if "deps/sub" in names:
        (sandbox.root / "deps/sub").rmdir()
        (sandbox.root / "deps").rmdir()
    world.sandboxes["p"] = sandbox
    world.trees["p"] = sandbox.tree({path: change.after for path, change in sandbox.scan().items()})


def test_it_is_removed_and_brought_back_with_its_directory(world: World) -> None:
    remove(world)
    before = world.files()
    assert world.apply("p").changes.keys() == {".gitmodules", "deps/sub"}
    assert world.files() == {"a": before["a"]}
    assert world.git("status", "--porcelain") == " D .gitmodules\n D deps/sub"
    world.undo("p")
    assert world.files() == before
    assert world.git("status", "--porcelain") == ""


def test_a_commit_of_the_removal_and_one_of_its_undoing_hold_both_halves(world: World) -> None:
    remove(world)
    before, listed = world.files(), world.git("ls-tree", "-r", "HEAD")
    world.apply("p", CommitRequest("remove it"))
    assert world.git("ls-tree", "-r", "--name-only", "HEAD") == "a"
    assert world.git("status", "--porcelain") == ""
    after = world.files()
    with pytest.raises(ApplyRefused, match="your index does not have; apply it with a commit"):
        world.undo("p")
    assert world.files() == after
    world.undo("p", CommitRequest("bring it back"))
    assert (world.files(), world.git("ls-tree", "-r", "HEAD")) == (before, listed)
    assert world.git("status", "--porcelain") == ""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["apply", "undo"])
def test_what_fails_on_the_way_leaves_all_as_it_was(world: World, kind: str, point: str) -> None:
    remove(world)
    if kind == "undo":
        world.apply("p")
    before = world.files()
    failing = world.with_faults(RaiseAt(f"{kind}.{point}", lambda: OSError("no")))
    with pytest.raises((ApplyRefused, OSError)):
        failing.apply("p") if kind == "apply" else failing.undo("p")
    assert world.files() == before


def test_one_that_is_checked_out_is_refused_with_the_remedy(world: World) -> None:
    remove(world)
    (world.resource / "deps/sub/work").write_bytes(b"nowhere else\n")
    before = world.files()
    with pytest.raises(ApplyConflict) as caught:
        world.apply("p")
    assert "run `git submodule deinit deps/sub`, then apply again" in caught.value.details
    assert world.files() == before


def test_what_was_checked_out_while_it_was_prepared_is_kept(world: World) -> None:
    remove(world)
    with world.prepare("p") as preparation:
        (world.resource / "deps/sub/work").write_bytes(b"nowhere else\n")
        before = world.files()
        with pytest.raises(ApplyConflict) as caught:
            preparation.apply()
    assert caught.value.paths == ("deps/sub",)
    assert world.files() == before


@pytest.mark.parametrize("there", [True, False])
def test_an_apply_is_complete_when_the_directory_has_come_or_gone(tmp_path: Path, there: bool) -> None:
    resource, staging = tmp_path / "resource", tmp_path / "staging"
    for directory in (resource / "deps/sub", staging / "old", staging / "new"):
        directory.mkdir(parents=True)
    journal = Journal(str(staging), made=("deps/sub",), submodules={"deps/sub": there})
    with Mover(resource, journal, NoFaults(), "apply") as mover:
        assert mover.is_complete() is there
        (resource / "deps/sub").rmdir()
        assert mover.is_complete() is not there


@pytest.mark.parametrize("mine", ["deps", "deps/sub"])
def test_what_came_in_the_place_of_its_directory_stays_when_it_is_taken_back(
    tmp_path: Path, mine: str
) -> None:
    resource, staging = tmp_path / "resource", tmp_path / "staging"
    for directory in ((resource / mine).parent, staging / "old", staging / "new"):
        directory.mkdir(parents=True)
    (resource / mine).write_bytes(b"mine\n")
    journal = Journal(str(staging), submodules={"deps/sub": False})
    with Mover(resource, journal, NoFaults(), "recover") as mover:
        assert mover.back() == ["deps/sub"]
    assert (resource / mine).read_bytes() == b"mine\n"


def test_an_empty_directory_that_is_lost_is_no_removal(world: World) -> None:
    remove(world, names=("deps/sub",))
    assert world.trees["p"] == world.sandboxes["p"].base


def test_it_comes_back_in_the_sandbox_by_a_restore_or_by_its_directory(world: World) -> None:
    remove(world)
    sandbox = world.sandboxes["p"]
    gone = sandbox.scan()
    state = gone["deps/sub"].before
    assert state is not None
    assert (state.mode, gone["deps/sub"].after, sandbox.state_of("deps/sub")) == (GITLINK, None, None)
    sandbox.restore({path: change.before for path, change in gone.items()})
    assert (sandbox.root / "deps/sub").is_dir()
    assert (sandbox.scan(), sandbox.state_of("deps/sub")) == ({}, state)
    sandbox.restore({path: change.after for path, change in gone.items()})
    assert sandbox.scan() == gone
    (sandbox.root / "deps/sub").mkdir(parents=True)
    assert sandbox.scan().keys() == {".gitmodules"}


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (b"[submodule", {".gitmodules"}),
        (b'[submodule "sub"]\n\tpath = elsewhere\n', {"deps/sub", "elsewhere"}),
        (MODULES + b'[submodule "x"]\n\tpath = ../../x\n', {"../../x"}),
        (MODULES + b'[submodule "x"]\n\tpath\n', {""}),
        (MODULES + b'[submodule "x"]\n\tpath = a\n', {"a"}),
    ],
)
def test_a_file_of_submodules_that_names_others_than_there_are_is_refused(
    world: World, content: bytes, refused: set[str]
) -> None:
    world.plan("p", {".gitmodules": content})
    before = world.files()
    with pytest.raises(ApplyConflict) as caught:
        world.apply("p")
    assert {*caught.value.paths} == refused
    assert world.files() == before


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("deps/sub", ApplyConflict, "another commit of it is wanted"),
        ("new", ApplyRefused, "new is a submodule that your index does not have"),
    ],
)
def test_one_is_moved_or_added_by_hand(world: World, path: str, error: type[Exception], words: str) -> None:
    world.plan("p", {})
    sandbox = world.sandboxes["p"]
    line = index_line(GITLINK, "2" * 40, path)
    world.trees["p"] = sandbox.repository.tree_with(sandbox.base, [line], world.home / "index")
    before = world.files()
    with pytest.raises(error) as caught:
        world.apply("p")
    assert words in f"{caught.value} {getattr(caught.value, 'details', '')}"
    assert world.files() == before
