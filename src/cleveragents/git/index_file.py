"""Read and complete index files without a git process.

Supports only versions 2 and 3. git writes other versions only if configured to, and our own git directories
are not configured so.

An index can tell git to skip files: assume-unchanged, skip-worktree and sparse checkouts. git then takes the
index entry as the file's content. If such a file exists, this module reads the file. If it is not checked
out, its content is that of its index entry.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from msgspec import Struct

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
# Intent-to-add and skip-worktree; git rejects an index with other flags.
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
    """A file in an index. `position` is the offset of its stat data; `key` is its `stat_key` when it was last
    read.
    """

    position: int
    key: tuple[int, ...]
    mode: int
    name: str


class IndexSummary(Struct, frozen=True):
    """The totals of an index. `size_bytes` is the total size of its files; `gitlinks` are the paths of
    submodules.
    """

    files: int
    size_bytes: int
    gitlinks: tuple[str, ...]


class PlainIndex(Struct, frozen=True):
    """An index without extensions, and the path and mode of each entry. A conflicted path has up to three."""

    data: bytes
    entries: tuple[tuple[str, int], ...]


def holds_attributes(path: Path) -> bool:
    """Return whether the index contains a .gitattributes file. May be True for a similar name, or if names
    are abbreviated (version 4).
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    return _ATTRIBUTES in data or data[4:8] == _ABBREVIATING


def summary_of(path: Path, *, name_bytes: int) -> IndexSummary:
    """Return the totals of the index at `path`. `name_bytes` is the length of object names. Raises
    `GitFailed`.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return IndexSummary(0, 0, ())
    entries = dict(_entries(data, path, name_bytes))
    gitlinks = tuple(name for name, entry in entries.items() if entry.mode == GITLINK)
    return IndexSummary(len(entries), sum(entry.key[-1] for entry in entries.values()), gitlinks)


def entries_of(path: Path, *, name_bytes: int) -> dict[str, IndexEntry]:
    """Return the entries of the index at `path`, by path, including submodules. Raises `GitFailed`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return dict(_entries(data, path, name_bytes))


def plain_index(data: bytes, *, name_bytes: int) -> PlainIndex | None:
    """Return the entries of an untrusted index, rewritten as an index without extensions.

    Returns None if the index is damaged or incomplete, or if git could read other entries in it than we do.
    """
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
            if mode not in _MODES or more & ~_EXTENDED_FLAGS:  # guard: git only checks a few bits of a mode
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
    """Return the fields by which an index detects a changed file: both times, the inode and the size."""
    return (
        status.st_ctime_ns // _SECOND & _WORD,
        status.st_ctime_ns % _SECOND,
        status.st_mtime_ns // _SECOND & _WORD,
        status.st_mtime_ns % _SECOND,
        status.st_ino & _WORD,
        status.st_size & _WORD,
    )


def with_stats(path: Path, stats: Mapping[str, os.stat_result | None], *, name_bytes: int) -> frozenset[str]:
    """Write the stat data of these files into their entries, as git does after reading the files itself.

    None marks a file that git must read again the next time. Return the files that have an entry. Rewrites
    the index at `path` in place, so it must be the caller's own copy.
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
    """Pad with one to eight NULs to a multiple of eight."""
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
    """Yield the offsets of each entry and of its name's beginning and end, and its flags."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3):
        raise GitFailed("index", f"{called} has the unsupported version {version}")
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


class HiddenFiles(Struct, frozen=True):
    """The files that an index hides. `assumed` are marked assume-unchanged. Of the files marked
    skip-worktree, `present` exist nevertheless, and `absent` are not checked out.
    """

    assumed: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def marked_in(listed: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files marked assume-unchanged and the files marked skip-worktree in git's listing."""
    entries = [(entry[0], entry[2:]) for entry in os.fsdecode(listed).split("\0")[:-1]]
    assumed = tuple(path for tag, path in entries if tag.islower())
    return assumed, tuple(path for tag, path in entries if tag.upper() == _SKIPPED)


def hidden_files(repository: PrivateRepository, work_tree: Path, index: Path) -> HiddenFiles:
    """Return the files of the work tree that the index hides."""
    assumed, skipped = marked_in(repository.git(*LISTING, index=index))
    present = {path for path in skipped if _is_there(work_tree, path)}
    return HiddenFiles(
        assumed,
        tuple(path for path in skipped if path in present),
        tuple(path for path in skipped if path not in present),
    )


def reveal(repository: PrivateRepository, work_tree: Path, index: Path) -> HiddenFiles:
    """Remove both marks from every existing file in the caller's own index; return the files they hid."""
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
    """Return whether the path exists and is not reached through a link."""
    return os.path.lexists(work_tree / path) and not any(
        (work_tree / parent).is_symlink() for parent in PurePosixPath(path).parents[:-1]
    )
