"""One apply at a time per resource, across processes and users.

The lock is on the resource's root directory itself: it leaves no file behind, and the kernel lets go of it
when its holder dies, however it dies.

git's own lock of the user's index, taken the way git takes it, and known again after a crash.

The lock is a file that git never removes for another. Ours names the apply it belongs to from the first
moment on, so that a recovery removes it and no other.
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

from cleveragents.core.errors import ApplyBusy
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
    """Holds the resource. `waiting` is told once when somebody else holds it. `ApplyBusy`; `Cancelled` when
    it is told to `stop` meanwhile."""
    deadline = time.monotonic() + timeout_seconds
    pause = _FIRST_PAUSE_SECONDS
    told = False
    while (descriptor := _locked(resource)) is None:
        if not told and waiting is not None:
            waiting(f"another plan is being applied to {resource}")
        told = True
        if stop is not None:  # guard: who was cancelled does not wait for minutes
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
    """Holds the resource if nobody else does, and says whether."""
    descriptor = _locked(resource)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _let_go(descriptor)


def _let_go(descriptor: int) -> None:
    # Explicitly: what another thread is about to start has a copy of the descriptor until its program runs.
    with suppress(OSError):  # a file system of another machine that is away; to close it is enough then
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _locked(resource: Path) -> int | None:
    """A descriptor that holds the lock, or None when somebody else has it."""
    descriptor = os.open(resource, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody may have put another directory in its place: then we would hold what nobody looks at.
        held = os.path.samestat(os.fstat(descriptor), resource.stat())  # guard: the lock is on the right one
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
    finally:
        if not held:
            os.close(descriptor)
    return descriptor if held else None


def lock_index(scratch: Path, *, patience_seconds: float) -> bool:
    """Whether the index of `scratch`'s git directory is locked for us now. git commands are short, so it is
    worth to wait a moment for one."""
    mark = scratch / "index.mark"
    mark.write_text(_mark(scratch), encoding="ascii")
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            # A link appears with its content, or not at all.
            os.link(mark, _lock_of(scratch))
        except FileExistsError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def unlock_index(scratch: Path) -> None:
    """Lets go of the index if the lock is ours. Twice is harmless."""
    try:
        content = _lock_of(scratch).read_bytes()
    except OSError:
        return
    if content == _mark(scratch).encode("ascii"):  # guard: another's lock stays
        _lock_of(scratch).unlink(missing_ok=True)


def fingerprint_of(index: Path) -> str:
    """What the file holds; empty if there is none."""
    try:
        return hashlib.sha256(index.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _lock_of(scratch: Path) -> Path:
    return scratch.parent.parent / "index.lock"


def _mark(scratch: Path) -> str:
    return f"cleveragents {scratch.name}\n"
