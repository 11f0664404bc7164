"""Where the commands of a plan start: in the directory in which its user stood, below the sandbox's root.

A sandbox has the directories that its files need. The user may have stood in one without any file that goes
along, and a plan may delete the last one in it; it is made then, so that what is written there is there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["working_directory"]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def working_directory(root: Path, below: str) -> Path:
    """That directory, which is there then, unless something else is in its place."""
    wanted = root / below
    if not wanted.is_dir():
        _make(root, Path(below).parts)
    return wanted


def _make(root: Path, parts: tuple[str, ...]) -> None:
    here = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=here)
            below = os.open(part, _DIRECTORY, dir_fd=here)  # guard: no link leads out of the sandbox
            os.close(here)
            here = below
    except OSError:
        return  # a file or a link is in its place: whoever wants to start there says so
    finally:
        os.close(here)
