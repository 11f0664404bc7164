"""What a place holds: paths and the names of their contents, before anything is looked into.

How a content is named: as git names it, whether git knows it or not.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cleveragents.context.index.place import Patience
from cleveragents.storage.files.paths import directory_of

__all__ = [
    "MOST_BYTES",
    "Entry",
    "FileStamps",
    "View",
    "blob_digest",
    "left_out",
    "named",
    "read_below",
    "read_regular",
    "stamp_of",
]


MOST_BYTES = 1 << 20
"""Of a file that is searched; longer ones are data, whatever they are called."""
# A file system may give the same time to changes that are this far apart.
_RACY_NS = 2_000_000_000
_FIRST_NAMED = 3
# So many files are read before the clock is looked at again; this many bytes take as long as one more.
_LOOK_EVERY = 256
_WORTH_A_FILE = 1 << 16
_PORTION = 512

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """A file. `size` is 0 where only git knows it; `on_disk` says where its content is to be read."""

    path: str
    digest: bytes
    size: int
    on_disk: bool


@dataclass(frozen=True, slots=True)
class View:
    """`entries` in the order of their paths. `stamps` are to be remembered for the next time. If the view is
    not `whole`, there was no time for the other files."""

    entries: list[Entry]
    notes: tuple[str, ...] = ()
    whole: bool = True
    stamps: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)


def stamp_of(status: os.stat_result) -> str:
    """Changes with the file, unless that happens right after it was looked at."""
    return f"{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_size}:{status.st_ino}"


@dataclass
class FileStamps:
    """Names the contents of files that git does not vouch for, reading those that it does not know.

    A content that was read within two seconds of the file's time is not remembered: it may change again and
    look the same. When the time is up, no more is read; but each view reads some, so that in the end all are
    known. `late` says that there was no time for some. `keep` is told what was learned, in portions: little
    is lost if the view is broken off. Not thread-safe: for one view.
    """

    root: Path
    known: Mapping[str, tuple[str, bytes]]
    now_ns: int
    name_bytes: int = 20
    patience: Patience = field(default_factory=Patience)
    keep: Callable[[dict[str, tuple[str, bytes]]], None] | None = None
    fresh: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    late: bool = False
    _learned: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    _work: int = 0
    _enough: bool = False

    @property
    def notes(self) -> list[str]:
        """What is to be said of the files that there is no entry for."""
        late = ["the time was up before all files were looked at"] if self.late else []
        return [*left_out(self.unreadable, "because they cannot be read"), *late]

    def look(self, path: str) -> Entry | None:
        """The file as it is now; None if it is gone, cannot be read, or the time is up."""
        try:
            return self.entry(path, os.lstat(f"{self.root}/{path}"))
        except OSError as error:
            self.miss(path, error)
            return None

    def miss(self, path: str, error: OSError) -> None:
        """There is no entry for it. What is gone need not be spoken of."""
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            self.unreadable.append(path)

    def entry(self, path: str, status: os.stat_result) -> Entry | None:
        """The same for a file whose stat data is known. `OSError`."""
        if not stat.S_ISREG(status.st_mode):
            return None
        stamp = stamp_of(status)
        remembered = self.known.get(path)
        if remembered is not None and remembered[0] == stamp:
            self.fresh[path] = remembered
            return Entry(path, remembered[1], status.st_size, True)
        if status.st_size > MOST_BYTES:
            # Reading it to give it a name would take longer than all the others.
            digest = blob_digest(f"too large: {path} {stamp}".encode(), name_bytes=self.name_bytes)
            return Entry(path, digest, status.st_size, True)
        data = None if self._is_late(status.st_size) else self._read(path)
        if data is None:
            return None
        digest = blob_digest(data, name_bytes=self.name_bytes)
        if max(status.st_mtime_ns, status.st_ctime_ns) < self.now_ns - _RACY_NS:  # guard: see above
            self._learn(path, (stamp, digest))
        return Entry(path, digest, len(data), True)

    def _is_late(self, size: int) -> bool:
        if self._work >= _LOOK_EVERY:
            self._work = 0
            self._enough = self._enough or self.patience.is_over
        self._work += 1 + size // _WORTH_A_FILE
        self.late = self.late or self._enough
        return self._enough

    def _learn(self, path: str, told: tuple[str, bytes]) -> None:
        self.fresh[path] = told
        self._learned[path] = told
        if self.keep is not None and len(self._learned) >= _PORTION:
            self.keep(self._learned)
            self._learned = {}

    def _read(self, path: str) -> bytes | None:
        """Not through links: where a directory was, one may lead to what is nobody's to search."""
        with directory_of(self.root, path) as found:
            if found is None:
                return None
            data = read_regular(found[1], at_most=MOST_BYTES, directory=found[0])
            if data is None:
                status = os.stat(found[1], dir_fd=found[0], follow_symlinks=False)
                self.unreadable += [path] if stat.S_ISREG(status.st_mode) else []
            return data


def named(paths: Iterable[bytes], unreadable: list[str]) -> Iterator[str]:
    """The paths as text; those that are none are put into `unreadable`."""
    for path in paths:
        try:
            yield path.decode("utf-8")
        except UnicodeDecodeError:
            unreadable.append(path.decode("utf-8", "backslashreplace"))


def left_out(paths: list[str], why: str) -> list[str]:
    """A note on files that are left out; none if there are none."""
    if not paths:
        return []
    shown = ", ".join(paths[:_FIRST_NAMED]) + (", …" if len(paths) > _FIRST_NAMED else "")
    return [f"{len(paths)} left out, {why}: {shown}"]


def blob_digest(data: bytes, *, name_bytes: int = 20) -> bytes:
    """git's name of that content, in repositories with names of that length."""
    name = hashlib.sha1(usedforsecurity=False) if name_bytes == 20 else hashlib.sha256()
    name.update(b"blob %d\0" % len(data))
    name.update(data)
    return name.digest()


def read_regular(path: Path | bytes | str, *, at_most: int, directory: int | None = None) -> bytes | None:
    """What is in the file, below an open directory if one is given; None if it is none, cannot be read, or is
    longer than that.

    Never waits: what looks like a file may have become a pipe.
    """
    try:
        descriptor = os.open(path, _READ, dir_fd=directory)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > at_most:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(at_most + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= at_most else None


def read_below(root: Path, path: str, *, at_most: int) -> bytes | None:
    """The same for a path below a directory, and through no link on the way."""
    try:
        with directory_of(root, path) as found:
            return None if found is None else read_regular(found[1], at_most=at_most, directory=found[0])
    except OSError:
        return None
