"""Where the commands of a plan start: in the directory in which its user stood, below the sandbox's root.

A sandbox has the directories that its files need. The user may have stood in one without any file that goes
along, and a plan may delete the last one in it; it is made then, so that what is written there is there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cleveragents.storage.files.paths import open_directory, open_root

__all__ = ["working_directory"]


def working_directory(root: Path, below: str) -> Path:
    """That directory, which is there then, unless something else is in its place."""
    wanted = root / below
    if not wanted.is_dir():
        _make(root, Path(below).parts)
    return wanted


def _make(root: Path, parts: tuple[str, ...]) -> None:
    here = open_root(root)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=here)
            below = open_directory(here, part)  # guard: no link leads out of the sandbox
            os.close(here)
            here = below
    except OSError:
        return  # a file or a link is in its place: whoever wants to start there says so
    finally:
        os.close(here)
