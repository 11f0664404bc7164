"""A digest of everything that a program can read below a directory.

It covers names, kinds, permissions, link targets and bytes, ignored files and nested repositories included.
Times and owners are not part of it: they differ between two copies of the same files.

The visible `.git` of a sandbox is covered, too. Two things in it differ between sandboxes of the same base:
the path of the sandbox, which is left out, and the stat data in the index. An index counts as the original
while it has the bytes that the sandbox began with, or those without extensions; any other index counts by its
bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from cleveragents.git.index_file import plain_index
from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.sandboxes.tree.walk import DirectoryCursor, read_bytes

__all__ = ["TooMuchToDigest", "content_digest", "sandbox_digest"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_BYTES = 32 << 30
_LARGEST_INDEX = 1 << 30
_LARGEST_ALTERNATES = 1 << 20
_INDEX = ".git/index"
_ALTERNATES = ".git/objects/info/alternates"


class TooMuchToDigest(OSError):
    """The files are larger than anything that is worth a digest; a sparse file can claim any size."""


def content_digest(root: Path, paths: Sequence[str] = ("",)) -> str:
    """The digest of what is at these paths below `root`. Whether a path is there counts. `OSError`."""
    return _digest(root, paths, None)


def sandbox_digest(tree: Path) -> str:
    """The digest of the files of a sandbox; equal for two sandboxes that a command cannot tell apart.
    `OSError`."""
    return _digest(tree, ("",), SandboxPlace(tree.parent))


def _digest(root: Path, paths: Sequence[str], place: SandboxPlace | None) -> str:
    total = hashlib.sha256()
    size = 0
    with DirectoryCursor(root) as cursor:
        for path in paths:
            total.update(_record(b"path", os.fsencode(path)))
            for found, directory, name, status in _entries(cursor, path):
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
                if size > _MOST_BYTES:  # guard: a sparse file costs nobody its size
                    raise TooMuchToDigest(f"{root} holds more than {_MOST_BYTES >> 30} GiB")
                if place is not None and stat.S_ISDIR(status.st_mode) and found.startswith(".git/"):
                    continue  # git makes empty directories there as it goes
                mode = b"%o" % (status.st_mode & ~0o7000)
                content = _content(directory, name, status, found, place)
                total.update(_record(os.fsencode(found), mode, content))
    return total.hexdigest()


def _entries(cursor: DirectoryCursor, path: str) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """What is at `path` and below, with the open directory that holds it, always in the same order."""
    waiting = [path]
    while waiting:
        here = waiting.pop()
        if here:
            parent, _, name = here.rpartition("/")
            directory = cursor.open(parent)
            if directory is None:
                continue
            try:
                status = os.lstat(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            yield here, directory, name, status
            if not stat.S_ISDIR(status.st_mode):
                continue
        opened = cursor.open(here)
        if opened is not None:
            with os.scandir(opened) as found:
                names = sorted((entry.name for entry in found), reverse=True)
            waiting += [f"{here}/{name}" if here else name for name in names]


def _content(
    directory: int, name: str, status: os.stat_result, path: str, place: SandboxPlace | None
) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(os.fsencode(name), dir_fd=directory)
    if not stat.S_ISREG(status.st_mode):
        return b""
    if place is not None and path in (_INDEX, _ALTERNATES):
        return _of_git(directory, name, path, place)
    descriptor = os.open(name, _READ, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _of_git(directory: int, name: str, path: str, place: SandboxPlace) -> bytes:
    """Two files of the visible `.git`, without what only tells one sandbox from another."""
    limit = _LARGEST_INDEX if path == _INDEX else _LARGEST_ALTERNATES
    content = read_bytes(directory, name, at_most=limit)
    if content is None:
        raise TooMuchToDigest(f"{place.tree / path} cannot be read, or is too large")
    if path == _INDEX:
        if place.base_index.is_file() and content in _originals(place):
            return b"original"
    else:
        for own in dict.fromkeys([place.directory, Path(os.path.realpath(place.directory))]):
            content = content.replace(os.fsencode(own) + b"/", b"\0/")
    return hashlib.sha256(content).digest()


def _originals(place: SandboxPlace) -> tuple[bytes, ...]:
    base = place.base_index.read_bytes()
    object_format = place.read_facts(place.directory.name).object_format
    plain = plain_index(base, name_bytes=20 if object_format == "sha1" else 32)
    return (base,) if plain is None else (base, plain.data)


def _record(*parts: bytes) -> bytes:
    """The parts, so that no two lists of parts look the same."""
    return b"".join(b"%d:%b" % (len(part), part) for part in (b"%d" % len(parts), *parts))
