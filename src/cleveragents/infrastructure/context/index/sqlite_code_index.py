"""The code index on SQLite: see `CodeIndex` for what it promises.

What a place holds is looked up first, then what of it the index lacks is added, and then both are looked at
in one reading transaction. If that finds less than there was, because somebody pruned or replaced the file in
between, it is done again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cleveragents.application.ports.code_index import CodePlace, CodeSnapshot, IndexProgress
from cleveragents.application.ports.context import CancelSignal
from cleveragents.application.ports.faults import FaultPoints, NoFaults
from cleveragents.infrastructure.context.index.build_lock import building
from cleveragents.infrastructure.context.index.building import Builder, Building
from cleveragents.infrastructure.context.index.crew import crew_size
from cleveragents.infrastructure.context.index.directory_view import directory_view
from cleveragents.infrastructure.context.index.git_view import commit_view, work_tree_view
from cleveragents.infrastructure.context.index.index_file import (
    IndexFile,
    OpenedIndex,
    is_damage,
    is_unwritable,
)
from cleveragents.infrastructure.context.index.known_files import remember, remembered_stamps
from cleveragents.infrastructure.context.index.layout import Layout, layout_of
from cleveragents.infrastructure.context.index.patience import Patience
from cleveragents.infrastructure.context.index.place import Ground, ground_of
from cleveragents.infrastructure.context.index.resolution import Distinct, distinct, located
from cleveragents.infrastructure.context.index.sealing import IndexDamaged
from cleveragents.infrastructure.context.index.segment_rows import catalogue
from cleveragents.infrastructure.context.index.snapshot import SqliteCodeSnapshot
from cleveragents.infrastructure.context.index.view import Entry, FileStamps, View

__all__ = ["SqliteCodeIndex"]

ANALYSIS = "cleveragents.infrastructure.context.analysis:analyse"
_ATTEMPTS = 4
_MOST_FILES = 200_000


class SqliteCodeIndex:
    """`CodeIndex` with one file per repository in `directory`. Stateless: any thread may share it.

    `analyse` names the function that reads files, as `module:function`; `version` changes with what it finds.
    """

    def __init__(
        self,
        directory: Path,
        *,
        analyse: str = ANALYSIS,
        version: int | None = None,
        workers: int | None = None,
        most_files: int = _MOST_FILES,
        faults: FaultPoints | None = None,
        alone: int = 150,
        batch_files: int = 256,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        from cleveragents.infrastructure.context.analysis import ANALYSIS_VERSION

        self._directory = directory
        self._version = ANALYSIS_VERSION if version is None else version
        self._most_files = most_files
        self._now_ns = now_ns
        self._builder = Builder(analyse, workers or crew_size(), faults or NoFaults(), alone, batch_files)

    def open(
        self,
        place: CodePlace,
        *,
        seconds: float | None = None,
        progress: IndexProgress | None = None,
        cancelled: CancelSignal | None = None,
    ) -> AbstractContextManager[CodeSnapshot]:
        return self._open(place, Patience.of(seconds, cancelled), progress)

    @contextmanager
    def _open(
        self, place: CodePlace, patience: Patience, progress: IndexProgress | None
    ) -> Iterator[CodeSnapshot]:
        ground = ground_of(place)
        file = IndexFile((self._directory / ground.key).with_suffix(".db"), self._version, ground.home)
        opening = _Opening(self._builder, ground, file, patience, progress, self._most_files, self._now_ns)
        snapshot = opening.snapshot()
        try:
            yield snapshot
        finally:
            snapshot.close()


@dataclass
class _Opening:
    """One opening of one place. Not thread-safe."""

    builder: Builder
    ground: Ground
    file: IndexFile
    patience: Patience
    progress: IndexProgress | None
    most_files: int
    now_ns: Callable[[], int]
    notes: list[str] = field(default_factory=list)

    def snapshot(self) -> SqliteCodeSnapshot:
        """Everything indexed, or what there was time for."""
        opened = self.file.open()
        for left in reversed(range(_ATTEMPTS)):
            try:
                return self._snapshot(opened)
            except (sqlite3.Error, IndexDamaged, OSError) as error:
                opened.close()
                if not left:
                    raise
                opened = self._another(error)
            except BaseException:
                opened.close()
                raise
        raise AssertionError("unreachable")

    def _another(self, error: Exception) -> OpenedIndex:
        if is_damage(error):
            self.file.discard()
            opened = self.file.open()
            opened.notes.append(f"the index was built anew: it was damaged ({error})")
            return opened
        if is_unwritable(error):
            return self.file.in_memory(f"the index is not kept: {error}")
        raise error

    def _snapshot(self, opened: OpenedIndex) -> SqliteCodeSnapshot:
        connection = opened.connection
        stamps = remembered_stamps(connection, self.ground)
        view = self._view(stamps)
        contents = distinct(view.entries)
        built: list[str] = []
        for _ in range(_ATTEMPTS):
            built = self._fill(opened, view, contents)
            layout = self._look(connection, view, contents)
            if layout.indexed == len(view.entries) or built or self.patience.is_over:
                break
            connection.execute("COMMIT")
        notes = [*self.ground.notes, *opened.notes, *view.notes, *built]
        if self.patience.is_over and layout.indexed < len(view.entries):
            notes.append(f"the time was up: {layout.indexed} of {len(view.entries)} files are indexed")
        snapshot = SqliteCodeSnapshot(self.ground, layout, connection, notes, self.file.discard)
        if opened.kept:
            self._remember(stamps, view, layout)
        return snapshot

    def _view(self, known: dict[str, tuple[str, bytes]]) -> View:
        ground = self.ground
        if ground.repository is not None and (ground.commit is not None or ground.repository.bare):
            return commit_view(ground, self.most_files)
        stamps = FileStamps(ground.root, known, self.now_ns(), ground.name_bytes)
        if ground.repository is None:
            return directory_view(ground.root, stamps, self.most_files, self.patience)
        return work_tree_view(ground, stamps, self.most_files)

    def _lacking(self, connection: sqlite3.Connection, view: View, contents: Distinct) -> list[Entry]:
        """One entry for each content that is not indexed yet."""
        which, _ = located(catalogue(connection), contents.digests)
        if (which >= 0).all():
            return []
        chosen: dict[int, Entry] = {}
        for entry, content in zip(view.entries, contents.content_of.tolist(), strict=True):
            if which[content] < 0:
                chosen.setdefault(content, entry)
        return list(chosen.values())

    def _fill(self, opened: OpenedIndex, view: View, contents: Distinct) -> list[str]:
        """Adds what is lacking; notes on what could not be."""
        connection = opened.connection
        total = len(contents.digests)
        lacking = self._lacking(connection, view, contents)
        if not lacking or self.patience.is_over:
            return []
        task = Building(self.builder, self.ground, connection, self.patience, self.progress)
        if not opened.kept:
            task.fill(lacking, total)
            return task.notes

        def needless() -> bool:
            left = len(self._lacking(connection, view, contents))
            if self.progress is not None:
                self.progress(total - left, total)
            return not left

        with building(self.file.lock, self.patience, needless) as ours:
            if ours:
                # guard: whoever had the lock before may have added all of it
                lacking = self._lacking(connection, view, contents)
                task.fill(lacking, total)
        return task.notes

    def _look(self, connection: sqlite3.Connection, view: View, contents: Distinct) -> Layout:
        connection.execute("BEGIN")
        return layout_of(view.entries, contents, catalogue(connection))

    def _remember(self, before: dict[str, tuple[str, bytes]], view: View, layout: Layout) -> None:
        """On a connection of its own: the snapshot's is in a transaction. If it cannot be, then not."""
        with suppress(sqlite3.Error, OSError):
            opened = self.file.open()
            try:
                remember(opened.connection, self.ground, before, view.stamps, layout.rows)
            finally:
                opened.close()
