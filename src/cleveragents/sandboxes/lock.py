"""The lock of a sandbox: one writer across threads and processes, released when its process ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cleveragents.core.errors import SandboxBusy, SandboxMissing

__all__ = ["is_abandoned", "is_locked", "locked", "marked"]

_POLL_SECONDS = 0.01


@contextmanager
def locked(path: Path, plan_id: str, *, timeout_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock file. Raises `SandboxBusy` on timeout and `SandboxMissing` if the file does not exist.

    The kernel ties the lock to the open file, so it excludes threads as well as processes, and is released if
    the process is killed.
    """
    give_up = time.monotonic() + timeout_seconds
    descriptor = _open(path, plan_id)
    try:
        while not _try(descriptor):
            if time.monotonic() >= give_up:
                raise SandboxBusy(plan_id)
            time.sleep(_POLL_SECONDS)
        _ensure_current(descriptor, path, plan_id)
        yield
    finally:
        _let_go(descriptor)


@contextmanager
def marked(path: Path) -> Iterator[Callable[[], None]]:
    """Mark a file during the block, and yield a function that removes the mark. The mark stays while other
    blocks use it, and after its process was killed.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def unmark() -> None:
        if _try(descriptor):  # guard: other blocks share the mark
            os.ftruncate(descriptor, 0)

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # held by others only for the moment of a check
        os.ftruncate(descriptor, 1)
        yield unmark
    finally:
        _let_go(descriptor)


def is_abandoned(path: Path) -> bool:
    """Return whether a file is still marked (see `marked`) although no block uses the mark."""
    with suppress(FileNotFoundError):
        return path.stat().st_size > 0 and not is_locked(path)
    return False


def is_locked(path: Path) -> bool:
    """Return whether any process holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try(descriptor)
    finally:
        _let_go(descriptor)


def _open(path: Path, plan_id: str) -> int:
    try:
        return os.open(path, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SandboxMissing(plan_id, str(path.parent)) from error


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _let_go(descriptor: int) -> None:
    # Unlock explicitly: a child being started by another thread has a copy of the descriptor until its exec.
    with suppress(OSError):  # an unreachable network file system; closing is enough then
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _ensure_current(descriptor: int, path: Path, plan_id: str) -> None:
    """Raise `SandboxMissing` if the file was removed or recreated during the wait."""
    try:
        same = os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        same = False
    if not same:  # guard: a caller that waited for a removed sandbox must not get it
        raise SandboxMissing(plan_id, str(path.parent))
