"""Permissions, owner and extended attributes of the user's files and directories, kept by apply and undo."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from cleveragents.apply.exchange import Place
from cleveragents.core.change import Difference

__all__ = ["Metadata", "for_new_content", "read_metadata", "write_metadata"]

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Granted to a program by its content; the system takes it away when the file is written to, too.
_CAPABILITY = "security.capability"
_SYSTEM = "system."


@dataclass(frozen=True, slots=True)
class Metadata:
    """Of a file, a directory or a symbolic link; `mode` holds its kind and its permissions."""

    mode: int
    uid: int
    gid: int
    attributes: tuple[tuple[str, bytes], ...] = ()

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


def for_new_content(metadata: Metadata, change: Difference) -> Metadata:
    """What the file gets with the content of `change.after`: all but the right to run as another user.

    The executable bit follows the change: users who may read a new program may run it.
    """
    mode = metadata.mode & ~stat.S_ISUID  # new content does not run with the privileges of the old
    was_program, is_program = (
        state is not None and bool(state.mode & stat.S_IXUSR) for state in (change.before, change.after)
    )
    if is_program and not was_program:
        mode |= (mode & 0o444) >> 2
    elif was_program and not is_program:
        mode &= ~0o111
    attributes = tuple(pair for pair in metadata.attributes if pair[0] != _CAPABILITY)
    return replace(metadata, mode=mode, attributes=attributes)


def read_metadata(place: Place) -> Metadata | None:
    """What the file, directory or link has; None if there is none of them."""
    directory, name = place
    try:
        status = os.lstat(name, dir_fd=directory)
        if stat.S_ISLNK(status.st_mode):
            return Metadata(status.st_mode, status.st_uid, status.st_gid)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return None
        with _opened(place) as descriptor:
            status = os.fstat(descriptor)
            names = sorted(_attribute_names(descriptor))
            attributes = tuple((name, os.getxattr(descriptor, name)) for name in names)
    except FileNotFoundError:
        return None
    return Metadata(status.st_mode, status.st_uid, status.st_gid, attributes)


def write_metadata(place: Place, metadata: Metadata) -> None:
    """Give it to the file, directory or link, as far as its user may; without the owner if need be."""
    directory, name = place
    if stat.S_ISLNK(os.lstat(name, dir_fd=directory).st_mode) or metadata.is_link:
        with suppress(PermissionError):
            os.chown(name, metadata.uid, metadata.gid, dir_fd=directory, follow_symlinks=False)
        return
    with _opened(place) as descriptor:
        _write_owner(descriptor, metadata.uid, metadata.gid)
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(metadata.mode)
        if status.st_uid != metadata.uid:
            mode &= ~stat.S_ISUID  # it would run as another user than before
        if status.st_gid != metadata.gid:
            mode &= ~stat.S_ISGID
        _remove_attributes(descriptor, but={name for name, _ in metadata.attributes})
        # Access control lists change permissions; all other attributes need the permission to write.
        lists = [pair for pair in metadata.attributes if pair[0].startswith(_SYSTEM)]
        _set_attributes(descriptor, [pair for pair in metadata.attributes if pair not in lists])
        os.fchmod(descriptor, mode)
        _set_attributes(descriptor, lists)


@contextmanager
def _opened(place: Place) -> Iterator[int]:
    descriptor = os.open(place[1], _FILE, dir_fd=place[0])
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_owner(descriptor: int, uid: int, gid: int) -> None:
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) == (uid, gid):
        return
    try:
        os.fchown(descriptor, uid, gid)
    except PermissionError:
        with suppress(PermissionError):
            os.fchown(descriptor, -1, gid)


def _remove_attributes(descriptor: int, *, but: Collection[str]) -> None:
    for name in _attribute_names(descriptor):
        if name not in but:
            with suppress(OSError):
                os.removexattr(descriptor, name)


def _set_attributes(descriptor: int, attributes: Iterable[tuple[str, bytes]]) -> None:
    """Those that only the system may set (some of `security` and `trusted`) stay as they are."""
    for name, value in attributes:
        with suppress(OSError):
            os.setxattr(descriptor, name, value)


def _attribute_names(descriptor: int) -> list[str]:
    if sys.platform != "linux":
        return []
    try:
        return os.listxattr(descriptor)
    except OSError:  # a filesystem without them
        return []
