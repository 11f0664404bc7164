"""Repositories that many tests start with: created by git once per process, and restored from memory.

git needs four or five processes for one, which takes longer than many of these tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["made_once"]


@dataclass(frozen=True)
class _Entry:
    """A directory, a file or a link, with the content of the last two."""

    path: str
    mode: int
    content: bytes | str | None


_made: dict[Hashable, list[_Entry]] = {}


def made_once(
    root: Path, key: Hashable, make: Callable[[Path], object], refresh: Callable[[], object]
) -> None:
    """Fill the new directory `root` with what `make` creates; equal keys give equal content.

    `refresh` updates git's index, which identifies files by inode and time.
    """
    if key in _made:
        _lay_out(root, _made[key])
        refresh()
        return
    root.mkdir(parents=True)
    make(root)
    _made[key] = _read(root)


def _read(root: Path) -> list[_Entry]:
    found: list[_Entry] = []
    for place, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(place, name)
            shown = str(path.relative_to(root))
            if shown.endswith(".sample"):
                continue
            mode = path.lstat().st_mode & 0o7777
            if path.is_symlink():
                found.append(_Entry(shown, mode, str(path.readlink())))
            else:
                found.append(_Entry(shown, mode, None if path.is_dir() else path.read_bytes()))
    return found


def _lay_out(root: Path, entries: list[_Entry]) -> None:
    root.mkdir(parents=True)
    for entry in entries:
        path = root / entry.path
        if isinstance(entry.content, str):
            path.symlink_to(entry.content)
            continue
        if entry.content is None:
            path.mkdir()
        else:
            path.write_bytes(entry.content)
        path.chmod(entry.mode)
