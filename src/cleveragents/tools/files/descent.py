"""Path lookup from the sandbox's root, one open directory at a time.

A path that is first checked and then opened by name may change in between: a process may replace it by a
link. So each name is looked up only in a directory that is already open, and the kernel never follows a link:
this module reads and follows links itself, in the same steps. Going up returns to a descriptor opened on the
way down, so no rename can make `..` lead elsewhere.

`parts_of` checks only the text of a path. The real target is checked during the lookup.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Self

from cleveragents.core.errors import OutsideSandbox, ToolRefused
from cleveragents.core.text.control_characters import IGNORED_BY_HFS
from cleveragents.storage.files.paths import open_root

__all__ = ["DIRECTORY", "Descent", "identity_of", "is_git_name", "names_in", "parts_of"]


# The kernel's own limit of links in one path.
_LINK_LIMIT = 40
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Allowed by every common file system; longer ones fail in different ways.
_NAME_LIMIT_BYTES = 255
_PATH_LIMIT_BYTES = 4096


def identity_of(entry: os.stat_result) -> tuple[int, int]:
    """Return the identity of a file or directory, independent of its name."""
    return entry.st_dev, entry.st_ino


def names_in(descriptor: int) -> list[str]:
    """Return the names in an open directory, sorted."""
    with os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in entries)


class Descent:
    """A directory in the tree as the current position: `descriptor` is the open directory, `names` is its
    path from the root, without links.

    A context manager: leaving it closes all descriptors, and removes directories created on the way unless
    `keep` was called. Not thread-safe: for one access.
    """

    def __init__(self, root: Path, identity: tuple[int, int], path: str) -> None:
        self._path = path
        self._made: list[tuple[int, str]] = []
        self.names: list[str] = []
        self._open = [open_root(root)]
        if identity_of(os.fstat(self.descriptor)) != identity:  # guard: the root itself may be swapped
            self._close()
            raise OutsideSandbox(path, "cannot be found: the sandbox's own directory was replaced")

    @property
    def descriptor(self) -> int:
        return self._open[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for directory, name in reversed(self._made):
            with suppress(OSError):
                os.rmdir(name, dir_fd=directory)
        self._close()

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def look(self, name: str) -> os.stat_result | None:
        """Return the stat data of a name in this directory, without following a link; None if missing."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def enter(self, name: str) -> None:
        """Enter a directory; never follows a link."""
        self._open.append(os.open(name, DIRECTORY, dir_fd=self.descriptor))
        self.names.append(name)

    def follow(self, parts: Sequence[str], *, last: bool = True) -> str | None:
        """Go to the directory that contains the target of `parts`; return the target's name in it, or None if
        the target does not exist.

        Follows links that stay inside the sandbox; follows a link at the end of the path only if `last`.
        Raises `OutsideSandbox`.
        """
        left = deque(parts)
        links = 0
        while left:
            name = left.popleft()
            if name == "..":
                self._leave()
                continue
            if is_git_name(name):  # guard: a link may lead there
                raise OutsideSandbox(self._path, "leads into a git directory, which tools must not touch")
            found = self.look(name)
            if found is None:
                return None
            if stat.S_ISLNK(found.st_mode) and (left or last):
                links += 1
                if links > _LINK_LIMIT:
                    raise ToolRefused("path", f"{self._path!r} passes through more than {_LINK_LIMIT} links")
                left.extendleft(reversed(self._target(name)))
            elif not left:
                return name
            elif stat.S_ISDIR(found.st_mode):
                self.enter(name)
            else:
                return None
        return "."

    def enter_existing(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Enter existing directories and return the remaining names.

        Follows no link: a change belongs to the path under which it is recorded. Raises `OutsideSandbox`,
        `ToolRefused`.
        """
        for number, name in enumerate(parts):
            found = self.look(name)
            if found is None:
                return tuple(parts[number:])
            if stat.S_ISLNK(found.st_mode):
                self._refuse_link(parts[number:])
            if not stat.S_ISDIR(found.st_mode):
                shown = "/".join([*self.names, name])
                raise ToolRefused("path", f"{self._path!r}: {shown!r} is not a directory")
            self.enter(name)
        return ()

    def make(self, names: Sequence[str]) -> None:
        """Create these nested directories and enter the last."""
        for name in names:
            os.mkdir(name, dir_fd=self.descriptor)
            self._made.append((self.descriptor, name))
            self.enter(name)

    def keep(self) -> None:
        """Keep the created directories."""
        self._made.clear()

    def missing(self, name: str) -> ToolRefused:
        """Return the error for a missing name, with the closest existing name."""
        near = get_close_matches(name, names_in(self.descriptor), n=1)
        hint = f"; did you mean {'/'.join([*self.names, near[0]])!r}?" if near else ""
        return ToolRefused("path", f"{self._path!r} does not exist{hint}")

    def _leave(self) -> None:
        if not self.names:  # guard: above the root is outside
            raise OutsideSandbox(self._path, "leads out of the sandbox through a link")
        os.close(self._open.pop())
        self.names.pop()

    def _target(self, name: str) -> list[str]:
        target = os.readlink(name, dir_fd=self.descriptor)
        if target.startswith("/"):  # guard: also /proc, whose links lead to places without a name
            raise OutsideSandbox(self._path, f"leads through a link to {target!r}")
        return [part for part in target.split("/") if part not in ("", ".")]

    def _refuse_link(self, left: Sequence[str]) -> None:
        """Refuse a path that contains a link: raise an error that names the real target."""
        name = self.follow(left)
        if name is None:
            raise ToolRefused("path", f"{self._path!r} passes through a broken symbolic link")
        real = "/".join([*self.names, *([] if name == "." else [name])])
        raise ToolRefused(
            "path",
            f"{self._path!r} passes through a symbolic link to {real!r}; use the file's own path",
        )


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names in a path, without `.` and empty names; empty for the root.

    Raises `OutsideSandbox`, `ToolRefused`.
    """
    if "\0" in path:
        raise OutsideSandbox(path, "contains a NUL character")
    if path.startswith("/"):
        raise OutsideSandbox(path, "is absolute; use a path relative to the sandbox's root")
    try:
        length = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise ToolRefused("path", f"{path!r} is not valid Unicode, so it cannot be recorded") from None
    if length > _PATH_LIMIT_BYTES:
        raise ToolRefused("path", f"the path has {length} bytes (at most {_PATH_LIMIT_BYTES})")
    parts = tuple(name for name in path.split("/") if name not in ("", "."))
    for name in parts:
        _ensure_usable(name, path)
    return parts


def _ensure_usable(name: str, path: str) -> None:
    # Also `..\..`, which is one name here, but leads out on other systems.
    if ".." in name.split("\\"):
        raise OutsideSandbox(path, "contains '..'")
    if is_git_name(name):
        raise OutsideSandbox(path, "is in a git directory, which tools must not touch")
    length = len(name.encode("utf-8"))
    if length > _NAME_LIMIT_BYTES:
        shown = f"{name[:40]}…"
        raise ToolRefused("path", f"the name {shown!r} has {length} bytes (at most {_NAME_LIMIT_BYTES})")


def is_git_name(name: str) -> bool:
    """Return whether git would treat the name as its own directory on any file system, by git's own rules."""
    plain = name.translate(IGNORED_BY_HFS).casefold()
    # NTFS: a colon starts a stream of the same file, and trailing dots and blanks do not count. A backslash
    # ends a name there.
    return any(
        piece.split(":")[0].rstrip(" .") in (".git", "git~1") or piece.rstrip(" ") == ".git"
        for piece in plain.split("\\")
    )
