"""Moves of files: with concurrent writers, and on kernels that cannot swap."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from cleveragents.apply import exchange as exchange_module
from cleveragents.apply.exchange import ABSENT, DirectoryHandle, exchange, move, sync_filesystem
from cleveragents.apply.journal import Journal, MovedFile
from cleveragents.apply.moves import Mover
from cleveragents.core.errors import ApplyConflict, ApplyRefused
from cleveragents.core.faults import NoFaults
from cleveragents.testing.clock import RaiseAt
from tests.apply_bench import Edit, Link, World, snapshot, world_at, write

Build = Callable[..., World]

FILES: dict[str, Edit] = {"a": b"1\n2\n3\n", "b/gone": b"old\n", "link": Link("a"), "z": b"last\n"}
EDITS: dict[str, Edit] = {
    "a": b"1\ntwo\n3\n",
    "b/gone": None,
    "link": Link("z"),
    "n/new": b"new\n",
    "z": b"end\n",
}


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Return a function that creates a world with these files."""
    with ExitStack() as opened:

        def make(files: Mapping[str, Edit] = FILES, *, repository: bool = True) -> World:
            return opened.enter_context(world_at(tmp_path / "home", files, repository=repository))

        yield make


class At:
    """Runs a function the `nth` time a fault point is reached, like a user at that moment."""

    def __init__(self, name: str, act: Callable[[], object], nth: int = 1) -> None:
        self._left = {name: nth}
        self._act = act

    def reach(self, name: str) -> None:
        if name in self._left:
            self._left[name] -= 1
            if self._left[name] == 0:
                self._act()


def refused(world: World, faults: At, mine: Mapping[str, Edit]) -> None:
    """Assert that the apply is refused, the user's file is there, and everything else is unchanged."""
    write(world.home / "expected", {**FILES, **mine})
    with pytest.raises(ApplyConflict):
        world.with_faults(faults).apply("p")
    assert world.files() == snapshot(world.home / "expected")
    assert not (world.resource / ".git/cleveragents").exists()


@pytest.mark.parametrize("nth", [2, 3, 4])
def test_an_edit_during_the_swap_is_not_lost(build: Build, nth: int) -> None:
    world = build()
    world.plan("p", EDITS)
    mine: dict[str, Edit] = {"z": b"mine\n"}
    refused(world, At("apply.move.before", lambda: world.write(mine), nth), mine)


def test_an_edit_during_a_deletion_is_not_lost(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    mine: dict[str, Edit] = {"b/gone": b"I still need it\n"}
    refused(world, At("apply.move.before", lambda: world.write(mine)), mine)


def test_a_file_created_meanwhile_is_not_overwritten(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    mine: dict[str, Edit] = {"n/new": b"mine\n"}
    refused(world, At("apply.move.before", lambda: world.write(mine), 3), mine)


def test_a_file_deleted_meanwhile_stays_deleted(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    with pytest.raises(ApplyConflict):
        world.with_faults(At("apply.move.before", lambda: world.write({"z": None}), 2)).apply("p")
    write(world.home / "expected", {path: edit for path, edit in FILES.items() if path != "z"})
    assert world.files() == snapshot(world.home / "expected")


def test_an_editor_with_the_file_open_loses_nothing(build: Build) -> None:
    """The editor writes to the file that was swapped out."""
    world = build()
    world.plan("p", EDITS)
    with (world.resource / "a").open("r+b", buffering=0) as editor:
        faults = At("apply.move.after", lambda: editor.write(b"X"), len(EDITS))
        refused(world, faults, {"a": b"X\n2\n3\n"})


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(build: Build, tmp_path: Path) -> None:
    world = build({"d/a": b"old\n", "e/b": b"old\n"})
    world.plan("p", {"d/a": b"new\n", "e/b": b"new\n"})
    outside = tmp_path / "outside"
    write(outside, {"b": b"old\n"})

    def replace() -> None:
        shutil.rmtree(world.resource / "e")
        (world.resource / "e").symlink_to(outside)

    with pytest.raises(ApplyConflict):
        world.with_faults(At("apply.move.after", replace)).apply("p")
    assert (outside / "b").read_bytes() == b"old\n"
    assert (world.resource / "d/a").read_bytes() == b"old\n"


def test_a_file_edited_after_its_swap_survives_the_undo(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)

    class EditsThenFails:
        def reach(self, name: str) -> None:
            if name == "apply.done.before":
                world.write({"a": b"1\ntwo\n3\nmine\n"})
                raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(ApplyRefused, match="Input/output"):
        world.with_faults(EditsThenFails()).apply("p")
    write(world.home / "expected", {**FILES, "a": b"1\ntwo\n3\nmine\n"})
    assert world.files() == snapshot(world.home / "expected")


@pytest.mark.parametrize("path", ["a", "n/new"])
def test_an_edit_during_the_undo_is_not_lost(build: Build, path: str) -> None:
    world = build()
    world.plan("p", EDITS)

    class FailsThenEdits:
        def reach(self, name: str) -> None:
            if name == "apply.done.before":
                raise OSError(errno.EIO, "Input/output error")
            if name == "recover.move.before" and (world.resource / path).exists():
                world.write({path: b"mine\n"})

    with pytest.raises(ApplyRefused, match="Input/output"):
        world.with_faults(FailsThenEdits()).apply("p")
    write(world.home / "expected", {**FILES, path: b"mine\n"})
    assert world.files() == snapshot(world.home / "expected")


def test_the_only_copy_of_content_is_kept(build: Build) -> None:
    """Edited during its deletion, and recreated before it could be restored."""
    world = build()
    world.plan("p", EDITS)
    gone = world.resource / "b/gone"

    class EditsTwice:
        def reach(self, name: str) -> None:
            if name == "apply.move.before" and gone.exists():
                with gone.open("r+b", buffering=0) as self.editor:
                    self.descriptor = os.dup(self.editor.fileno())
            if name == "apply.done.before":
                os.write(self.descriptor, b"kept")
                os.close(self.descriptor)
                gone.parent.mkdir(exist_ok=True)
                gone.write_bytes(b"made anew\n")
                raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(ApplyRefused):
        world.with_faults(EditsTwice()).apply("p")
    assert gone.read_bytes() == b"made anew\n"
    (kept,) = world.resource.glob(".git/cleveragents/*/old/*")
    assert kept.read_bytes() == b"kept"
    with pytest.raises(ApplyRefused, match="holds the only copies"):
        world.apply("p")


@pytest.fixture(params=["the kernel has no such call", "the filesystem cannot"])
def no_swaps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Library:
        """libc without `renameat2`."""

    library = Library()
    if request.param == "the filesystem cannot":

        def unsupported(*arguments: object) -> int:
            ctypes.set_errno(errno.EINVAL)
            return -1

        library.renameat2 = unsupported
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    exchange_module._renameat2.cache_clear()
    exchange_module._syncfs.cache_clear()
    yield
    exchange_module._renameat2.cache_clear()
    exchange_module._syncfs.cache_clear()


@pytest.mark.usefixtures("no_swaps")
def test_works_without_atomic_swaps(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    before = world.files()
    write(world.home / "expected", FILES)
    write(world.home / "expected", EDITS)
    for nth in range(1, len(EDITS) + 1):
        with pytest.raises(ApplyRefused):
            world.with_faults(RaiseAt("apply.move.after", lambda: OSError("no"), nth)).apply("p")
        assert world.files() == before
    mine: dict[str, Edit] = {"z": b"mine\n"}
    with pytest.raises(ApplyConflict):
        world.with_faults(At("apply.move.before", lambda: world.write(mine), 2)).apply("p")
    assert (world.resource / "z").read_bytes() == b"mine\n"
    world.write({"z": FILES["z"]})
    world.with_faults(NoFaults(), "full").apply("p")
    assert world.files() == snapshot(world.home / "expected")
    world.undo("p")
    assert world.files() == before


@pytest.mark.usefixtures("no_swaps")
def test_without_swaps_a_file_replaced_meanwhile_stays(tmp_path: Path) -> None:
    write(tmp_path, {"new": b"new", "target": b"old"})

    with DirectoryHandle(tmp_path) as folder:
        one, other = folder.place("new"), folder.place("target")
        real = os.link

        def link(*arguments: object, **options: object) -> None:
            real(*arguments, **options)
            write(tmp_path, {"mine": b"mine"})
            (tmp_path / "mine").replace(tmp_path / "target")

        os.link = link
        try:
            with pytest.raises(FileExistsError):
                exchange(one, other, folder.place("spare"))
        finally:
            os.link = real
    assert snapshot(tmp_path) == {"new": ("file 644", b"new"), "target": ("file 644", b"mine")}


def mover(tmp_path: Path, *files: MovedFile) -> Mover:
    staging = tmp_path / "staging"
    for name in ("new", "old"):
        (staging / name).mkdir(parents=True, exist_ok=True)
    return Mover(tmp_path / "resource", Journal(str(staging), files=files), NoFaults(), "recover")


def sum_of(folder: Path, path: str) -> str:
    with DirectoryHandle(folder) as opened:
        return opened.fingerprint(path)


def test_undoes_a_half_linked_creation(tmp_path: Path) -> None:
    write(tmp_path / "staging/new", {"a": b"new"})
    (tmp_path / "resource").mkdir()
    os.link(tmp_path / "staging/new/a", tmp_path / "resource/a")
    file = MovedFile("a", None, None, ABSENT, sum_of(tmp_path / "resource", "a"))
    with mover(tmp_path, file) as moves:
        assert moves.back() == []
    assert snapshot(tmp_path / "resource") == {}


def test_an_identical_file_of_the_user_stays(tmp_path: Path) -> None:
    write(tmp_path / "staging/new", {"a": b"new"})
    write(tmp_path / "resource", {"a": b"new"})
    file = MovedFile("a", None, None, ABSENT, sum_of(tmp_path / "resource", "a"))
    with mover(tmp_path, file) as moves:
        assert moves.back() == ["a"]
    assert (tmp_path / "resource/a").read_bytes() == b"new"


def test_undoes_a_half_linked_replacement(tmp_path: Path) -> None:
    write(tmp_path / "resource", {"a": b"new"})
    write(tmp_path / "staging/old", {"0": b"old"})
    was, becomes = sum_of(tmp_path / "staging/old", "0"), sum_of(tmp_path / "resource", "a")
    file = MovedFile("a", None, None, was, becomes)
    with mover(tmp_path, file) as moves:
        assert moves.back() == []
        assert moves.holds_only_known()
    assert (tmp_path / "resource/a").read_bytes() == b"old"


def test_a_replacement_without_its_old_content_is_left_and_named(tmp_path: Path) -> None:
    write(tmp_path / "resource", {"a": b"new"})
    file = MovedFile("a", None, None, "100644:unknown", sum_of(tmp_path / "resource", "a"))
    with mover(tmp_path, file) as moves:
        assert moves.back() == ["a"]
    assert (tmp_path / "resource/a").read_bytes() == b"new"


def test_a_deleted_file_whose_directory_became_a_file_is_left_and_named(tmp_path: Path) -> None:
    write(tmp_path / "resource", {"d": b"in the way"})
    write(tmp_path / "staging/old", {"0": b"old"})
    file = MovedFile("d/a", None, None, sum_of(tmp_path / "staging/old", "0"), ABSENT)
    with mover(tmp_path, file) as moves:
        assert moves.back() == ["d/a"]
    assert snapshot(tmp_path / "resource") == {"d": ("file 644", b"in the way")}


def test_restored_directories_keep_their_permissions(build: Build) -> None:
    world = build({"private/deep/a": b"x\n", "b": b"y\n"})
    (world.resource / "private").chmod(0o700)
    world.plan("p", {"private/deep/a": None, "b": b"z\n"})
    with pytest.raises(ApplyRefused):
        world.with_faults(RaiseAt("apply.done.before", lambda: OSError("no"))).apply("p")
    assert (world.resource / "private").stat().st_mode & 0o777 == 0o700
    assert (world.resource / "private/deep/a").read_bytes() == b"x\n"


def test_special_files_have_their_own_fingerprint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    write(tmp_path, {"a": b"x", "link": Link("a"), "broken": Link("nowhere")})
    found = {path: sum_of(tmp_path, path) for path in ("pipe", "directory", "a", "link", "broken", "a/below")}
    assert found["a/below"] == ABSENT
    assert len(set(found.values())) == len(found)


def test_a_move_never_overwrites(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"1", "b": b"2"})
    with DirectoryHandle(tmp_path) as folder, pytest.raises(FileExistsError):
        move(folder.place("a"), folder.place("b"))
    assert (tmp_path / "b").read_bytes() == b"2"


def test_a_filesystem_that_cannot_be_synced_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class FailingLibrary:
        """libc on a failing disk."""

        def __init__(self) -> None:
            def syncfs(descriptor: int) -> int:
                ctypes.set_errno(errno.EIO)
                return -1

            self.syncfs = syncfs

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: FailingLibrary())
    exchange_module._syncfs.cache_clear()
    try:
        with pytest.raises(OSError, match="Input/output"):
            sync_filesystem(tmp_path)
    finally:
        exchange_module._syncfs.cache_clear()


def test_works_with_a_git_directory_on_another_filesystem(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs /dev/shm as a second filesystem")
    elsewhere = shared / f"cleveragents-test-{os.getpid()}"
    with ExitStack() as opened:
        world = opened.enter_context(world_at(tmp_path / "home", FILES))
        opened.callback(shutil.rmtree, elsewhere, ignore_errors=True)
        shutil.move(world.resource / ".git", elsewhere)
        (world.resource / ".git").write_text(f"gitdir: {elsewhere}\n")
        world.plan("p", EDITS)
        before = world.files()
        with pytest.raises(ApplyRefused):
            world.with_faults(RaiseAt("apply.move.after", lambda: OSError("no"), 3)).apply("p")
        assert world.files() == before
        world.apply("p")
        write(world.home / "expected", FILES)
        write(world.home / "expected", EDITS)
        expected = snapshot(world.home / "expected")
        assert {path: what for path, what in world.files().items() if path != ".git"} == expected
        world.undo("p")
        assert world.files() == before
