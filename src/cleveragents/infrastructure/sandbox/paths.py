"""Reaching a path below a directory without following a link on the way.

A command may have put a symbolic link where a directory was. Whoever then writes `d/file` by name would write
outside the sandbox; so every step is opened from the one before, and a link ends the way.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "delete_file",
    "directory_of",
    "disk_use",
    "empty",
    "is_repository_path",
    "make_writable",
    "read_file",
    "remove_all",
]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ATTEMPTS = 5
_BLOCK_BYTES = 512


def is_repository_path(path: str) -> bool:
    """Whether git could keep a file under that name."""
    parts = path.split("/")
    return not any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)


@contextlib.contextmanager
def directory_of(root: Path, path: str, *, make: bool = False) -> Iterator[tuple[int, str] | None]:
    """The open directory that holds `path`, and its last part; None if the way is blocked.

    `make`: directories that are missing on the way are made.
    """
    *parents, name = path.split("/")
    descriptor = os.open(root, _DIRECTORY)
    way_is_clear = True
    try:
        for part in parents:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            try:
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
            except OSError:
                way_is_clear = False
                break
            os.close(descriptor)
            descriptor = below
        yield (descriptor, name) if way_is_clear else None
    finally:
        os.close(descriptor)


def read_file(root: Path, path: str) -> bytes | None:
    """The bytes of the regular file at `path`; None if there is none."""
    with directory_of(root, path) as found:
        if found is None:
            return None
        try:
            descriptor = os.open(found[1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=found[0])
        except OSError:
            return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def delete_file(root: Path, path: str) -> None:
    """No file is at `path` afterwards; directories that this emptied are gone. A directory there stays."""
    with directory_of(root, path) as found:
        if found is None:
            return
        descriptor, name = found
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=descriptor).st_mode):
                return
            os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            return
    _prune(root, path)


def _prune(root: Path, path: str) -> None:
    while "/" in path:
        path = path.rpartition("/")[0]
        with directory_of(root, path) as found:
            if found is None:
                return
            descriptor, name = found
            try:
                os.rmdir(name, dir_fd=descriptor)
            except OSError:
                return


def remove_all(directory: Path) -> None:
    """Removes a directory with all that is in it, also what was made unwritable; no link is followed."""
    for attempt in range(_ATTEMPTS):
        try:
            shutil.rmtree(directory)
            return
        except FileNotFoundError:
            if not directory.exists():
                return
        except OSError:
            # Made unwritable, or a dying process still writes here.
            if attempt == _ATTEMPTS - 1:
                raise
            make_writable(directory)


def empty(directory: Path, *, but: str) -> None:
    """Removes all that is in a directory, except what is called `but`."""
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name == but:
            continue
        if entry.is_dir() and not entry.is_symlink():
            remove_all(entry)
        else:
            entry.unlink(missing_ok=True)


def disk_use(directory: Path) -> int:
    """What the files below take on disk, in bytes; a file with two names counts once."""
    total = 0
    seen: set[int] = set()
    for place, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = Path(place, name).lstat()
                if status.st_nlink == 1 or status.st_ino not in seen:
                    total += status.st_blocks * _BLOCK_BYTES
                    seen.add(status.st_ino)
    return total


def make_writable(directory: Path) -> None:
    """Lets us into every directory below, so that it can be removed; those that are not ours stay shut."""
    with contextlib.suppress(OSError):
        directory.chmod(0o700)
    for place, names, _ in os.walk(directory):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.chmod(0o700)
