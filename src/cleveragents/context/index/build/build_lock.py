"""One process at a time fills the index of a repository; the kernel frees the lock when it dies.

Who holds it writes its number into the file. One that is stopped keeps the lock and does nothing: so whoever
waits looks whether the index grows, and does not wait for one that does not.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cleveragents.context.index.place import Patience

__all__ = ["STALLED_SECONDS", "Turn", "building"]

STALLED_SECONDS = 10.0

_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Turn:
    """Whether the index is ours to fill; if not, the number of the process that fills it, if that is known,
    and whether it is `stalled`."""

    ours: bool
    pid: int | None = None
    stalled: bool = False

    @property
    def who(self) -> str:
        """Another one, in words."""
        return "another process" if self.pid is None else f"another process (pid {self.pid})"

    def __bool__(self) -> bool:
        return self.ours


@contextmanager
def building(
    path: Path,
    patience: Patience,
    needless: Callable[[], bool],
    *,
    grown: Callable[[], int] = int,
    stalled_seconds: float = STALLED_SECONDS,
) -> Iterator[Turn]:
    """Whose turn it is. If another fills the index, waits until that is done, the time is up, there is
    nothing left to fill, which `needless` is asked now and then, or what `grown` tells has stayed the same
    for `stalled_seconds`. `Cancelled`, `OSError`."""
    looked = moved = time.monotonic()
    held = _try(path)
    size = grown() if held is None else 0
    stalled = False
    try:
        while held is None and not stalled and not patience.is_over:
            now = time.monotonic()
            if now - looked >= _LOOK_SECONDS:
                looked = now
                if needless():
                    break
                before, size = size, grown()
                moved = moved if size == before else now
                stalled = now - moved >= stalled_seconds
            time.sleep(patience.seconds(_POLL_SECONDS))
            held = _try(path)
        yield Turn(True) if held is not None else Turn(False, _holder(path), stalled)
    finally:
        if held is not None:
            _say(held, b"")
            os.close(held)


def _holder(path: Path) -> int | None:
    try:
        words = path.read_bytes()[:20].strip()
    except OSError:
        words = b""
    return int(words) if words.isdigit() else None


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
    if not held:
        return None
    _say(descriptor, b"%d\n" % os.getpid())
    return descriptor


def _say(descriptor: int, words: bytes) -> None:
    # A full disk takes no words, but the lock holds.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, words, 0)
