"""The code index on SQLite; see `CodeIndex` for its guarantees.

Opening a place lists its files, adds the missing contents to the index, and then reads the index in one read
transaction. If contents are missing by then, because another process pruned or replaced the index file,
opening starts again.

Commands of an agent may change the files of a sandbox at any time, so git never reads these files. This
module walks them and compares them with the git index of the sandbox, which is stored outside the sandbox.

Pruning removes the indexes of repositories that are gone and the data about sandboxes.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.context.code_index import CodePlace, CodeSnapshot, IndexProgress
from cleveragents.context.index.build.builder import (
    IndexBuild,
    IndexBuilder,
    build_turn,
    drop_unused,
    forget_places,
    forget_views,
    is_mostly_unused,
)
from cleveragents.context.index.build.segment import IndexDamaged, catalogue
from cleveragents.context.index.git_view import commit_view, view_of, work_tree_view
from cleveragents.context.index.index_file import (
    MOST_BUSY_SECONDS,
    IndexFile,
    OpenedIndex,
    is_damage,
    is_locked,
    is_unwritable,
    wait_at_most,
)
from cleveragents.context.index.place import IndexDeadline, ResolvedPlace, ground_of
from cleveragents.context.index.snapshot import (
    DistinctContents,
    Layout,
    SqliteCodeSnapshot,
    distinct,
    layout_of,
    located,
)
from cleveragents.context.index.view import (
    NEVER_SOUGHT,
    FileEntry,
    FileStamps,
    IndexView,
    directory_view,
    place_name,
    remember,
    remembered_stamps,
)
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.change import SYMLINK
from cleveragents.core.errors import GitFailed, SandboxRefused, SourceMissing
from cleveragents.sandboxes.tree.index import is_unchanged, open_tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Bounds", "IndexOpener", "SqliteCodeIndex", "prune_directory", "sandbox_view"]


# Another process takes this long to create an index; with less, there would be none to read.
_LEAST_BUSY_SECONDS = 0.1

_ATTEMPTS = 4
_REMEMBER_SECONDS = 0.01
# In less time, worker processes have hardly started.
_CREW_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the files of a place and the size of an index."""

    files: int = 200_000
    bytes: int = 2 << 30


@dataclass
class IndexOpener:
    """One opening of one place. Not thread-safe."""

    builder: IndexBuilder
    ground: ResolvedPlace
    file: IndexFile
    patience: IndexDeadline
    progress: IndexProgress | None
    bounds: Bounds
    now_ns: Callable[[], int]
    notes: list[str] = field(default_factory=list)

    def snapshot(self) -> SqliteCodeSnapshot:
        """Return a snapshot with everything indexed, or as much as the time allows."""
        return self._attempt(self.file.open(), _ATTEMPTS)

    def _attempt(self, opened: OpenedIndex, left: int) -> SqliteCodeSnapshot:
        try:
            return self._snapshot(opened)
        except (sqlite3.Error, IndexDamaged, OSError) as error:
            opened.close()
            if not left:
                raise
            another = self._another(opened, error)
        except BaseException:
            opened.close()
            raise
        return self._attempt(another, left - 1)

    def _another(self, useless: OpenedIndex, error: Exception) -> OpenedIndex:
        if is_damage(error):
            self.file.discard(useless)
            opened = self.file.open()
            opened.notes.append(f"the index was rebuilt: it was damaged ({error})")
            return opened
        if is_unwritable(error):
            return self.file.in_memory(f"the index is not stored: {error}")
        raise error

    def _snapshot(self, opened: OpenedIndex) -> SqliteCodeSnapshot:
        connection = opened.connection
        stamps = remembered_stamps(connection, self.ground)
        view = self._view(stamps, keep=opened.kept)
        contents = distinct(view.entries)
        built = self._fill(opened, view, contents)
        layout = self._look(connection, view, contents)
        for _ in range(_ATTEMPTS):
            if layout.indexed == len(view.entries) or built or self.patience.is_over:
                break
            # guard: another process, unaware of this one, dropped what was there a moment ago
            connection.execute("COMMIT")
            built = self._fill(opened, view, contents)
            layout = self._look(connection, view, contents)
        notes = [*self.ground.notes, *opened.notes, *view.notes, *built]
        if self.patience.is_over and layout.indexed < len(view.entries):
            notes.append(f"out of time: {layout.indexed} of {len(view.entries)} files are indexed")
        snapshot = SqliteCodeSnapshot(
            self.ground, layout, connection, notes, partial(self.file.discard, opened)
        )
        if opened.kept:
            self._remember(stamps, view, layout.rows)
        return snapshot

    def _view(self, known: dict[str, tuple[str, bytes]], *, keep: bool) -> IndexView:
        ground = self.ground
        if ground.repository is not None and (ground.commit is not None or ground.repository.bare):
            try:
                return commit_view(ground, self.bounds.files, self.patience)
            except GitFailed as error:
                raise SourceMissing(f"{ground.commit} of {ground.root}", error.problem) from error
        stamps = FileStamps(
            ground.root,
            known,
            self.now_ns(),
            ground.name_bytes,
            # The other half of the time is for indexing the files found.
            self.patience.half,
            partial(self._remember_portion, known) if keep else None,
        )
        notes: tuple[str, ...] = ()
        if ground.place.git_dir is not None:  # guard: host git never sees what commands wrote
            return sandbox_view(ground, stamps, self.bounds.files)
        if ground.repository is not None:
            try:
                view = work_tree_view(ground, stamps, self.bounds.files, self.patience)
                if view.entries or not ground.repository.prefix:
                    return view
            except GitFailed as error:
                notes = (f"read without git: {error.problem}",)
        # No repository, a damaged one, or a directory that the surrounding repository ignores.
        view = directory_view(ground.root, stamps, self.bounds.files)
        return replace(view, notes=(*notes, *view.notes))

    def _lacking(
        self, connection: sqlite3.Connection, view: IndexView, contents: DistinctContents
    ) -> list[FileEntry]:
        """Return one entry for each content that is not indexed yet."""
        which, _ = located(catalogue(connection), contents.digests)
        if (which >= 0).all():
            return []
        chosen: dict[int, FileEntry] = {}
        for entry, content in zip(view.entries, contents.content_of.tolist(), strict=True):
            if which[content] < 0:
                chosen.setdefault(content, entry)
        return list(chosen.values())

    def _fill(self, opened: OpenedIndex, view: IndexView, contents: DistinctContents) -> list[str]:
        """Add the missing contents and return notes on those that could not be added."""
        try:
            return self._filled(opened, view, contents)
        except sqlite3.OperationalError as error:
            # guard: a locked index can still be read, and has more than a copy without its log
            if is_locked(error) and self.patience.is_over:
                return []
            raise

    def _filled(self, opened: OpenedIndex, view: IndexView, contents: DistinctContents) -> list[str]:
        connection = opened.connection
        total = len(contents.digests)
        lacking = self._lacking(connection, view, contents)
        if not lacking or self.patience.is_over:
            return []
        self.builder.faults.reach("index.build.before")
        builder = self.builder
        if (
            self.patience.seconds(_CREW_SECONDS) < _CREW_SECONDS
        ):  # guard: otherwise nothing would ever be indexed
            builder = replace(builder, alone=len(lacking))
        task = IndexBuild(builder, self.ground, connection, self.patience, self.progress)
        if not opened.kept:
            task.fill(lacking, total)
            return task.notes

        def needless() -> bool:
            left = len(self._lacking(connection, view, contents))
            if self.progress is not None:
                self.progress(total - left, total)
            return not left

        def grown() -> int:
            return int(connection.execute("SELECT max(segment) FROM segment").fetchone()[0] or 0)

        stalled = self.builder.stalled_seconds
        with build_turn(
            self.file.lock, self.patience, needless, grown=grown, stalled_seconds=stalled
        ) as turn:
            if turn.ours:
                absent = {entry.digest for entry in self._lacking(connection, view, contents)}
                # The previous holder of the lock may have added them.
                lacking = [entry for entry in lacking if entry.digest in absent]  # guard: each is done once
                self._fill_within_bounds(task, lacking, contents)
        if turn.stalled:
            which, _ = located(catalogue(connection), contents.digests)
            indexed = int((which[contents.content_of] >= 0).sum())
            known = f"{indexed} of {len(view.entries)} files are indexed"
            return [f"{turn.who} is indexing and makes no progress; {known}"]
        if turn.pid is not None and self.patience.is_over:
            return [f"{turn.who} is indexing"]
        return task.notes

    def _fill_within_bounds(
        self, task: IndexBuild, lacking: list[FileEntry], contents: DistinctContents
    ) -> None:
        connection = task.connection

        def room() -> bool:
            wait_at_most(connection, self.patience.seconds(MOST_BUSY_SECONDS))
            return self.file.size() < self.bounds.bytes

        if not room():
            forget_views(connection, place_name(self.ground))
            drop_unused(connection, self._rows(connection, contents))
        task.room = room
        task.fill(lacking, len(contents.digests))
        in_use = self._rows(connection, contents)
        if is_mostly_unused(connection, in_use):
            drop_unused(connection, in_use)

    def _rows(self, connection: sqlite3.Connection, contents: DistinctContents) -> NDArray[np.int64]:
        """Return the rows of this view's contents."""
        import numpy as np

        segments = catalogue(connection)
        which, where = located(segments, contents.digests)
        found = [one.head.rows[where[which == number]] for number, one in enumerate(segments)]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _look(self, connection: sqlite3.Connection, view: IndexView, contents: DistinctContents) -> Layout:
        connection.execute("BEGIN")
        return layout_of(view.entries, contents, catalogue(connection))

    def _remember_portion(
        self, known: dict[str, tuple[str, bytes]], learned: dict[str, tuple[str, bytes]]
    ) -> None:
        import numpy as np

        if self._remember({}, IndexView([], whole=False, stamps=learned), np.empty(0, np.int64)):
            known |= learned

    def _remember(
        self, before: dict[str, tuple[str, bytes]], view: IndexView, rows: NDArray[np.int64]
    ) -> bool:
        """Store the stamps and contents of the view for the next time. This uses a separate connection,
        because the snapshot's connection is in a transaction.

        Return whether they were stored.
        """
        # guard: the caller waits for the answer, not for this write
        file = replace(self.file, busy_seconds=_REMEMBER_SECONDS)
        with suppress(sqlite3.Error, OSError):
            opened = file.open_kept()
            try:
                remember(opened.connection, self.ground, before, view, rows)
            finally:
                opened.close()
            return True
        return False


class SqliteCodeIndex:
    """A `CodeIndex` with one file per repository in `directory`. Stateless: any thread may share it."""

    opening: type[IndexOpener] = IndexOpener

    def __init__(
        self,
        directory: Path,
        *,
        builder: IndexBuilder | None = None,
        bounds: Bounds | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._directory = directory.absolute()
        self._builder = builder or IndexBuilder()
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
        return self._open(place, IndexDeadline.of(seconds, cancelled), progress)

    def prune(self, gone: Sequence[Path] = ()) -> int:
        """Forget the directories `gone` and all directories that no longer exist; return the number of bytes
        freed.

        Indexes that are being filled are skipped.
        """
        return prune_directory(self._directory, self._builder.analysis_version, gone)

    @contextmanager
    def _open(
        self, place: CodePlace, patience: IndexDeadline, progress: IndexProgress | None
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
    """Prune all indexes in a directory and return the bytes freed."""
    before = _bytes_in(directory)
    for path in sorted(directory.glob("*.db")):
        with suppress(OSError):
            _prune(path, version, gone)
    return max(0, before - _bytes_in(directory))


def _prune(path: Path, version: int, gone: Sequence[Path]) -> None:
    home = _home_of(path)
    file = IndexFile(path, version, home or path)
    with build_turn(file.lock, IndexDeadline.of(0.0, None), lambda: True) as ours:
        if not ours:
            return
        if home is None or not home.exists() or home in gone:
            file.remove()
            # Last: a process that waits for the lock gets a file that no other process uses, and creates a
            # new index.
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
    """Return the repository that an index belongs to; None if the index does not record it."""
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
        with suppress(OSError):  # guard: logs vanish when the last connection closes
            total += path.stat().st_size
    return total


def sandbox_view(ground: ResolvedPlace, stamps: FileStamps, most_files: int) -> IndexView:
    """Return the files of a sandbox that are tracked or not ignored, in their current state.

    Raises `SourceMissing`.
    """
    tree = open_tree(ground.root.parent)
    index = tree.place.index
    try:
        written_ns = index.stat().st_mtime_ns
        found, known = tree.survey(index, never_entered=NEVER_SOUGHT)
    except (SandboxRefused, OSError) as error:
        raise SourceMissing(str(ground.root), str(error)) from error
    entries: list[FileEntry] = []
    unreadable: list[str] = []
    for path, status in found.files.items():
        try:
            path.encode("utf-8")
        except UnicodeEncodeError:
            unreadable.append(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
            continue
        tracked = known.get(path)
        if tracked is not None and is_unchanged(tracked, status, written_ns):
            if tracked.mode != SYMLINK:
                entries.append(FileEntry(path, bytes.fromhex(tracked.name), status.st_size, False))
            continue
        with suppress(OSError):
            entry = stamps.entry(path, status)
            if entry is not None:
                entries.append(entry)
    return view_of(entries, unreadable, most_files, stamps)
