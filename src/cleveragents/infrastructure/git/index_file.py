"""What an index file says of its files, read here: sandboxes are made too often to ask git each time.

Only versions 2 and 3, which git writes unless configured otherwise; our own git directories are not.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from cleveragents.domain.file_state import GITLINK
from cleveragents.errors import GitFailed

__all__ = ["IndexSummary", "holds_attributes", "summary_of"]

_EXTENDED = 0x4000
# Each name ends with a NUL.
_ATTRIBUTES = b".gitattributes\0"
_STAT_BYTES = 40


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """`size_bytes` is what its files take together; `gitlinks` are the paths of submodules."""

    files: int
    size_bytes: int
    gitlinks: tuple[str, ...]


def holds_attributes(path: Path) -> bool:
    """Whether a .gitattributes file is in the index; perhaps also if only a like name is."""
    return _ATTRIBUTES in path.read_bytes()


def summary_of(path: Path, *, name_bytes: int) -> IndexSummary:
    """Of the index at `path`, in a repository whose objects have names of that length. `GitFailed`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return IndexSummary(0, 0, ())
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3):
        raise GitFailed("index", f"{path} is of version {version}, which is not one that we write")
    gitlinks: list[str] = []
    total = 0
    position = 12
    fixed = _STAT_BYTES + name_bytes + 2
    mode_and_size = struct.Struct(">I8xI")
    for _ in range(count):
        mode, size = mode_and_size.unpack_from(data, position + 24)
        flags = data[position + fixed - 2] << 8
        start = position + fixed + (2 if flags & _EXTENDED else 0)
        end = data.index(b"\0", start)
        total += size
        if mode == GITLINK:
            gitlinks.append(os.fsdecode(data[start:end]))
        # Each entry is padded with one to eight NULs to a multiple of eight.
        position += (end - position + 8) & ~7
    return IndexSummary(count, total, tuple(gitlinks))
