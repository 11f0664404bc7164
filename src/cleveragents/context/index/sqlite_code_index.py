"""The code index on SQLite: see `CodeIndex` for what it promises.

Cleaning up among all indexes: those of repositories that are gone, and what was known of sandboxes.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from cleveragents.context.code_index import CodePlace, CodeSnapshot, IndexProgress
from cleveragents.context.index.build.build_lock import building
from cleveragents.context.index.build.building import Builder, drop_unused, forget_places
from cleveragents.context.index.build.segment import IndexDamaged
from cleveragents.context.index.index_file import MOST_BUSY_SECONDS, IndexFile
from cleveragents.context.index.opening import Bounds, Opening
from cleveragents.context.index.place import Patience, ground_of
from cleveragents.context.strategy import CancelSignal

__all__ = ["SqliteCodeIndex", "prune_directory"]


# Making an index takes another process that long; without it, there would be none to look into.
_LEAST_BUSY_SECONDS = 0.1


class SqliteCodeIndex:
    """`CodeIndex` with one file per repository in `directory`. Stateless: any thread may share it."""

    opening: type[Opening] = Opening

    def __init__(
        self,
        directory: Path,
        *,
        builder: Builder | None = None,
        bounds: Bounds | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._directory = directory.absolute()
        self._builder = builder or Builder()
        self._bounds = bounds or Bounds()
        self._now_ns = now_ns

    def open(
        self,
        place: CodePlace,
        *,
        seconds: float | None = None,
        progress: IndexProgress | None = None,
        cancelled: CancelSignal | None = None,
    ) -> AbstractContextManager[CodeSnapshot]:
        return self._open(place, Patience.of(seconds, cancelled), progress)

    def prune(self, gone: Sequence[Path] = ()) -> int:
        """Forgets these directories and all that are no longer there; how many bytes that gave back.

        Indexes that are being filled are left for the next time.
        """
        return prune_directory(self._directory, self._builder.analysis_version, gone)

    @contextmanager
    def _open(
        self, place: CodePlace, patience: Patience, progress: IndexProgress | None
    ) -> Iterator[CodeSnapshot]:
        ground = ground_of(place, patience)
        path = self._directory / f"{ground.key}.db"
        busy_seconds = max(_LEAST_BUSY_SECONDS, patience.seconds(MOST_BUSY_SECONDS))
        file = IndexFile(path, self._builder.analysis_version, ground.home, busy_seconds)
        opening = self.opening(self._builder, ground, file, patience, progress, self._bounds, self._now_ns)
        snapshot = opening.snapshot()
        try:
            yield snapshot
        finally:
            snapshot.close()


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
