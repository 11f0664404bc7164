"""The files of a sandbox for tools: nothing outside is reachable, even if a process changes the tree
meanwhile.

Reads may pass through symbolic links that stay inside the sandbox. Changes must use the file's own path,
because a change is recorded under the path where it was made. A link itself can be deleted and moved.

A write creates a new file beside the old one and renames it: readers see the old content or the new, and hard
links of the old file keep the old content. Nothing is flushed to disk, because the store makes recorded
changes durable.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cleveragents.core.errors import OutsideSandbox, StoreFull, ToolRefused
from cleveragents.tools.files.descent import DIRECTORY, Descent, identity_of, is_git_name, names_in, parts_of
from cleveragents.tools.ports import FoundFile

__all__ = ["FILE_LIMIT_BYTES", "TEMPORARY_PREFIX", "ConfinedFiles"]

FILE_LIMIT_BYTES = 64 << 20
"""The limit for a file, which is held in memory as a whole, several times over while it is edited."""

TEMPORARY_PREFIX = ".cleveragents-"
"""The prefix of half-written files. Only a kill can leave one behind."""

# One descriptor stays open per level; a process usually has 1,024 of them.
_DEPTH_LIMIT = 128
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ConfinedFiles:
    """`SandboxFiles` below `root`.

    `before_change(path)` is called once per path before its first change; if it raises, the file is not
    touched. Not thread-safe: for one tool call.
    """

    def __init__(self, root: Path, *, before_change: Callable[[str], None] | None = None) -> None:
        self._root = root
        self._before_change = before_change
        self._touched: dict[str, None] = {}
        try:
            self._identity = identity_of(root.stat())
        except OSError as error:
            raise ToolRefused("files", f"cannot use the sandbox's directory: {error.strerror}") from None

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        limit = FILE_LIMIT_BYTES if limit_bytes is None else limit_bytes
        parts = _named(path)
        with self._descent(path) as here:
            name = here.follow(parts)
            if name is None:
                raise here.missing(parts[-1])
            found = here.look(name)
            # Opening a device can have side effects, so check first.
            _ensure_regular(path, found)
            descriptor = os.open(name, _READ, dir_fd=here.descriptor)
            with os.fdopen(descriptor, "rb") as file:
                _ensure_regular(path, os.fstat(descriptor))
                data = file.read(limit + 1)
        if len(data) > limit:
            size = f"{limit >> 20} MiB" if limit and limit % (1 << 20) == 0 else f"{limit} bytes"
            raise ToolRefused("read", f"{path!r} is larger than {size}")
        return data

    def exists(self, path: str) -> bool:
        return self.kind(path) is not None

    def kind(self, path: str) -> str | None:
        parts = parts_of(path)
        with self._descent(path) as here:
            name = here.follow(parts, last=False)
            found = None if name is None else here.look(name)
        return None if found is None else _kind(found.st_mode)

    def write(self, path: str, data: bytes, *, executable: bool | None = None) -> None:
        if len(data) > FILE_LIMIT_BYTES:
            raise ToolRefused("write", f"the content has {len(data)} bytes (at most {FILE_LIMIT_BYTES})")
        *parents, name = _named(path)
        with self._descent(path) as here:
            missing = here.enter_existing(parents)
            before = None if missing else here.look(name)
            if before is not None:
                _ensure_replaceable(path, before, here, name)
            else:
                _ensure_new_name(path, [*missing, name])
            self._note("/".join([*parents, name]))
            here.make(missing)
            _replace(here.descriptor, name, data, before, executable)
            here.keep()

    def delete(self, path: str) -> None:
        *parents, name = _named(path)
        with self._descent(path) as here:
            missing = here.enter_existing(parents)
            found = None if missing else here.look(name)
            if found is None:
                raise here.missing(missing[0] if missing else name)
            full = "/".join([*parents, name])
            if stat.S_ISDIR(found.st_mode):
                # Check everything before deleting anything, to find files that must stay.
                for file in list(_files_below(here.descriptor, name, full)):
                    self._note(file)
                self._delete_directory(here.descriptor, name, full)
            else:
                self._note(full)
                os.unlink(name, dir_fd=here.descriptor)

    def move(self, source: str, target: str) -> None:
        *parents, name = _named(source)
        *new_parents, new_name = _named(target)
        old, new = [*parents, name], [*new_parents, new_name]
        if new[: len(old)] == old:
            raise ToolRefused("move", f"cannot move {source!r} to or into itself ({target!r})")
        with self._descent(source) as here, self._descent(target) as there:
            missing = here.enter_existing(parents)
            found = None if missing else here.look(name)
            if found is None:
                raise here.missing(missing[0] if missing else name)
            to_make = there.enter_existing(new_parents)
            if not to_make and there.look(new_name) is not None:
                raise ToolRefused("move", f"{target!r} already exists; delete it first, or use another name")
            _ensure_new_name(target, [*to_make, new_name])
            files = [""]
            if stat.S_ISDIR(found.st_mode):
                files = list(_files_below(here.descriptor, name, ""))
            for file in files:
                self._note("/".join(old) + file)
                self._note("/".join(new) + file)
            there.make(to_make)
            os.rename(name, new_name, src_dir_fd=here.descriptor, dst_dir_fd=there.descriptor)
            there.keep()

    def walk(self, path: str = "", *, depth: int | None = None) -> Iterator[FoundFile]:
        parts = parts_of(path)
        with self._descent(path) as here:
            name = here.follow(parts)
            if name is None:
                raise here.missing(parts[-1])
            found = here.look(name)
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise ToolRefused("list", f"{path!r} is not a directory")
            real = [*here.names, *([] if name == "." else [name])]
        return self._walk("/".join(parts), real, _DEPTH_LIMIT if depth is None else depth)

    def touched(self) -> tuple[str, ...]:
        return tuple(self._touched)

    def _walk(self, shown: str, real: list[str], depth: int) -> Iterator[FoundFile]:
        # No descriptor stays open while the caller has control: it may be slow, or never continue.
        pending = [iter(self._listing(shown, real))]
        while pending:
            found = next(pending[-1], None)
            if found is None:
                pending.pop()
                continue
            yield found
            if found.kind == "directory" and len(pending) < depth:
                below = found.path[len(shown) :].strip("/").split("/")
                pending.append(iter(self._listing(found.path, [*real, *below])))

    def _listing(self, shown: str, real: list[str]) -> list[FoundFile]:
        prefix = f"{shown}/" if shown else ""
        with self._descent(shown) as here:
            try:
                for name in real:
                    here.enter(name)
            except (FileNotFoundError, NotADirectoryError):
                return []
            found = []
            with os.scandir(here.descriptor) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        seen = entry.stat(follow_symlinks=False)
                        found.append(FoundFile(prefix + entry.name, _kind(seen.st_mode), seen.st_size))
        named = [entry for entry in found if not is_git_name(entry.path[len(prefix) :])]
        return sorted(named, key=lambda entry: entry.path)

    def _delete_directory(self, parent: int, name: str, path: str) -> None:
        descriptor = os.open(name, DIRECTORY, dir_fd=parent)
        try:
            for below in names_in(descriptor):
                inner = f"{path}/{below}"
                mode = os.stat(below, dir_fd=descriptor, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    self._delete_directory(descriptor, below, inner)
                else:
                    self._note(inner)
                    os.unlink(below, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        os.rmdir(name, dir_fd=parent)

    def _note(self, path: str) -> None:
        if path in self._touched:
            return
        if self._before_change is not None:
            self._before_change(path)
        self._touched[path] = None

    @contextmanager
    def _descent(self, path: str) -> Iterator[Descent]:
        try:
            with Descent(self._root, self._identity, path) as here:
                yield here
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(path) from None
            if error.errno == errno.ELOOP:
                raise OutsideSandbox(path, "became a symbolic link during the access") from None
            raise ToolRefused("path", f"cannot use {path!r}: {error.strerror}") from None


def _named(path: str) -> tuple[str, ...]:
    parts = parts_of(path)
    if not parts:
        raise OutsideSandbox(path, "is the sandbox itself, not a file in it")
    return parts


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def _ensure_regular(path: str, found: os.stat_result | None) -> None:
    kind = "gone" if found is None else _kind(found.st_mode)
    if kind == "directory":
        raise ToolRefused("read", f"{path!r} is a directory")
    if kind != "file":
        raise ToolRefused("read", f"{path!r} is not a regular file")


def _ensure_replaceable(path: str, before: os.stat_result, here: Descent, name: str) -> None:
    kind = _kind(before.st_mode)
    if kind == "symlink":
        target = os.readlink(name, dir_fd=here.descriptor)
        raise ToolRefused(
            "write", f"{path!r} is a symbolic link to {target!r}; change that file itself, or delete the link"
        )
    if kind == "directory":
        raise ToolRefused("write", f"{path!r} is a directory")
    if kind != "file":
        raise ToolRefused("write", f"{path!r} is not a regular file")


def _ensure_new_name(path: str, names: list[str]) -> None:
    if any("\\" in name for name in names):
        raise OutsideSandbox(path, "contains a backslash in a new name; use '/' between directories")


def _replace(
    directory: int, name: str, data: bytes, before: os.stat_result | None, executable: bool | None
) -> None:
    temporary = TEMPORARY_PREFIX + secrets.token_hex(8)
    try:
        descriptor = os.open(temporary, _CREATE, 0o666, dir_fd=directory)
        with os.fdopen(descriptor, "wb") as file:
            mode = stat.S_IMODE((before or os.fstat(descriptor)).st_mode) & 0o777
            if executable is not None:
                readable = (mode & 0o444) >> 2
                mode = (mode | readable) if executable else (mode & ~0o111)
            os.fchmod(descriptor, mode)
            file.write(data)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _files_below(parent: int, name: str, path: str, depth: int = 0) -> Iterator[str]:
    """Yield the paths of everything below the directory `name` that is not a directory.

    Raises `OutsideSandbox` if there is a git directory below it, and `ToolRefused` if a name cannot be used.
    """
    if depth > _DEPTH_LIMIT:
        raise ToolRefused("path", f"{path!r} is nested deeper than {_DEPTH_LIMIT} directories")
    descriptor = os.open(name, DIRECTORY, dir_fd=parent)
    try:
        for below in names_in(descriptor):
            inner = f"{path}/{below}"
            # A nested repository is not ours to change, and invalid Unicode names cannot be recorded.
            parts_of(inner.removeprefix("/"))
            mode = os.stat(below, dir_fd=descriptor, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                yield from _files_below(descriptor, below, inner, depth + 1)
            else:
                yield inner
    finally:
        os.close(descriptor)
