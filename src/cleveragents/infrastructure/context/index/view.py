"""What a place holds: paths and the names of their contents, before anything is looked into."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cleveragents.infrastructure.context.index.digests import blob_digest, read_regular
from cleveragents.infrastructure.sandbox.paths import directory_of

__all__ = ["MOST_BYTES", "Entry", "FileStamps", "View", "left_out", "named", "stamp_of"]

MOST_BYTES = 1 << 20
"""Of a file that is searched; longer ones are data, whatever they are called."""

# A file system may give the same time to changes that are this far apart.
_RACY_NS = 2_000_000_000
_FIRST_NAMED = 3


class Entry(NamedTuple):
    """A file. `size` is 0 where only git knows it; `on_disk` says where its content is to be read."""

    path: str
    digest: bytes
    size: int
    on_disk: bool


@dataclass(frozen=True, slots=True)
class View:
    """`entries` in the order of their paths. `stamps` are to be remembered for the next time."""

    entries: list[Entry]
    notes: tuple[str, ...] = ()
    stamps: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)


def stamp_of(status: os.stat_result) -> str:
    """Changes with the file, unless that happens right after it was looked at."""
    return f"{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_size}:{status.st_ino}"


@dataclass
class FileStamps:
    """Names the contents of files that git does not vouch for, reading those that it does not know.

    A content that was read within two seconds of the file's time is not remembered: it may change again and
    look the same. Not thread-safe: for one view.
    """

    root: Path
    known: Mapping[str, tuple[str, bytes]]
    now_ns: int
    name_bytes: int = 20
    fresh: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def entry(self, path: str, status: os.stat_result) -> Entry | None:
        """The file as it is now; None if it is gone, or cannot be read."""
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
        data = self._read(path)
        if data is None:
            return None
        digest = blob_digest(data, name_bytes=self.name_bytes)
        if max(status.st_mtime_ns, status.st_ctime_ns) < self.now_ns - _RACY_NS:  # guard: see above
            self.fresh[path] = (stamp, digest)
        return Entry(path, digest, len(data), True)

    def _read(self, path: str) -> bytes | None:
        """Not through links: where a directory was, one may lead to what is nobody's to search."""
        with directory_of(self.root, path) as found:
            if found is None:
                return None
            return read_regular(found[1], at_most=MOST_BYTES, directory=found[0])


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
