"""Copies of files and directories that cost nothing where the filesystem can share their blocks.

Every step goes from one open directory to the next, so no symbolic link is followed, on either side.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

__all__ = ["copy_content", "copy_entry", "copy_file"]

_FICLONE = 0x40049409
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# What is not any more what it was when we looked.
_REPLACED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def copy_entry(source: int, target: int, name: str, *, without: str | None = None) -> list[str]:
    """Copies what is called `name` in the open directory `source` into the open directory `target`: file,
    link, or directory with all that is in it, with modes and times. What vanishes meanwhile is left out.

    Returns what is none of these (sockets, pipes, devices), which is left out too, as is all that is called
    `without`.
    """
    if name == without:
        return [name]
    try:
        status = os.lstat(name, dir_fd=source)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISREG(status.st_mode):
            _copy_file(source, target, name)
        elif stat.S_ISDIR(status.st_mode):
            return _copy_directory(source, target, name, without)
        else:
            return [name]
    except OSError as error:
        if error.errno not in _REPLACED:
            raise
    return []


def copy_file(source: int, target: int, name: str) -> os.stat_result | None:
    """Copies the file or link called `name`, and returns what it was when it was opened; None if there is
    neither by now."""
    try:
        status = os.lstat(name, dir_fd=source)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            return status
        return _copy_file(source, target, name)
    except FileNotFoundError:
        return None


def copy_content(source: int, target: int, *, without: str | None = None) -> list[str]:
    """The same for all that is in the open directory `source`."""
    with os.scandir(source) as entries:
        names = [entry.name for entry in entries]
    return [left for name in names for left in copy_entry(source, target, name, without=without)]


def _copy_directory(source: int, target: int, name: str, without: str | None) -> list[str]:
    below = os.open(name, _DIRECTORY, dir_fd=source)
    try:
        os.mkdir(name, mode=0o700, dir_fd=target)
        copy = os.open(name, _DIRECTORY, dir_fd=target)
        try:
            left = [f"{name}/{path}" for path in copy_content(below, copy, without=without)]
            _keep_times(below, copy)
        finally:
            os.close(copy)
    finally:
        os.close(below)
    return left


def _copy_file(source: int, target: int, name: str) -> os.stat_result | None:
    original = os.open(name, _READ, dir_fd=source)
    try:
        status = os.fstat(original)
        if not stat.S_ISREG(status.st_mode):  # guard: it may have been replaced since somebody looked
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
        # Another filesystem, or one that cannot share.
        _copy_data(original, copy)


def _copy_data(original: int, copy: int) -> None:
    """Only what is not a hole: a sparse file stays one."""
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
