"""Submodules: a plan removes one completely or not at all, and no work in it is lost."""

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
from tests.apply_bench import Edit, Submodule, World, new_sandbox, world_at

MODULES = b'[submodule "sub"]\n\tpath = deps/sub\n\turl = ../sub\n'
POINTS = ("stage.before", "stage.after", "journal.before", "journal.after", "move.after", "done.before")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A repository with a submodule that is not checked out."""
    files: dict[str, Edit] = {"a": b"a\n", ".gitmodules": MODULES, "deps/sub": Submodule()}
    with world_at(tmp_path / "home", files) as world:
        yield world


def remove(world: World, *, names: tuple[str, ...] = ("deps/sub", ".gitmodules")) -> None:
    """Create a plan that removes these paths."""
    sandbox = new_sandbox(world.resource, "p", world.home / "sandboxes/p")
    if ".gitmodules" in names:
        (sandbox.root / ".gitmodules").unlink()
    if "deps/sub" in names:
        (sandbox.root / "deps/sub").rmdir()
        (sandbox.root / "deps").rmdir()
    world.sandboxes["p"] = sandbox
    world.trees["p"] = sandbox.tree({path: change.after for path, change in sandbox.scan().items()})


def test_a_submodule_is_removed_and_restored_with_its_directory(world: World) -> None:
    remove(world)
    before = world.files()
    assert world.apply("p").changes.keys() == {".gitmodules", "deps/sub"}
    assert world.files() == {"a": before["a"]}
    assert world.git("status", "--porcelain") == " D .gitmodules\n D deps/sub"
    world.undo("p")
    assert world.files() == before
    assert world.git("status", "--porcelain") == ""


def test_commits_of_removal_and_undo_have_entry_and_section(world: World) -> None:
    remove(world)
    before, listed = world.files(), world.git("ls-tree", "-r", "HEAD")
    world.apply("p", CommitRequest("remove it"))
    assert world.git("ls-tree", "-r", "--name-only", "HEAD") == "a"
    assert world.git("status", "--porcelain") == ""
    after = world.files()
    with pytest.raises(ApplyRefused, match="not in your index; apply the plan with a commit"):
        world.undo("p")
    assert world.files() == after
    world.undo("p", CommitRequest("bring it back"))
    assert (world.files(), world.git("ls-tree", "-r", "HEAD")) == (before, listed)
    assert world.git("status", "--porcelain") == ""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["apply", "undo"])
def test_a_failure_leaves_everything_unchanged(world: World, kind: str, point: str) -> None:
    remove(world)
    if kind == "undo":
        world.apply("p")
    before = world.files()
    failing = world.with_faults(RaiseAt(f"{kind}.{point}", lambda: OSError("no")))
    with pytest.raises((ApplyRefused, OSError)):
        failing.apply("p") if kind == "apply" else failing.undo("p")
    assert world.files() == before


def test_refuses_to_remove_a_checked_out_submodule_with_a_remedy(world: World) -> None:
    remove(world)
    (world.resource / "deps/sub/work").write_bytes(b"nowhere else\n")
    before = world.files()
    with pytest.raises(ApplyConflict) as caught:
        world.apply("p")
    assert "run `git submodule deinit deps/sub`, then apply again" in caught.value.details
    assert world.files() == before


def test_a_submodule_checked_out_meanwhile_is_kept(world: World) -> None:
    remove(world)
    with world.prepare("p") as preparation:
        (world.resource / "deps/sub/work").write_bytes(b"nowhere else\n")
        before = world.files()
        with pytest.raises(ApplyConflict) as caught:
            preparation.apply()
    assert caught.value.paths == ("deps/sub",)
    assert world.files() == before


@pytest.mark.parametrize("there", [True, False])
def test_an_apply_is_complete_with_the_submodules_directory(tmp_path: Path, there: bool) -> None:
    resource, staging = tmp_path / "resource", tmp_path / "staging"
    for directory in (resource / "deps/sub", staging / "old", staging / "new"):
        directory.mkdir(parents=True)
    journal = Journal(str(staging), made=("deps/sub",), submodules={"deps/sub": there})
    with Mover(resource, journal, NoFaults(), "apply") as mover:
        assert mover.is_complete() is there
        (resource / "deps/sub").rmdir()
        assert mover.is_complete() is not there


@pytest.mark.parametrize("mine", ["deps", "deps/sub"])
def test_files_in_place_of_the_directory_survive_the_undo(tmp_path: Path, mine: str) -> None:
    resource, staging = tmp_path / "resource", tmp_path / "staging"
    for directory in ((resource / mine).parent, staging / "old", staging / "new"):
        directory.mkdir(parents=True)
    (resource / mine).write_bytes(b"mine\n")
    journal = Journal(str(staging), submodules={"deps/sub": False})
    with Mover(resource, journal, NoFaults(), "recover") as mover:
        assert mover.back() == ["deps/sub"]
    assert (resource / mine).read_bytes() == b"mine\n"


def test_a_lost_empty_directory_is_no_removal(world: World) -> None:
    remove(world, names=("deps/sub",))
    assert world.trees["p"] == world.sandboxes["p"].base


def test_a_submodule_is_restored_in_the_sandbox(world: World) -> None:
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
def test_refuses_an_inconsistent_gitmodules_file(world: World, content: bytes, refused: set[str]) -> None:
    world.plan("p", {".gitmodules": content})
    before = world.files()
    with pytest.raises(ApplyConflict) as caught:
        world.apply("p")
    assert {*caught.value.paths} == refused
    assert world.files() == before


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("deps/sub", ApplyConflict, "the plan needs another commit of the submodule"),
        ("new", ApplyRefused, "new is a submodule that is not in your index"),
    ],
)
def test_moving_or_adding_a_submodule_is_refused_with_a_remedy(
    world: World, path: str, error: type[Exception], words: str
) -> None:
    world.plan("p", {})
    sandbox = world.sandboxes["p"]
    line = index_line(GITLINK, "2" * 40, path)
    world.trees["p"] = sandbox.repository.tree_with(sandbox.base, [line], world.home / "index")
    before = world.files()
    with pytest.raises(error) as caught:
        world.apply("p")
    assert words in f"{caught.value} {getattr(caught.value, 'details', '')}"
    assert world.files() == before
