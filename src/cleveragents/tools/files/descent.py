"""A way down from the sandbox's root, one open directory at a time.

A path that was checked and is then opened by name can be another path by then: somebody has put a link in its
place. So no name is ever looked up but in a directory that is already open, and never through a link that the
kernel follows: links are read and followed here, by the same steps. Going up is going back to a descriptor
that was opened on the way down, so no rename can make `..` lead elsewhere.

Paths as tools are given them: taken apart, and refused where they cannot name a file of the sandbox.

Only the text is judged here. Where a path really leads is decided at the moment of the access (`descent.py`).
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


# The kernel's own bound on links in one path.
_LINK_LIMIT = 40
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# What every common filesystem allows; longer ones fail in ways that differ from one to the next.
_NAME_LIMIT_BYTES = 255
_PATH_LIMIT_BYTES = 4096


def identity_of(entry: os.stat_result) -> tuple[int, int]:
    """What makes a directory the same one, whatever it is called."""
    return entry.st_dev, entry.st_ino


def names_in(descriptor: int) -> list[str]:
    """What an open directory holds, in order."""
    with os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in entries)


class Descent:
    """Where we are: `descriptor` is the directory, `names` lead to it from the root without any link.

    A context manager: leaving it closes what was opened, and takes away directories made on the way unless
    `keep` was called. Not thread-safe: for one access.
    """

    def __init__(self, root: Path, identity: tuple[int, int], path: str) -> None:
        self._path = path
        self._made: list[tuple[int, str]] = []
        self.names: list[str] = []
        self._open = [open_root(root)]
        if identity_of(os.fstat(self.descriptor)) != identity:  # guard: the root itself may be swapped
            self._close()
            raise OutsideSandbox(path, "cannot be found, because the sandbox's own directory was replaced")

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
        """What has that name here; a link is a link. None: nothing has."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def enter(self, name: str) -> None:
        """Goes into a directory; a link is not followed, however it got there."""
        self._open.append(os.open(name, DIRECTORY, dir_fd=self.descriptor))
        self.names.append(name)

    def follow(self, parts: Sequence[str], *, last: bool = True) -> str | None:
        """Goes to the directory that holds what `parts` lead to, and returns its name there; None: missing.

        Links are followed as long as they stay inside; the last one only if `last` says so. `OutsideSandbox`.
        """
        left = deque(parts)
        links = 0
        while left:
            name = left.popleft()
            if name == "..":
                self._leave()
                continue
            if is_git_name(name):  # guard: a link may lead there
                raise OutsideSandbox(self._path, "leads into a git directory, which no tool may touch")
            found = self.look(name)
            if found is None:
                return None
            if stat.S_ISLNK(found.st_mode) and (left or last):
                links += 1
                if links > _LINK_LIMIT:
                    raise ToolRefused("path", f"{self._path!r} goes through more than {_LINK_LIMIT} links")
                left.extendleft(reversed(self._target(name)))
            elif not left:
                return name
            elif stat.S_ISDIR(found.st_mode):
                self.enter(name)
            else:
                return None
        return "."

    def enter_existing(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Goes down as far as there are directories and returns the names that are left. Follows no link:
        a change belongs to the path it is recorded under. `OutsideSandbox`, `ToolRefused`."""
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
        """Makes these directories, one in the other, and goes into the last."""
        for name in names:
            os.mkdir(name, dir_fd=self.descriptor)
            self._made.append((self.descriptor, name))
            self.enter(name)

    def keep(self) -> None:
        """The directories that were made stay."""
        self._made.clear()

    def missing(self, name: str) -> ToolRefused:
        """The refusal for a name that is not here, with the nearest one that is."""
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
        if target.startswith("/"):  # guard: also /proc, whose links lead to places that have no name
            raise OutsideSandbox(self._path, f"leads through a link to {target!r}")
        return [part for part in target.split("/") if part not in ("", ".")]

    def _refuse_link(self, left: Sequence[str]) -> None:
        """Says where the path really leads."""
        name = self.follow(left)
        if name is None:
            raise ToolRefused("path", f"{self._path!r} goes through a symbolic link that leads nowhere")
        real = "/".join([*self.names, *([] if name == "." else [name])])
        raise ToolRefused(
            "path",
            f"{self._path!r} goes through a symbolic link to {real!r}; use the file's own path",
        )


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a path, without `.` and empty ones; none for the root. `OutsideSandbox`, `ToolRefused`."""
    if "\0" in path:
        raise OutsideSandbox(path, "has a NUL character")
    if path.startswith("/"):
        raise OutsideSandbox(path, "is absolute, and must be relative to the sandbox's root")
    try:
        length = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise ToolRefused("path", f"{path!r} is not Unicode text, and could not be recorded") from None
    if length > _PATH_LIMIT_BYTES:
        raise ToolRefused("path", f"a path of {length} bytes is too long (at most {_PATH_LIMIT_BYTES})")
    parts = tuple(name for name in path.split("/") if name not in ("", "."))
    for name in parts:
        _ensure_usable(name, path)
    return parts


def _ensure_usable(name: str, path: str) -> None:
    # Also `..\..`, which is one name here and a way out on other systems.
    if ".." in name.split("\\"):
        raise OutsideSandbox(path, "has '..' in it")
    if is_git_name(name):
        raise OutsideSandbox(path, "is in a git directory, which no tool may touch")
    length = len(name.encode("utf-8"))
    if length > _NAME_LIMIT_BYTES:
        shown = f"{name[:40]}…"
        raise ToolRefused("path", f"the name {shown!r} has {length} bytes (at most {_NAME_LIMIT_BYTES})")


def is_git_name(name: str) -> bool:
    """Whether git would take it for its own directory, on this or another filesystem; git's own rules."""
    plain = name.translate(IGNORED_BY_HFS).casefold()
    # NTFS: what follows a colon is a stream of the same file, and trailing dots and blanks do not count.
    # A backslash ends a name there.
    return any(
        piece.split(":")[0].rstrip(" .") in (".git", "git~1") or piece.rstrip(" ") == ".git"
        for piece in plain.split("\\")
    )
