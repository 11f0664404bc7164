"""Cleaning up among all indexes: those of repositories that are gone, and what was known of sandboxes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from cleveragents.context.index.build.build_lock import building
from cleveragents.context.index.build.pruning import drop_unused, forget_places
from cleveragents.context.index.build.sealing import IndexDamaged
from cleveragents.context.index.index_file import IndexFile
from cleveragents.context.index.patience import Patience

__all__ = ["prune_directory"]


def prune_directory(directory: Path, version: int, gone: Sequence[Path]) -> int:
    """How many bytes it gave back."""
    before = _bytes_in(directory)
    for path in sorted(directory.glob("*.db")):
        with suppress(OSError):
            _prune(path, version, gone)
    return max(0, before - _bytes_in(directory))


def _prune(path: Path, version: int, gone: Sequence[Path]) -> None:
    home = _home_of(path)
    file = IndexFile(path, version, home or path)
    with building(file.lock, Patience.of(0.0, None), lambda: True) as ours:
        if not ours:
            return
        if home is None or not home.exists() or home in gone:
            file.remove()
            # Last: whoever waits for it holds what nobody looks at any more, and finds an index anew.
            file.lock.unlink(missing_ok=True)
            return
        _forget(file, gone)


def _forget(file: IndexFile, gone: Iterable[Path]) -> None:
    import numpy as np

    opened = file.open()
    with closing(opened), suppress(sqlite3.Error, IndexDamaged):
        if opened.kept and forget_places(opened.connection, gone):
            drop_unused(opened.connection, np.empty(0, np.int64))


def _home_of(path: Path) -> Path | None:
    """Whose index it is; None if it does not say."""
    try:
        uri = f"{path.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            row = connection.execute("SELECT value FROM fact WHERE name = 'home'").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else Path(os.fsdecode(row[0]))


def _bytes_in(directory: Path) -> int:
    total = 0
    for path in directory.glob("*.db*"):
        with suppress(OSError):  # guard: logs vanish when the last one closes the index
            total += path.stat().st_size
    return total
