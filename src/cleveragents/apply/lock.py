"""Locks for an apply: one at a time per resource, across processes and users.

The lock is on the resource's root directory itself, so it leaves no file behind. The kernel releases it when
its holder dies.

The index of the user's repository is locked with git's own lock file. git never removes the lock file of
another process. Our lock file contains the id of the apply from the moment it exists, so recovery removes
only our own lock files.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.core.errors import ApplyBusy

if TYPE_CHECKING:
    from cleveragents.processes.ports import StopSignal

__all__ = ["fingerprint_of", "lock_index", "resource_lock", "try_resource_lock", "unlock_index"]


_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.1

_PAUSE_SECONDS = 0.02


@contextmanager
def resource_lock(
    resource: Path,
    *,
    waiting: Callable[[str], None] | None = None,
    timeout_seconds: float,
    stop: StopSignal | None = None,
) -> Iterator[None]:
    """Hold the lock of the resource. Raises `ApplyBusy` on timeout and `Cancelled` on `stop`.

    `waiting` is called once if another apply holds the lock.
    """
    deadline = time.monotonic() + timeout_seconds
    pause = _FIRST_PAUSE_SECONDS
    told = False
    while (descriptor := _locked(resource)) is None:
        if not told and waiting is not None:
            waiting(f"another plan is being applied to {resource}")
        told = True
        if stop is not None:  # guard: a cancelled caller must not wait for minutes
            stop.raise_if_cancelled()
        left = deadline - time.monotonic()
        if left <= 0:
            raise ApplyBusy(str(resource))
        time.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    try:
        yield
    finally:
        _let_go(descriptor)


@contextmanager
def try_resource_lock(resource: Path) -> Iterator[bool]:
    """Hold the lock of the resource if it is free; yield whether it is held."""
    descriptor = _locked(resource)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _let_go(descriptor)


def _let_go(descriptor: int) -> None:
    # Unlock explicitly: a child being started by another thread has a copy of the descriptor until its exec.
    with suppress(OSError):  # an unreachable network file system; closing is enough then
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _locked(resource: Path) -> int | None:
    """Return a descriptor that holds the lock, or None if another process has it."""
    descriptor = os.open(resource, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If another directory took its place, we would lock a directory that no one else checks.
        held = os.path.samestat(os.fstat(descriptor), resource.stat())  # guard: the lock is on the right one
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
    finally:
        if not held:
            os.close(descriptor)
    return descriptor if held else None


def lock_index(scratch: Path, *, patience_seconds: float) -> bool:
    """Lock the index of the git directory that contains `scratch`; return whether that succeeded. Waits up to
    `patience_seconds`, because git commands hold the lock only briefly.
    """
    mark = scratch / "index.mark"
    mark.write_text(_mark(scratch), encoding="ascii")
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            # A hard link appears together with its content.
            os.link(mark, _lock_of(scratch))
        except FileExistsError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def unlock_index(scratch: Path) -> None:
    """Release the index if the lock is ours. Idempotent."""
    try:
        content = _lock_of(scratch).read_bytes()
    except OSError:
        return
    if content == _mark(scratch).encode("ascii"):  # guard: keep the lock of another program
        _lock_of(scratch).unlink(missing_ok=True)


def fingerprint_of(index: Path) -> str:
    """Return a hash of the file's content; empty if it does not exist."""
    try:
        return hashlib.sha256(index.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _lock_of(scratch: Path) -> Path:
    return scratch.parent.parent / "index.lock"


def _mark(scratch: Path) -> str:
    return f"cleveragents {scratch.name}\n"
