"""Move files by name below one directory, without ever overwriting a file or following a link.

The kernel swaps two names in one step (`renameat2`), so a path always holds the old or the new file, and the
old file is kept under the other name. Where the kernel or the file system cannot swap, a hard link keeps the
old file while the new one takes its name. Parents are opened one by one without following links, so a
directory that is replaced by a symbolic link meanwhile is not entered.

Also reads and writes the permissions, owner and extended attributes that apply and undo preserve.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import TracebackType

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.core.change import Difference

__all__ = [
    "ABSENT",
    "DirectoryHandle",
    "FileObservation",
    "Metadata",
    "Place",
    "exchange",
    "fingerprint",
    "for_new_content",
    "look",
    "move",
    "read_metadata",
    "sync_filesystem",
    "write_metadata",
]


ABSENT = ""
"""The fingerprint of a missing file."""
_NOREPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Place = tuple[int, str]
"""A name in an open directory."""

# Privileges granted to a program's content; the system also removes them on every write.
_CAPABILITY = "security.capability"
_SYSTEM = "system."


class FileObservation(Struct, frozen=True):
    """A file as it was read: its fingerprint, its object name in git, its permissions, its modification time
    and its size.
    """

    fingerprint: str
    blob: str = ""
    permissions: int = 0
    written: tuple[int, int] = (0, 0)

    @property
    def is_regular(self) -> bool:
        return self.fingerprint.startswith(("100644:", "100755:"))

    @property
    def is_link(self) -> bool:
        return self.fingerprint.startswith("120000:")

    @property
    def is_directory(self) -> bool:
        return self.fingerprint == f"{stat.S_IFDIR:o}:"


class DirectoryHandle:
    """A directory for looking up paths. Not thread-safe: use it in the call that opened it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # The parent of the last path: files come sorted, so the next one is usually there, too.
        self._parent = ""
        self._descriptor = self._root

    def place(self, path: str) -> Place:
        """Return the place of `path`, valid until the next call. Raises `OSError` if a parent is missing, a
        link or a file.
        """
        parent, _, name = path.rpartition("/")
        if parent != self._parent:
            self._leave()
            if parent:
                self._descriptor = self._walk(parent)
                self._parent = parent
        return self._descriptor, name

    def make_parents(self, path: str) -> None:
        """Create the parent directories of `path`."""
        parent = path.rpartition("/")[0]
        if not parent:
            return
        try:
            self.place(path)
        except FileNotFoundError:
            self.make_parents(parent)
            directory, name = self.place(parent)
            os.mkdir(name, dir_fd=directory)

    def remove_directory(self, path: str) -> bool:
        """Remove an empty directory; return whether it was removed."""
        try:
            directory, name = self.place(path)
            os.rmdir(name, dir_fd=directory)
        except OSError:
            return False
        self._leave()  # guard: a later directory with that name is another one
        return True

    def look(self, path: str, hash_like: str = "") -> FileObservation:
        """Read the file at `path`; it counts as missing if a parent is not a directory."""
        try:
            place = self.place(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return FileObservation(ABSENT)
        return look(place, hash_like)

    def fingerprint(self, path: str) -> str:
        """Return the fingerprint of the file at `path`; `ABSENT` if it is missing."""
        return self.look(path).fingerprint

    def close(self) -> None:
        self._leave()
        os.close(self._root)

    def __enter__(self) -> DirectoryHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _leave(self) -> None:
        if self._descriptor != self._root:
            os.close(self._descriptor)
        self._parent, self._descriptor = "", self._root

    def _walk(self, parent: str) -> int:
        descriptor = self._root
        for name in parent.split("/"):
            try:
                following = os.open(name, _DIRECTORY, dir_fd=descriptor)  # guard: no link is followed
            finally:
                if descriptor != self._root:
                    os.close(descriptor)
            descriptor = following
        return descriptor


def fingerprint(place: Place) -> str:
    """Return a fingerprint of kind, executable bit and content; `ABSENT` if the file is missing."""
    return look(place).fingerprint


def look(place: Place, hash_like: str = "") -> FileObservation:
    """Read the file at the place. `hash_like` is an object name of git; with it, the result's `blob` is git's
    object name of the unconverted content.
    """
    directory, name = place
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        return FileObservation(ABSENT)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        target = os.fsencode(os.readlink(name, dir_fd=directory))
        return FileObservation("120000:" + hashlib.sha256(target).hexdigest(), _blob(target, hash_like))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return FileObservation(f"{stat.S_IFMT(status.st_mode):o}:")
        digest, blob = _digests(descriptor, status.st_size, hash_like)
    finally:
        os.close(descriptor)
    kind = "100755:" if status.st_mode & stat.S_IXUSR else "100644:"
    written = (status.st_mtime_ns, status.st_size)
    return FileObservation(kind + digest, blob, stat.S_IMODE(status.st_mode), written)


def _digests(descriptor: int, size: int, hash_like: str) -> tuple[str, str]:
    """Return the SHA-256 of the file's content, and git's object name of it."""
    # One byte more than expected, so that one read shows that a small file is complete.
    chunk = os.read(descriptor, min(size, _CHUNK_BYTES) + 1)
    digest = hashlib.sha256(chunk)
    if len(chunk) == size:
        return digest.hexdigest(), _blob(chunk, hash_like)
    blob = _blob_digest(size, hash_like)
    while chunk:
        blob.update(chunk)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        digest.update(chunk)
    return digest.hexdigest(), blob.hexdigest()


def _blob(content: bytes, hash_like: str) -> str:
    if not hash_like:
        return ""
    digest = _blob_digest(len(content), hash_like)
    digest.update(content)
    return digest.hexdigest()


def _blob_digest(size: int, like: str) -> hashlib._Hash:
    head = b"blob %d\0" % size
    return hashlib.sha256(head) if len(like) == 64 else hashlib.sha1(head, usedforsecurity=False)


def exchange(one: Place, other: Place, spare: Place) -> None:
    """Swap two existing files.

    `spare` is a free name beside `one`, for kernels that cannot swap: even then, `other` always holds one of
    the two files.
    """
    rename = _renameat2()
    if rename is not None and _tried(rename, one, other, _EXCHANGE):
        return
    os.link(other[1], spare[1], src_dir_fd=other[0], dst_dir_fd=spare[0], follow_symlinks=False)
    kept = os.stat(spare[1], dir_fd=spare[0], follow_symlinks=False)
    present = os.stat(other[1], dir_fd=other[0], follow_symlinks=False)
    if not os.path.samestat(kept, present):  # guard: the kept file must be the replaced one
        os.unlink(spare[1], dir_fd=spare[0])
        raise FileExistsError(errno.EEXIST, "the file was replaced during the apply", other[1])
    os.rename(one[1], other[1], src_dir_fd=one[0], dst_dir_fd=other[0])
    os.rename(spare[1], one[1], src_dir_fd=spare[0], dst_dir_fd=one[0])


def move(source: Place, target: Place) -> None:
    """Rename a file to a free name. Raises `FileExistsError` instead of overwriting."""
    rename = _renameat2()
    if rename is not None and _tried(rename, source, target, _NOREPLACE):
        return
    # A link also fails if the name exists.
    os.link(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0], follow_symlinks=False)
    os.unlink(source[1], dir_fd=source[0])


def sync_filesystem(path: str | os.PathLike[str]) -> None:
    """Return once everything written to the file system of `path` would survive a power cut."""
    sync = _syncfs()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if sync is None:
            os.sync()
        elif sync(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def _tried(rename: Callable[..., int], one: Place, other: Place, flag: int) -> bool:
    """Rename with this flag of `renameat2`. Return False if the kernel or the file system does not support
    it.
    """
    if rename(one[0], os.fsencode(one[1]), other[0], os.fsencode(other[1]), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), other[1])


@cache
def _renameat2() -> Callable[..., int] | None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call


@cache
def _syncfs() -> Callable[..., int] | None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is not None:
        call.argtypes = (ctypes.c_int,)
    return call


class Metadata(Struct, frozen=True):
    """The metadata of a file, directory or symbolic link; `mode` holds its kind and permissions."""

    mode: int
    uid: int
    gid: int
    attributes: tuple[tuple[str, bytes], ...] = ()

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


def for_new_content(metadata: Metadata, change: Difference) -> Metadata:
    """Return the metadata for a file that gets the content of `change.after`: the same, without set-user-ID
    and capabilities.

    The executable bits follow the change. If the file becomes executable, all users who may read it may run
    it.
    """
    mode = metadata.mode & ~stat.S_ISUID  # new content must not run with the privileges of the old
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
    """Return the metadata of a file, directory or link; None for anything else."""
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
    """Set the metadata as far as the user may; keep the owner if it cannot be changed."""
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
        # Access control lists change permissions; other attributes need write permission.
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
    """Set the attributes, except those that only the system may set (some of `security` and `trusted`)."""
    for name, value in attributes:
        with suppress(OSError):
            os.setxattr(descriptor, name, value)


def _attribute_names(descriptor: int) -> list[str]:
    if sys.platform != "linux":
        return []
    try:
        return os.listxattr(descriptor)
    except OSError:  # not supported by the file system
        return []
