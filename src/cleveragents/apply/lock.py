"""One apply at a time per resource, across processes and users.

The lock is on the resource's root directory itself: it leaves no file behind, and the kernel lets go of it
when its holder dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cleveragents.core.errors import ApplyBusy
from cleveragents.processes.ports import StopSignal

__all__ = ["resource_lock", "try_resource_lock"]

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.1


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
