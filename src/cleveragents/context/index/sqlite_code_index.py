"""The code index on SQLite: see `CodeIndex` for what it promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cleveragents.context.code_index import CodePlace, CodeSnapshot, IndexProgress
from cleveragents.context.index.build.building import Builder
from cleveragents.context.index.index_file import MOST_BUSY_SECONDS, IndexFile
from cleveragents.context.index.opening import Bounds, Opening
from cleveragents.context.index.patience import Patience
from cleveragents.context.index.place import ground_of
from cleveragents.context.index.upkeep import prune_directory
from cleveragents.context.strategy import CancelSignal

__all__ = ["SqliteCodeIndex"]

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
