"""One writer per sandbox, across threads and processes, and gone with the process that held it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cleveragents.errors import SandboxBusy, SandboxMissing

__all__ = ["is_locked", "locked"]

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
