"""Index files, read and completed here without a git process.

Only versions 2 and 3, which git writes unless configured otherwise; our own git directories are not.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cleveragents.domain.file_state import GITLINK
from cleveragents.errors import GitFailed

__all__ = [
    "IndexEntry",
    "IndexSummary",
    "entries_of",
    "holds_attributes",
    "stat_key",
    "submodules_in",
    "summary_of",
    "with_stats",
]

_EXTENDED = 0x4000
# Each name ends with a NUL.
_ATTRIBUTES = b".gitattributes\0"
_ABBREVIATING = b"\0\0\0\4"
_STAT_BYTES = 40
_STAT = struct.Struct(">10I")
_WORD = 0xFFFFFFFF
_SECOND = 1_000_000_000


class IndexEntry(NamedTuple):
    """One file of an index. `position` is where its stat data is; `key` is `stat_key` of the file when it was
    last looked at."""

    position: int
    key: tuple[int, ...]
    mode: int
    name: str


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """`size_bytes` is what its files take together; `gitlinks` are the paths of submodules."""

    files: int
    size_bytes: int
    gitlinks: tuple[str, ...]


def holds_attributes(path: Path) -> bool:
    """Whether a .gitattributes file is in the index; perhaps also if only a like name is, or if names are
    abbreviated (version 4)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    return _ATTRIBUTES in data or data[4:8] == _ABBREVIATING


def summary_of(path: Path, *, name_bytes: int) -> IndexSummary:
    """Of the index at `path`, in a repository whose objects have names of that length. `GitFailed`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return IndexSummary(0, 0, ())
    entries = dict(_entries(data, path, name_bytes))
    gitlinks = tuple(name for name, entry in entries.items() if entry.mode == GITLINK)
    return IndexSummary(len(entries), sum(entry.key[-1] for entry in entries.values()), gitlinks)


def entries_of(path: Path, *, name_bytes: int) -> dict[str, IndexEntry]:
    """The entries of the index at `path`, by path; submodules are among them. `GitFailed`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return dict(_entries(data, path, name_bytes))


def submodules_in(path: Path, *, name_bytes: int) -> frozenset[str] | None:
    """The submodules of an index that anybody may have written; None if it is not understood, or if some of
    its entries are in another file."""
    data = path.read_bytes()
    try:
        entries = list(_entries(data, path, name_bytes))
        position = 12 if not entries else _end_of(data, entries[-1][1].position, name_bytes)
        while position < len(data) - name_bytes:
            signature, size = struct.unpack_from(">4sI", data, position)
            if signature == b"link":
                return None
            position += 8 + size
    except (GitFailed, ValueError, struct.error):
        return None
    return frozenset(name for name, entry in entries if entry.mode == GITLINK)


def stat_key(status: os.stat_result) -> tuple[int, ...]:
    """What an index keeps to tell whether a file has changed: both times, the inode and the size."""
    return (
        status.st_ctime_ns // _SECOND & _WORD,
        status.st_ctime_ns % _SECOND,
        status.st_mtime_ns // _SECOND & _WORD,
        status.st_mtime_ns % _SECOND,
        status.st_ino & _WORD,
        status.st_size & _WORD,
    )


def with_stats(path: Path, stats: Mapping[str, os.stat_result | None], *, name_bytes: int) -> frozenset[str]:
    """Writes the stat data of these files into their entries, as git does when it reads the files itself;
    None for a file that is to be read again the next time. Returns those that have an entry.

    The index at `path` is the caller's own: it is rewritten in place.
    """
    if not stats:
        return frozenset()
    data = bytearray(path.read_bytes())
    found: set[str] = set()
    for name, entry in _entries(bytes(data), path, name_bytes):
        if name in stats:
            found.add(name)
            _STAT.pack_into(data, entry.position, *_stat_fields(stats[name], entry.mode))
    algorithm = "sha1" if name_bytes == 20 else "sha256"
    data[-name_bytes:] = hashlib.new(algorithm, data[:-name_bytes], usedforsecurity=False).digest()
    path.write_bytes(data)
    return frozenset(found)


def _end_of(data: bytes, position: int, name_bytes: int) -> int:
    """Where the entry after the one at `position` begins: each is padded with one to eight NULs to a multiple
    of eight."""
    fixed = _STAT_BYTES + name_bytes + 2
    extended = data[position + fixed - 2] << 8 & _EXTENDED
    end = data.index(b"\0", position + fixed + (2 if extended else 0))
    return position + (end - position + 8 & ~7)


def _stat_fields(status: os.stat_result | None, mode: int) -> tuple[int, ...]:
    if status is None:
        return (*(0,) * 6, mode, *(0,) * 3)
    changed, changed_ns, modified, modified_ns, inode, size = stat_key(status)
    device, user, group = (number & _WORD for number in (status.st_dev, status.st_uid, status.st_gid))
    return changed, changed_ns, modified, modified_ns, device, inode, mode, user, group, size


def _entries(data: bytes, path: Path, name_bytes: int) -> Iterator[tuple[str, IndexEntry]]:
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3):
        raise GitFailed("index", f"{path} is of version {version}, which is not one that we write")
    position = 12
    fixed = _STAT_BYTES + name_bytes + 2
    for _ in range(count):
        changed, changed_ns, modified, modified_ns, _, inode, mode, _, _, size = _STAT.unpack_from(
            data, position
        )
        flags = data[position + fixed - 2] << 8
        start = position + fixed + (2 if flags & _EXTENDED else 0)
        end = data.index(b"\0", start)
        key = (changed, changed_ns, modified, modified_ns, inode, size)
        name = data[position + _STAT_BYTES : position + _STAT_BYTES + name_bytes].hex()
        yield os.fsdecode(data[start:end]), IndexEntry(position, key, mode, name)
        # Each entry is padded with one to eight NULs to a multiple of eight.
        position += (end - position + 8) & ~7
