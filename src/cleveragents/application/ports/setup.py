"""Where the results of setting up a sandbox are kept, for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["SetupStore"]


class SetupStore(Protocol):
    """Directories such as virtual environments, by key. Safe for many processes at once."""

    def key(self, command: str, tree: Path, files: Sequence[str]) -> str:
        """The name of what this command makes of these files, as they are in `tree`."""
        ...

    def take(self, key: str, tree: Path, paths: Sequence[str]) -> bool:
        """Copies what is kept under the key into `tree`; False if nothing is."""
        ...

    def keep(self, key: str, tree: Path, paths: Sequence[str]) -> None:
        """Keeps these directories of `tree`."""
        ...
