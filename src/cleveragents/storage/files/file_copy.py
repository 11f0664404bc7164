"""Copies of files and directories, which share blocks if the filesystem supports it.

Every step opens a directory relative to the previous one, so no symbolic link is followed in the source or
the target. Commands may have created the source: it may be nested to any depth, deny access, and change
during the copy. A copy includes everything readable down to 500 levels; the caller gets the paths of the
rest.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from cleveragents.storage.files.paths import DirectoryCursor

__all__ = ["copy_content", "copy_entry", "copy_file"]

_FICLONE = 0x40049409
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# The entry is no longer what it was when it was listed.
_REPLACED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL})
_MOST_LEVELS = 500


def copy_entry(source: int, target: int, name: str, *, without: str | None = None) -> list[str]:
    """Copy the entry `name` from the open directory `source` into the open directory `target`.

    The entry is a file, a link, or a directory with its contents; modes and times are kept. Entries that
    disappear during the copy are skipped. Returns the paths of everything else that is left out: sockets,
    pipes and devices, unreadable entries, entries that are too deep, and entries named `without`.
    """
    return _Copy(source, target, without).run([name])


def copy_file(source: int, target: int, name: str) -> os.stat_result | None:
    """Copy the file or link `name` and return its status when it was opened; None if it no longer exists."""
    try:
        status = os.lstat(name, dir_fd=source)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            return status
        return _copy_file(source, target, name)
    except FileNotFoundError:
        return None


def copy_content(source: int, target: int, *, without: str | None = None) -> list[str]:
    """Copy everything in the open directory `source` into `target`, each entry as `copy_entry` does."""
    return _Copy(source, target, without).run(_names_in(source))


class _Copy:
    """One copy, a directory at a time. Not thread-safe."""

    def __init__(self, source: int, target: int, without: str | None) -> None:
        self._source = source
        self._target = target
        self._without = without
        self._left: list[str] = []

    def run(self, names: list[str]) -> list[str]:
        """Copy these entries of the source; return the paths that were left out."""
        with (
            DirectoryCursor(self._source, unlock=False) as reading,
            DirectoryCursor(self._target, unlock=False) as writing,
        ):
            waiting = [(path, False) for path in self._fill(self._source, self._target, "", names)]
            while waiting:
                path, is_filled = waiting.pop()
                with self._unless_left_out(path):
                    original = reading.open(path)
                    if original is None:
                        continue
                    if not is_filled:
                        names = _names_in(original)
                        copy = _make(writing, path)
                        waiting.append((path, True))
                        waiting += [(below, False) for below in self._fill(original, copy, f"{path}/", names)]
                    elif (filled := writing.open(path)) is not None:
                        _keep_times(original, filled)  # only now, because nothing more is written into it
        return self._left

    def _fill(self, source: int, target: int, before: str, names: list[str]) -> list[str]:
        """Copy the files and links among these entries of a directory; return the directories."""
        directories = []
        for name in names:
            path = before + name
            if name == self._without or path.count("/") > _MOST_LEVELS:
                self._left.append(path)
                continue
            with self._unless_left_out(path):
                mode = os.lstat(name, dir_fd=source).st_mode
                if stat.S_ISDIR(mode):
                    directories.append(path)
                elif stat.S_ISREG(mode):
                    _copy_file(source, target, name)
                elif stat.S_ISLNK(mode):
                    os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                else:
                    self._left.append(path)
        return directories

    @contextmanager
    def _unless_left_out(self, path: str) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            self._left.append(path)
        except OSError as error:
            if error.errno not in _REPLACED:
                raise


def _names_in(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _make(writing: DirectoryCursor, path: str) -> int:
    """Create the directory at `path` and return it, open until the next call."""
    parent, _, name = path.rpartition("/")
    above = writing.open(parent)
    if above is not None:
        os.mkdir(name, mode=0o700, dir_fd=above)
    made = None if above is None else writing.open(path)
    if made is None:
        raise OSError(errno.EBUSY, "the target was removed during the copy", path)
    return made


def _copy_file(source: int, target: int, name: str) -> os.stat_result | None:
    original = os.open(name, _READ, dir_fd=source)
    try:
        status = os.fstat(original)
        if not stat.S_ISREG(status.st_mode):  # guard: it may have been replaced since it was listed
            return None
        copy = os.open(name, _WRITE, mode=0o600, dir_fd=target)
        try:
            _copy_bytes(original, copy)
            _keep_times(original, copy)
        finally:
            os.close(copy)
    finally:
        os.close(original)
    return status


def _keep_times(original: int, copy: int) -> None:
    status = os.fstat(original)
    os.fchmod(copy, stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_bytes(original: int, copy: int) -> None:
    try:
        fcntl.ioctl(copy, _FICLONE, original)
    except OSError:
        # Another filesystem, or one that cannot share blocks.
        _copy_data(original, copy)


def _copy_data(original: int, copy: int) -> None:
    """Copy everything except holes: a sparse file stays sparse."""
    size = os.fstat(original).st_size
    position = 0
    while position < size:
        try:
            position = os.lseek(original, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        end = os.lseek(original, position, os.SEEK_HOLE)
        os.lseek(original, position, os.SEEK_SET)
        os.lseek(copy, position, os.SEEK_SET)
        while position < end:
            sent = os.sendfile(copy, original, None, end - position)
            if not sent:
                return
            position += sent
    os.ftruncate(copy, size)
