"""Access to paths below a directory without following links.

A command may replace a directory by a symbolic link. Writing `d/file` by name would then write outside the
sandbox. So every component is opened relative to the previous one, and a link stops the traversal.
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
# The errors of the system if a directory and another entry replaced each other.
_SWAPPED = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EISDIR})
# The errors if no directory of that name exists any more.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
_MOST_SWAPS = 1_000
# Directories that are kept open on the way down; deeper ones are opened from the last of these.
_MOST_KEPT = 64
_MOST_DEPTH = 100
_BLOCK_BYTES = 512


def is_repository_path(path: str) -> bool:
    """Return whether git can store a file under this name."""
    parts = path.split("/")
    return not any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)


@contextlib.contextmanager
def directory_of(root: Path, path: str, *, make: bool = False) -> Iterator[tuple[int, str] | None]:
    """Return the open parent directory of `path` and the last component; None if there is no such directory.

    With `make`, missing directories are created.
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
    """Open the root directory of a sandbox, even if a command removed our permissions.

    Raises `OSError`, also if the root is a link. The caller must control the path to the root.
    """
    return _opened(None, str(root))


def open_directory(parent: int, name: str) -> int:
    """Open the directory `name` in the open directory `parent`, even if a command removed our permissions.

    Raises `OSError`.
    """
    return _opened(parent, name)


def _opened(parent: int | None, name: str) -> int:
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        _let_in(parent, name)
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & _READABLE != _READABLE:  # guard: a directory that can be listed but not entered
        with contextlib.suppress(PermissionError):  # it belongs to another user; the next call reports that
            os.fchmod(descriptor, mode | _READABLE)
    return descriptor


class DirectoryCursor:
    """Opens directories below a root, one component at a time, never through a link.

    It keeps all directories on the path to the last one open, so that visiting a tree in order costs one
    `open` per directory. With `unlock`, it restores our permissions on directories that a command locked. Not
    thread-safe: for one walk. Leaving the context closes every descriptor.
    """

    def __init__(self, root: Path | int, *, unlock: bool = True) -> None:
        self._root = os.dup(root) if isinstance(root, int) else open_root(root)
        self._unlock = unlock
        self._way: list[tuple[str, int]] = []
        self._last: int | None = None

    def open(self, path: str) -> int | None:
        """Return the directory at `path`, open until the next call; None if there is no directory.

        Raises `PermissionError` if the directory cannot be entered.
        """
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
            raise  # an entry that cannot be opened still exists

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
    """Return the bytes of the regular file at `path`, or None if there is none."""
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
    """Delete the file at `path` and directories that become empty. A directory at `path` stays."""
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
    """Remove the directory at `path` if it is empty; return whether it was removed."""
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
    """Remove a directory with its contents, including unwritable entries; no link is followed.

    The caller must control the path to `directory`; its contents are untrusted. Raises `OSError` if it is not
    a directory.
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
    """Remove the entry `name` in an open directory: a file, a link, or a directory with its contents."""
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
                # It is unwritable, or a dying process still writes here.
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
                _make_writable(directory, name, _MOST_DEPTH)
    raise OSError(errno.EBUSY, "a process keeps replacing the path", name)


def _remove_directory(parent: int, name: str) -> None:
    """Remove a directory with its contents.

    Unlike `shutil.rmtree`, it never opens a link or a pipe that replaced a directory.
    """
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
    """Remove the deepest levels of a very deep directory first: each level needs an open descriptor."""
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
        return  # it changed in the meantime: the caller tries again
    finally:
        os.close(descriptor)
    remove_entry(directory, moved)


def _directory_in(descriptor: int) -> str | None:
    """Return the name of a directory in an open directory; None if there is none."""
    with os.scandir(descriptor) as entries:
        return next((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), None)


def _exists(directory: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def empty(directory: Path, *, but: str) -> None:
    """Remove everything in a directory, except the entry named `but`."""
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
    """Return the disk usage of the files below the directory, in bytes; a file with two names counts once."""
    try:
        descriptor = open_root(directory)
    except OSError:
        return 0
    try:
        return _use_in(descriptor, set(), _MOST_DEPTH)
    finally:
        os.close(descriptor)


def _use_in(directory: int, seen: set[int], depth: int) -> int:
    """Add up the disk usage through descriptors, at most `depth` levels down: a tree may be endless."""
    total = 0
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        with contextlib.suppress(OSError):  # gone, replaced, or not ours
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


def _make_writable(parent: int, name: str, depth: int) -> None:
    """Restore permissions through descriptors: a link that replaces a directory must not be followed."""
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
    # Linux can change a mode without following links only by a descriptor that needs no permission.
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{descriptor}").chmod(0o700)
    finally:
        os.close(descriptor)
