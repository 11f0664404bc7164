"""Who keeps an SQLite file from being written: the process that is in the middle of a write.

Nobody can take that lock away, and a process that was suspended there keeps it until it goes on or dies. So
whoever waited in vain is told whom to look at. The kernel's list of locks tells it on Linux; to ask by a lock
of one's own would need the file to be opened and closed, which drops all locks that this process has on it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LockHolder", "write_lock_holder"]

# Where SQLite's locks are in the file of shared memory; the first is that of who writes.
_WRITE_LOCK = 120
_STOPPED = ("T", "t")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process in the middle of a write; `stopped` if it was suspended there."""

    pid: int
    name: str
    stopped: bool

    def __str__(self) -> str:
        who = f"process {self.pid} ({self.name}) is in the middle of a write"
        return f"{who}, and stopped" if self.stopped else who

    @property
    def remedy(self) -> str | None:
        """What a person can do about it; nothing, where it may just have much to do."""
        if not self.stopped:
            return None
        return f"`kill -CONT {self.pid}` lets it go on, `kill -9 {self.pid}` ends it and undoes that write"


def write_lock_holder(database: str) -> LockHolder | None:
    """Who writes to that file, in write-ahead mode, at this moment; None where nobody does, or can tell."""
    try:
        file = Path(f"{database}-shm").stat()
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    for line in locks.splitlines():
        with suppress(ValueError, OSError):
            _, kind, _, mode, pid, where, first, last = line.split()
            if kind != "POSIX" or mode != "WRITE" or int(where.rpartition(":")[2]) != file.st_ino:
                continue
            # What is next to it may be held by the same one, and is told as one lock then.
            ends_before = last != "EOF" and int(last) < _WRITE_LOCK
            if int(first) <= _WRITE_LOCK and not ends_before and _has_open(int(pid), file):
                return _process(int(pid))
    return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Files of two disks may have the same number. Into a process of somebody else nobody can look."""
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except PermissionError:
        return True
    for descriptor in descriptors:
        with suppress(OSError):
            if os.path.samestat(descriptor.stat(), file):
                return True
    return False


def _process(pid: int) -> LockHolder:
    # The name, in parentheses, may itself hold anything.
    start, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
    return LockHolder(pid, start.partition("(")[2], rest.split()[0] in _STOPPED)
