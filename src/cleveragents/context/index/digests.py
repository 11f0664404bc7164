"""How a content is named: as git names it, whether git knows it or not."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from cleveragents.storage.files.paths import directory_of

__all__ = ["blob_digest", "read_below", "read_regular"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def blob_digest(data: bytes, *, name_bytes: int = 20) -> bytes:
    """git's name of that content, in repositories with names of that length."""
    name = hashlib.sha1(usedforsecurity=False) if name_bytes == 20 else hashlib.sha256()
    name.update(b"blob %d\0" % len(data))
    name.update(data)
    return name.digest()


def read_regular(path: Path | bytes | str, *, at_most: int, directory: int | None = None) -> bytes | None:
    """What is in the file, below an open directory if one is given; None if it is none, cannot be read, or is
    longer than that.

    Never waits: what looks like a file may have become a pipe.
    """
    try:
        descriptor = os.open(path, _READ, dir_fd=directory)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > at_most:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(at_most + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= at_most else None


def read_below(root: Path, path: str, *, at_most: int) -> bytes | None:
    """The same for a path below a directory, and through no link on the way."""
    try:
        with directory_of(root, path) as found:
            return None if found is None else read_regular(found[1], at_most=at_most, directory=found[0])
    except OSError:
        return None
