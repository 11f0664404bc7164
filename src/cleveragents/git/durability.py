"""Making sure that what was written is on the disk, for those who want to survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["FSYNC_SETTINGS", "flush", "flush_all"]

# For git's own objects and indexes; versions before 2.36 do not know it.
FSYNC_SETTINGS = {"core.fsync": "all"}


def flush(path: Path) -> None:
    """Returns when the file, or the names in the directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_all(directory: Path) -> None:
    """The same for all that is below, and the directory itself."""
    for place, _, names in os.walk(directory):
        for name in names:
            if not Path(place, name).is_symlink():
                flush(Path(place, name))
        flush(Path(place))
