"""Index files, read and completed here without a git process.

Only versions 2 and 3, which git writes unless configured otherwise; our own git directories are not.

Files that an index tells git not to look at: assume-unchanged, skip-worktree and sparse checkouts.

git takes such a file for what the index has, whatever its content is. We take the file that is there: only a
file that is not checked out is what the index has.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cleveragents.core.change import EXECUTABLE, GITLINK, REGULAR, SYMLINK
from cleveragents.core.errors import GitFailed
from cleveragents.git.plumbing import PrivateRepository

__all__ = [
    "LISTING",
    "HiddenFiles",
    "IndexEntry",
    "IndexSummary",
    "PlainIndex",
    "entries_of",
    "hidden_files",
    "holds_attributes",
    "marked_in",
    "plain_index",
    "reveal",
    "stat_key",
    "summary_of",
    "with_stats",
]


_EXTENDED = 0x4000
_LENGTH = 0x0FFF
# Intent to add, and to be skipped in the work tree; git reads no index with others.
_EXTENDED_FLAGS = 0x6000
_MODES = (REGULAR, EXECUTABLE, SYMLINK, GITLINK)
# Each name ends with a NUL.
_ATTRIBUTES = b".gitattributes\0"
_ABBREVIATING = b"\0\0\0\4"
_STAT_BYTES = 40
_STAT = struct.Struct(">10I")
_FLAGS = struct.Struct(">H")
_WORD = 0xFFFFFFFF
_SECOND = 1_000_000_000

LISTING = ("ls-files", "-v", "-z")
"""The git command whose output `marked_in` reads."""
_SKIPPED = "S"


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


@dataclass(frozen=True, slots=True)
class PlainIndex:
    """An index without extensions, and the paths and modes of its entries: up to three for one path."""

    data: bytes
    entries: tuple[tuple[str, int], ...]


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


def plain_index(data: bytes, *, name_bytes: int) -> PlainIndex | None:
    """The entries of an index that anybody may have written, in bytes of ours; None unless git and we read
    the same entries in it, and all of them are there."""
    limit = max(0, len(data) - name_bytes)
    entries: list[tuple[str, int]] = []
    body: list[bytes] = []
    last, position = (b"", 0), 12
    try:
        if _digest(data[:limit], name_bytes) != data[limit:]:
            return None
        for position, start, end, flags in _spans(data, "it", name_bytes):
            name, stage = data[start:end], flags >> 12 & 3
            mode = _STAT.unpack_from(data, position)[6]
            more = _FLAGS.unpack_from(data, start - 2)[0] if flags & _EXTENDED else 0
            in_order = last < (name, stage) and (name != last[0] or last[1] > 0)
            entry = _padded(data[position:end])
            if mode not in _MODES or more & ~_EXTENDED_FLAGS:  # guard: git looks at a few bits of a mode
                return None
            if b"\0" in name or not data.startswith(entry, position):  # guard: git ends names in two ways
                return None
            if not in_order:
                return None
            last = name, stage
            entries.append((os.fsdecode(name), mode))
            body.append(entry)
        position += len(body[-1]) if body else 0
        while position < limit:
            signature, size = struct.unpack_from(">cxxxI", data, position)
            if not b"A" <= signature <= b"Z":  # guard: it changes what entries mean
                return None
            position += 8 + size
    except (GitFailed, ValueError, struct.error):
        return None
    plain = data[:12] + b"".join(body)
    return PlainIndex(plain + _digest(plain, name_bytes), tuple(entries)) if position == limit else None


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
    data[-name_bytes:] = _digest(bytes(data[:-name_bytes]), name_bytes)
    path.write_bytes(data)
    return frozenset(found)


def _digest(data: bytes, name_bytes: int) -> bytes:
    return hashlib.new("sha1" if name_bytes == 20 else "sha256", data, usedforsecurity=False).digest()


def _padded(entry: bytes) -> bytes:
    """With one to eight NULs, to a multiple of eight."""
    return entry + bytes(8 - len(entry) % 8)


def _stat_fields(status: os.stat_result | None, mode: int) -> tuple[int, ...]:
    if status is None:
        return (*(0,) * 6, mode, *(0,) * 3)
    changed, changed_ns, modified, modified_ns, inode, size = stat_key(status)
    device, user, group = (number & _WORD for number in (status.st_dev, status.st_uid, status.st_gid))
    return changed, changed_ns, modified, modified_ns, device, inode, mode, user, group, size


def _entries(data: bytes, path: Path, name_bytes: int) -> Iterator[tuple[str, IndexEntry]]:
    for position, start, end, _ in _spans(data, str(path), name_bytes):
        changed, changed_ns, modified, modified_ns, _, inode, mode, _, _, size = _STAT.unpack_from(
            data, position
        )
        key = (changed, changed_ns, modified, modified_ns, inode, size)
        name = data[position + _STAT_BYTES : position + _STAT_BYTES + name_bytes].hex()
        yield os.fsdecode(data[start:end]), IndexEntry(position, key, mode, name)


def _spans(data: bytes, called: str, name_bytes: int) -> Iterator[tuple[int, int, int, int]]:
    """Where each entry begins, where its name begins and ends, and its flags."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3):
        raise GitFailed("index", f"{called} is of version {version}, which is not one that we write")
    position = 12
    fixed = _STAT_BYTES + name_bytes + 2
    for _ in range(count):
        (flags,) = _FLAGS.unpack_from(data, position + fixed - 2)
        start = position + fixed + (2 if flags & _EXTENDED else 0)
        length = flags & _LENGTH
        end = start + length if length < _LENGTH else data.index(b"\0", start)
        yield position, start, end, flags
        # Each entry is padded with one to eight NULs to a multiple of eight.
        position += (end - position + 8) & ~7


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """`assumed` are marked assume-unchanged; `present` are marked skip-worktree, and are there all the same;
    `absent` are marked skip-worktree, and not checked out."""

    assumed: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def marked_in(listed: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that are marked assume-unchanged, and those that are marked skip-worktree."""
    entries = [(entry[0], entry[2:]) for entry in os.fsdecode(listed).split("\0")[:-1]]
    assumed = tuple(path for tag, path in entries if tag.islower())
    return assumed, tuple(path for tag, path in entries if tag.upper() == _SKIPPED)


def hidden_files(repository: PrivateRepository, work_tree: Path, index: Path) -> HiddenFiles:
    """What the index hides of the work tree."""
    assumed, skipped = marked_in(repository.git(*LISTING, index=index))
    present = {path for path in skipped if _is_there(work_tree, path)}
    return HiddenFiles(
        assumed,
        tuple(path for path in skipped if path in present),
        tuple(path for path in skipped if path not in present),
    )


def reveal(repository: PrivateRepository, work_tree: Path, index: Path) -> HiddenFiles:
    """Takes the marks from every file that is there, in an index of the caller's own, and returns what was
    hidden by them."""
    hidden = hidden_files(repository, work_tree, index)
    for option, paths in (
        ("--no-assume-unchanged", hidden.assumed),
        ("--no-skip-worktree", hidden.present),
    ):
        if paths:
            feed = b"".join(os.fsencode(path) + b"\0" for path in paths)
            repository.git(
                "update-index", option, "-z", "--stdin", work_tree=work_tree, index=index, feed=feed
            )
    return hidden


def _is_there(work_tree: Path, path: str) -> bool:
    """Whether something is at the path, and not behind a link."""
    return os.path.lexists(work_tree / path) and not any(
        (work_tree / parent).is_symlink() for parent in PurePosixPath(path).parents[:-1]
    )
