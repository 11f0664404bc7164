"""The directory that stands for a command's home and temporary files where nothing hides the real ones."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["make_directory", "remove_directory"]


def make_directory() -> Path:
    """A new one, with `home` and `tmp` in it, readable by its owner only."""
    directory = Path(tempfile.mkdtemp(prefix="cleveragents-command-"))
    (directory / "home").mkdir(mode=0o700)
    (directory / "tmp").mkdir(mode=0o700)
    return directory


def remove_directory(directory: str) -> None:
    """Takes it away, read-only directories (some package caches are) included. Twice is harmless."""
    for place, below, _ in os.walk(directory):
        for name in below:
            path = Path(place, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)
