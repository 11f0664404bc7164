"""One writer per sandbox, across threads and processes, and gone with the process that held it."""

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
    """Holds the lock file. `SandboxBusy` when it is not free in time, `SandboxMissing` when it is not there.

    The kernel keeps the lock for the open file, so two threads exclude each other as two processes do, and a
    killed process holds nothing.
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
    """Marks a file, and yields what takes the mark off again; that does nothing while others are in such a
    block. A process that is killed leaves its mark."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def unmark() -> None:
        if _try(descriptor):  # guard: it is the mark of others, too
            os.ftruncate(descriptor, 0)

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # nobody holds it longer than it takes to look
        os.ftruncate(descriptor, 1)
        yield unmark
    finally:
        _let_go(descriptor)


def is_abandoned(path: Path) -> bool:
    """Whether a file is `marked`, and nobody is in such a block."""
    with suppress(FileNotFoundError):
        return path.stat().st_size > 0 and not is_locked(path)
    return False


def is_locked(path: Path) -> bool:
    """Whether somebody holds it now."""
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
    # Explicitly: what another thread is about to start has a copy of the descriptor until its program runs.
    with suppress(OSError):  # a file system of another machine that is away; to close it is enough then
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _ensure_current(descriptor: int, path: Path, plan_id: str) -> None:
    """The file may have been removed, or made anew, while we waited for it."""
    try:
        same = os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        same = False
    if not same:  # guard: whoever waited for a sandbox that was removed does not get one
        raise SandboxMissing(plan_id, str(path.parent))
