"""git's own lock of the user's index, taken the way git takes it, and known again after a crash.

The lock is a file that git never removes for another. Ours names the apply it belongs to from the first
moment on, so that a recovery removes it and no other.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

__all__ = ["fingerprint_of", "lock_index", "unlock_index"]

_PAUSE_SECONDS = 0.02


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
