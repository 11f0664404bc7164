"""Reaching a path below a directory without following a link on the way.

A command may have put a symbolic link where a directory was. Whoever then writes `d/file` by name would write
outside the sandbox; so every step is opened from the one before, and a link ends the way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

__all__ = [
    "DirectoryCursor",
    "delete_file",
    "directory_of",
    "disk_use",
    "empty",
    "is_repository_path",
    "make_writable",
    "open_directory",
    "open_root",
    "read_file",
    "remove_all",
    "remove_empty",
    "remove_entry",
]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_READABLE = stat.S_IRUSR | stat.S_IXUSR
_ATTEMPTS = 5
# What the system says when a directory and something else took each other's place.
_SWAPPED = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EISDIR})
# What it says when there is no directory of that name, or none any more.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
_MOST_SWAPS = 1_000
# Open directories that are kept on the way down; deeper ones are opened from the last of these.
_MOST_KEPT = 64
_MOST_DEPTH = 100
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
    descriptor = open_root(root)
    way_is_clear = True
    try:
        for part in parents:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            try:
                below = open_directory(descriptor, part)
            except OSError:
                way_is_clear = False
                break
            os.close(descriptor)
            descriptor = below
        yield (descriptor, name) if way_is_clear else None
    finally:
        os.close(descriptor)


def open_root(root: Path) -> int:
    """Opens the directory of a sandbox's files, also one that a command has locked us out of. `OSError`, also
    if it is a link. The way to it must be ours."""
    return _opened(None, str(root))


def open_directory(parent: int, name: str) -> int:
    """Opens a directory in an open one, also one that a command has locked us out of. `OSError`."""
    return _opened(parent, name)


def _opened(parent: int | None, name: str) -> int:
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        _let_in(parent, name)
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & _READABLE != _READABLE:  # guard: one that can be listed, and in which nothing can be reached
        with contextlib.suppress(PermissionError):  # another user's: then what follows says so
            os.fchmod(descriptor, mode | _READABLE)
    return descriptor


class DirectoryCursor:
    """Opens directories below a root, one component at a time, never through a link.

    It keeps the way to the last directory open, so that visiting a tree in order costs one `open` for each.
    With `unlock`, it lets itself into directories that a command has locked us out of.
    Not thread-safe: for one walk. Leaving it closes every descriptor.
    """

    def __init__(self, root: Path | int, *, unlock: bool = True) -> None:
        self._root = os.dup(root) if isinstance(root, int) else open_root(root)
        self._unlock = unlock
        self._way: list[tuple[str, int]] = []
        self._last: int | None = None

    def open(self, path: str) -> int | None:
        """The directory at `path`, open until the next call; None if no directory is there. `PermissionError`
        if there is one, and it lets nobody in."""
        self._close_last()
        parts = path.split("/") if path else []
        common = 0
        while common < min(len(parts), len(self._way)) and self._way[common][0] == parts[common]:
            common += 1
        while len(self._way) > common:
            os.close(self._way.pop()[1])
        descriptor = self._way[-1][1] if self._way else self._root
        for part in parts[common:]:
            below = self._open_below(descriptor, part)
            self._close_last()
            if below is None:
                return None
            if len(self._way) < _MOST_KEPT:
                self._way.append((part, below))
            else:
                self._last = below
            descriptor = below
        return descriptor

    def _open_below(self, descriptor: int, part: str) -> int | None:
        try:
            if self._unlock:
                return open_directory(descriptor, part)
            return os.open(part, _DIRECTORY, dir_fd=descriptor)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise  # what cannot be opened is not gone

    def _close_last(self) -> None:
        if self._last is not None:
            os.close(self._last)
            self._last = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close_last()
        for _, descriptor in self._way:
            os.close(descriptor)
        os.close(self._root)


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


def remove_empty(root: Path, path: str) -> bool:
    """Removes the directory at `path` if it is empty; whether it did."""
    with directory_of(root, path) as found:
        if found is None:
            return False
        try:
            os.rmdir(found[1], dir_fd=found[0])
        except OSError:
            return False
    return True


def _prune(root: Path, path: str) -> None:
    while "/" in path:
        path = path.rpartition("/")[0]
        if not remove_empty(root, path):
            return


def remove_all(directory: Path) -> None:
    """Removes a directory with all that is in it, also what was made unwritable; no link is followed.

    The way to `directory` itself must be ours: what is in it may be anybody's. `OSError` if it is none.
    """
    if directory.is_file():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    try:
        parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        remove_entry(parent, directory.name)
    finally:
        os.close(parent)


def remove_entry(directory: int, name: str) -> None:
    """Removes what is called `name` in an open directory: a file, a link, or a directory with all in it."""
    attempts = 0
    for contested in range(_MOST_SWAPS):
        try:
            if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                os.unlink(name, dir_fd=directory)
            else:
                _remove_directory(directory, name)
            return
        except FileNotFoundError:
            if not _exists(directory, name):
                return
        except RecursionError:
            _shorten(directory, name)
        except OSError as error:
            if error.errno == errno.EMFILE:
                _shorten(directory, name)
            elif error.errno not in _SWAPPED or contested == _MOST_SWAPS - 1:
                # Made unwritable, or a dying process still writes here.
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
                _make_writable(directory, name, _MOST_DEPTH)
    raise OSError(errno.EBUSY, "a process keeps replacing it", name)


def _remove_directory(parent: int, name: str) -> None:
    """Removes a directory with all in it. Unlike `shutil.rmtree`, it never opens a link or a pipe that takes
    the place of a directory."""
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        with os.scandir(descriptor) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_directory in found:
            if is_directory:
                _remove_directory(descriptor, child)
            else:
                os.unlink(child, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    os.rmdir(name, dir_fd=parent)


def _shorten(directory: int, name: str) -> None:
    """Removes what is very deep below a directory first: every level of it costs a descriptor."""
    descriptor = os.open(name, _DIRECTORY, dir_fd=directory)
    moved = f".removed-{secrets.token_hex(8)}"
    try:
        for _ in range(_MOST_DEPTH):
            child = _directory_in(descriptor)
            if child is None:
                return
            below = os.open(child, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        child = _directory_in(descriptor)
        if child is None:
            return
        os.rename(child, moved, src_dir_fd=descriptor, dst_dir_fd=directory)
    except OSError:
        return  # it changed meanwhile: whoever removes it tries again
    finally:
        os.close(descriptor)
    remove_entry(directory, moved)


def _directory_in(descriptor: int) -> str | None:
    """One of the directories in an open one."""
    with os.scandir(descriptor) as entries:
        return next((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), None)


def _exists(directory: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


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
    try:
        descriptor = open_root(directory)
    except OSError:
        return 0
    try:
        return _use_in(descriptor, set(), _MOST_DEPTH)
    finally:
        os.close(descriptor)


def _use_in(directory: int, seen: set[int], depth: int) -> int:
    """Through descriptors alone, and not below `depth` directories: commands may have made any number."""
    total = 0
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        with contextlib.suppress(OSError):  # gone, or replaced, or not ours
            if is_directory:
                below = os.open(name, _DIRECTORY, dir_fd=directory)
                try:
                    total += _use_in(below, seen, depth - 1) if depth else 0
                finally:
                    os.close(below)
                continue
            status = os.lstat(name, dir_fd=directory)
            if status.st_nlink == 1 or status.st_ino not in seen:
                total += status.st_blocks * _BLOCK_BYTES
                seen.add(status.st_ino)
    return total


def make_writable(directory: Path) -> None:
    """Lets us into every directory below, so that it can be removed; those that are not ours stay shut."""
    with contextlib.suppress(OSError):
        parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _make_writable(parent, directory.name, _MOST_DEPTH)
        finally:
            os.close(parent)


def _make_writable(parent: int, name: str, depth: int) -> None:
    """Through descriptors alone: a link that takes a directory's place meanwhile must not be followed."""
    with contextlib.suppress(OSError):
        _let_in(parent, name)
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            with os.scandir(descriptor) as entries:
                below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            for child in below if depth else ():
                _make_writable(descriptor, child, depth - 1)
        finally:
            os.close(descriptor)


def _let_in(parent: int | None, name: str) -> None:
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
        return
    # Linux cannot change a mode without following links, but by a descriptor that needs no permission.
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{descriptor}").chmod(0o700)
    finally:
        os.close(descriptor)
