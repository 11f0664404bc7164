"""Hostile changes to a sandbox: planted git directories, and directories that are swapped for links.

A separate process keeps swapping them while the host works on them.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sandbox_resources import git

__all__ = ["CANARY", "SHAPES", "plant", "swapping", "taking", "watching_opens"]

CANARY = "canary: nobody in a sandbox may see this line"

# Exchanges a directory and a link, repeatedly, until its input ends or the minutes are over.
_SWAP = """
import ctypes, os, select, sys, time
libc = ctypes.CDLL(None, use_errno=True)
one, other = (os.fsencode(path) for path in sys.argv[1:])
end = time.monotonic() + 120
print("ready", flush=True)
while time.monotonic() < end and not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(200):
        libc.renameat2(-100, one, -100, other, 2)
"""

# Waits for a directory to appear, moves it away and puts a link in its place.
_TAKE = """
import os, select, sys, time
one, outside = sys.argv[1:]
end = time.monotonic() + 120
number = 0
print("ready", flush=True)
while time.monotonic() < end and not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(200):
        if not os.path.islink(one) and os.path.isdir(one):
            number += 1
            try:
                os.rename(one, f"{one}.taken{number}")
                os.symlink(outside, one)
            except OSError:
                pass
"""


_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")


@contextmanager
def watching_opens(directory: Path) -> Iterator[Callable[[], set[str]]]:
    """Yield a function that returns the names below the directory opened by any process since the last call.

    `.` stands for a directory itself.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    for folder in [folder for folder, _, _ in os.walk(directory)]:  # a walk opens them itself
        assert libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_OPEN) >= 0

    def opened() -> set[str]:
        names: set[str] = set()
        while True:
            try:
                events = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                return names
            while events:
                size = _EVENT.size + _EVENT.unpack_from(events)[3]
                names.add(os.fsdecode(events[_EVENT.size : size].rstrip(b"\0")) or ".")
                events = events[size:]

    try:
        yield opened
    finally:
        os.close(descriptor)


@contextmanager
def taking(directory: Path, outside: Path) -> Iterator[None]:
    """During the block, a process replaces the directory by a link to `outside` as soon as it appears."""
    with _beside(_TAKE, directory, outside):
        yield


@contextmanager
def swapping(directory: Path, outside: Path) -> Iterator[None]:
    """During the block, a process swaps the directory and a link to `outside`, thousands of times a second.

    Afterwards the directory is a directory again.
    """
    link = directory.with_name(f"{directory.name}.swap")
    link.symlink_to(outside)
    try:
        with _beside(_SWAP, directory, link):
            yield
    finally:
        if directory.is_symlink() and link.is_dir():
            directory.unlink()
            link.rename(directory)
        elif link.is_symlink():
            link.unlink()


@contextmanager
def _beside(program: str, *paths: Path) -> Iterator[None]:
    arguments = [sys.executable, "-c", program, *map(str, paths)]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.communicate(timeout=60)


def _alternates(tree: Path, secret: Path, other: Path) -> None:
    """Add alternates: git's error about a commit without its tree quotes every line of them."""
    info = tree / ".git/objects/info"
    (info / "alternates").unlink(missing_ok=True)
    (info / "alternates").symlink_to(secret)
    git(tree, "config", "core.bare", "true")
    feed = f"tree {'1' * 40}\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx\n".encode()
    name = (
        git(tree, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", feed=feed).decode().strip()
    )
    (tree / ".git/HEAD").write_text(f"{name}\n")


def _foreign_objects(tree: Path, secret: Path, other: Path) -> None:
    for name in ("objects", "refs"):
        (tree / ".git" / name).rename(tree / f".git/{name}.old")
        (tree / ".git" / name).symlink_to(other / ".git" / name)
    (tree / ".git/HEAD").write_text((other / ".git/HEAD").read_text())


def _gitdir_file(tree: Path, secret: Path, other: Path) -> None:
    (tree / ".git").rename(tree / "old")
    (tree / ".git").write_text(f"gitdir: {other / '.git'}\n")


def _gitdir_link(tree: Path, secret: Path, other: Path) -> None:
    (tree / ".git").rename(tree / "old")
    (tree / ".git").symlink_to(other / ".git")


def _common_directory(tree: Path, secret: Path, other: Path) -> None:
    (tree / ".git/commondir").write_text(str(other / ".git"))


def _included_configuration(tree: Path, secret: Path, other: Path) -> None:
    (tree / ".git/config").write_text(f"[include]\n\tpath = {secret}\n")


def _rules_that_are_links(tree: Path, secret: Path, other: Path) -> None:
    for name in (".gitignore", ".gitattributes"):
        (tree / name).unlink(missing_ok=True)
        (tree / name).symlink_to(secret)


def _pipes(tree: Path, secret: Path, other: Path) -> None:
    """Add pipes: opening one for reading blocks forever."""
    for name in (".gitignore", ".gitattributes", "pipe", ".git/index", ".git/config"):
        (tree / name).unlink(missing_ok=True)
        os.mkfifo(tree / name)


def _linked_directory(tree: Path, secret: Path, other: Path) -> None:
    (tree / "d").rename(tree / "elsewhere")
    (tree / "d").symlink_to(secret.parent)


def _nested_repository(tree: Path, secret: Path, other: Path) -> None:
    (tree / "nested").mkdir()
    (tree / "nested/.git").symlink_to(other / ".git")
    (tree / "linked").mkdir()
    (tree / "linked/.git").write_text(f"gitdir: {other / '.git'}\n")


SHAPES = {
    "alternates": _alternates,
    "foreign objects": _foreign_objects,
    "gitdir file": _gitdir_file,
    "gitdir link": _gitdir_link,
    "common directory": _common_directory,
    "included configuration": _included_configuration,
    "rules that are links": _rules_that_are_links,
    "pipes": _pipes,
    "linked directory": _linked_directory,
    "nested repository": _nested_repository,
}


def plant(shape: str, tree: Path, secret: Path, other: Path) -> None:
    """Make a tree hostile: it leads to the file `secret`, or to the foreign repository `other`."""
    SHAPES[shape](tree, secret, other)
