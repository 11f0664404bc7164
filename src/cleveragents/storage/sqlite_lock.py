"""The process that holds the write lock of an SQLite file.

The lock cannot be taken away, and a process suspended in the middle of a write keeps it until it resumes or
dies. A writer that waited in vain therefore reports the process that holds the lock. On Linux the kernel's
list of locks identifies that process. A test with a lock of our own is not possible: closing the file after
the test would drop all locks of our process on it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

__all__ = ["LockHolder", "write_lock_holder"]

# The offset of SQLite's locks in the shared-memory file; the first is the write lock.
_WRITE_LOCK = 120
_STOPPED = ("T", "t")


class LockHolder(Struct, frozen=True):
    """A process in the middle of a write. `stopped`: the process is suspended."""

    pid: int
    name: str
    stopped: bool

    def __str__(self) -> str:
        held = f"process {self.pid} ({self.name}) is in the middle of a write"
        return f"{held} and is stopped" if self.stopped else held

    @property
    def remedy(self) -> str | None:
        """The remedy for a stopped process; None for a process that may just be busy."""
        if not self.stopped:
            return None
        return f"`kill -CONT {self.pid}` resumes it, `kill -9 {self.pid}` ends it and undoes that write"


def write_lock_holder(database: str) -> LockHolder | None:
    """Return the process that writes to this WAL-mode file now; None if there is none or it is unknown."""
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
            # The same process may hold the adjacent lock; the kernel then reports both as one.
            ends_before = last != "EOF" and int(last) < _WRITE_LOCK
            if int(first) <= _WRITE_LOCK and not ends_before and _has_open(int(pid), file):
                return _process(int(pid))
    return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Return whether the process has the file open.

    Files on two disks may have the same inode number. Processes of other users cannot be inspected.
    """
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
    # The name, in parentheses, may itself contain any characters.
    start, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
    return LockHolder(pid, start.partition("(")[2], rest.split()[0] in _STOPPED)
