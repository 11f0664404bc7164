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
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    looked = time.monotonic()
    try:
        while not (held := _try(descriptor)) and not patience.is_over:
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                if needless():
                    break
            time.sleep(patience.seconds(_POLL_SECONDS))
        yield held
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
