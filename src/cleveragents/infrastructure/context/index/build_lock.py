"""One process at a time fills the index of a repository; the kernel frees the lock when it dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cleveragents.infrastructure.context.index.patience import Patience

__all__ = ["building"]

_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.2


@contextmanager
def building(path: Path, patience: Patience, needless: Callable[[], bool]) -> Iterator[bool]:
    """Whether the index is ours to fill. If another fills it, waits until that is done, the time is up, or
    there is nothing left to fill, which `needless` is asked now and then. `Cancelled`, `OSError`."""
    looked = time.monotonic()
    held = _try(path)
    try:
        while held is None and not patience.is_over:
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                if needless():
                    break
            time.sleep(patience.seconds(_POLL_SECONDS))
            held = _try(path)
        yield held is not None
    finally:
        if held is not None:
            os.close(held)


def _try(path: Path) -> int | None:
    """A descriptor that holds the lock, or None if somebody else has it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    held = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # guard: a file that was removed meanwhile is one that nobody else looks at
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            held = True
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        if not held:
            os.close(descriptor)
    return descriptor if held else None
