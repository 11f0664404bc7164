"""A directory is swapped for a link to the outside while tools work: nothing outside is read or written."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path

import pytest

from cleveragents.core.errors import OutsideSandbox, ToolRefused
from cleveragents.tools.files.confined_files import ConfinedFiles

SECRET = b"secret"
ROUNDS = 4000
SECONDS = 6.0
# The naive one stops at its first escape; on a busy machine that may take a while.
PATIENCE_SECONDS = 60.0

# Swaps sandbox/place, a directory, for a link to ../outside and back, as fast as possible, until it is
# killed. RENAME_EXCHANGE leaves no gap; without it, two renames are used.
SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
exchange = getattr(libc, "renameat2", None)
def swap():
    if exchange is not None and exchange(-100, b"place", -100, b"link", 2) == 0:
        return
    os.rename("place", "spare"); os.rename("link", "place"); os.rename("spare", "link")
swap()
print("ready", flush=True)
while True:
    swap()
"""


class NaiveFiles:
    """The usual way: resolve the path first, then open it by name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _inside(self, path: str) -> Path:
        real = (self._root / path).resolve()
        if not real.is_relative_to(self._root.resolve()):
            raise OutsideSandbox(path, "is outside")
        return self._root / path

    def read(self, path: str) -> bytes:
        return self._inside(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        self._inside(path).write_bytes(data)

    def delete(self, path: str) -> None:
        self._inside(path).unlink()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return build(tmp_path)


def build(tmp_path: Path) -> Path:
    """Create a sandbox with a directory and, beside it, a directory that must not be reached."""
    for place in ("sandbox/place", "outside"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "outside" / "file").write_bytes(SECRET)
    (tmp_path / "sandbox" / "place" / "file").write_bytes(b"mine")
    (tmp_path / "sandbox" / "link").symlink_to("../outside")
    (tmp_path / "sandbox" / "place" / "other").symlink_to("../../outside/file")
    return tmp_path


@contextmanager
def swapping(sandbox: Path) -> Iterator[None]:
    """Swap in another process during the block."""
    with subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(sandbox)], stdout=subprocess.PIPE, text=True
    ) as swapper:
        try:
            assert swapper.stdout is not None
            assert swapper.stdout.readline() == "ready\n"
            yield
        finally:
            swapper.kill()


def escaped(world: Path) -> str:
    """Return the changed files outside."""
    outside = {path.name: path.read_bytes() for path in (world / "outside").iterdir()}
    return "" if outside == {"file": SECRET} else str(outside)


def first_escape(
    world: Path, attempt: Callable[[], bytes | None], *, rounds: int = ROUNDS, seconds: float = SECONDS
) -> tuple[str, int]:
    """Try repeatedly; return the first thing reached outside, and the number of successes inside."""
    worked = 0
    deadline = time.monotonic() + seconds
    with swapping(world / "sandbox"):
        for _ in range(rounds):
            if time.monotonic() > deadline:
                break
            try:
                got = attempt()
                worked += 1
            except (OSError, OutsideSandbox, ToolRefused):
                got = None
            found = "read the secret" if got == SECRET else escaped(world)
            if found:
                return found, worked
    return "", worked


def reading(files: ConfinedFiles | NaiveFiles) -> Callable[[], bytes | None]:
    return lambda: files.read("place/file")


def writing(files: ConfinedFiles | NaiveFiles) -> Callable[[], bytes | None]:
    return lambda: files.write("place/file", b"overwritten")


def deleting(files: ConfinedFiles | NaiveFiles) -> Callable[[], bytes | None]:
    def both() -> None:
        files.write("place/gone", b"x")
        files.delete("place/gone")
        files.delete("place/file")

    return both


ATTEMPTS = [reading, writing, deleting]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_reaches_nothing_outside_while_the_tree_changes(world: Path, attempt: Callable) -> None:
    found, worked = first_escape(world, attempt(ConfinedFiles(world / "sandbox")))
    assert found == ""
    assert worked > 0, "it never worked at all, so nothing was shown"


def test_deleting_a_swapped_directory_deletes_nothing_outside(world: Path) -> None:
    files = ConfinedFiles(world / "sandbox")

    steps = cycle(
        (
            lambda: files.write("place/sub/file", b"x"),
            lambda: files.move("place/sub", "place/other"),
            lambda: files.delete("place/other"),
        )
    )
    found, worked = first_escape(world, lambda: next(steps)())
    assert found == ""
    assert worked > 0


def test_a_walk_returns_nothing_outside_the_tree(world: Path) -> None:
    (world / "outside" / "hidden").mkdir()
    (world / "outside" / "hidden" / "name").write_bytes(b"")
    files = ConfinedFiles(world / "sandbox")
    whole = 0
    with swapping(world / "sandbox"):
        for _ in range(ROUNDS // 4):
            seen = {found.path for found in files.walk()}
            assert not any("hidden" in path for path in seen)
            whole += any(path.endswith("/file") for path in seen)
    assert whole > 0


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_catches_a_check_before_open(world: Path, attempt: Callable) -> None:
    naive = attempt(NaiveFiles(world / "sandbox"))
    found, _ = first_escape(world, naive, rounds=10**9, seconds=PATIENCE_SECONDS)
    assert found, "the race was not provoked, so the other tests prove nothing"


# The calls of a file operation; pathlib opens with `io.open`.
CALLS = [(os, name) for name in ("open", "stat", "lstat", "readlink", "rename", "mkdir", "unlink", "scandir")]
CALLS.append((io, "open"))


def escape_when_swapped_at(
    step: int, world: Path, swap: Callable[[Path], None], attempt: Callable[[], bytes | None]
) -> tuple[str, bool]:
    """Swap once, right before that system call; return what was reached, and whether the call happened."""
    made = count()
    reached = False

    def stepping(real: Callable) -> Callable:
        def call(*arguments: object, **options: object) -> object:
            nonlocal reached
            if next(made) == step:
                reached = True
                swap(world / "sandbox")
            return real(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module, name in CALLS:
            patch.setattr(module, name, stepping(getattr(module, name)))
        try:
            got = attempt()
        except (OSError, OutsideSandbox, ToolRefused):
            got = None
    return "read the secret" if got == SECRET else escaped(world), reached


def swap_directory(sandbox: Path, rename: Callable[[Path, Path], None] = os.rename) -> None:
    """Swap with the real rename, bound at import."""
    rename(sandbox / "place", sandbox / "spare")
    rename(sandbox / "link", sandbox / "place")
    rename(sandbox / "spare", sandbox / "link")


def swap_file(sandbox: Path, rename: Callable[[Path, Path], None] = os.rename) -> None:
    rename(sandbox / "place" / "other", sandbox / "place" / "file")


def escapes_at(directory: Path, make: type, swap: Callable[[Path], None], attempt: Callable) -> list[int]:
    """Return the steps at which a swap lets the attempt escape; each step is tried in its own world."""
    found = []
    for step in count():
        world = build(directory / str(step))
        what, reached = escape_when_swapped_at(step, world, swap, attempt(make(world / "sandbox")))
        if what:
            found.append(step)
        if not reached:
            return found
    raise AssertionError


@pytest.mark.parametrize("swap", [swap_directory, swap_file])
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_swap_before_any_step_leaks_nothing(
    tmp_path: Path, swap: Callable[[Path], None], attempt: Callable
) -> None:
    assert escapes_at(tmp_path, ConfinedFiles, swap, attempt) == []


@pytest.mark.parametrize(
    ("swap", "attempt"),
    [
        (swap_directory, reading),
        (swap_directory, writing),
        (swap_directory, deleting),
        (swap_file, reading),
        (swap_file, writing),
    ],
)
def test_the_naive_way_fails_at_some_step(
    tmp_path: Path, swap: Callable[[Path], None], attempt: Callable
) -> None:
    assert escapes_at(tmp_path, NaiveFiles, swap, attempt) != []
