"""Filling of the index, batch by batch. A committed batch survives every later failure.

Segments of similar size are merged, so that there are few of them and each posting is moved only a few times.
A view is the set of files of a place when the place was last read. Contents that are in no recent view are
dropped, to limit the size. Only the holder of the index's lock may drop contents. An open snapshot still sees
dropped contents; a snapshot that is being opened is read again.

One process at a time fills the index of a repository; the kernel releases its lock when it dies. The holder
writes its process id into the lock file. A suspended process keeps the lock without making progress, so
waiting processes check whether the index grows and stop waiting if it does not.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.context.code_index import IndexProgress
from cleveragents.context.index.build.batch import AnalysisRequest, IndexBatch, analysis_named, filled
from cleveragents.context.index.build.segment import (
    SegmentInfo,
    TermNumbers,
    add_contents,
    add_segment,
    array_of,
    catalogue,
    merged,
    read_segment,
    remove_segments,
    unsealed,
)
from cleveragents.context.index.build.worker_pool import WorkerPool, WorkerPoolUnusable, process_count
from cleveragents.context.index.index_file import transaction
from cleveragents.context.index.place import IndexDeadline, ResolvedPlace, git_seconds
from cleveragents.context.index.view import MOST_BYTES, FileEntry, left_out
from cleveragents.core.errors import GitFailed
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.git.plumbing import run_git

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "LARGEST",
    "STALLED_SECONDS",
    "BuildTurn",
    "IndexBuild",
    "IndexBuilder",
    "build_turn",
    "compact",
    "drop_unused",
    "forget_places",
    "forget_views",
    "is_mostly_unused",
    "merge",
]


_BATCH_BYTES = 4 << 20
_SMALL_BATCH_FILES = 32

LARGEST = 8_000_000
"""Maximum number of postings of a segment, because segments are merged in memory."""
_FAN_IN = 8
_SMALLEST = 1 << 15
_WORTH_IT = 1_000

STALLED_SECONDS = 10.0
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class IndexBuilder:
    """The settings of a build.

    `analyse` is the name of the function that analyses files, which worker processes import; `version`
    changes whenever the results of that function change. More than `alone` contents are distributed to
    `workers` processes (by default, one per processor), `batch_files` at a time. While another process builds
    the index, this process waits, as long as the other process makes progress at least every
    `stalled_seconds`.
    """

    analyse: str = "cleveragents.context.analysis:analyse"
    version: int | None = None
    workers: int = 0
    alone: int = 150
    batch_files: int = 256
    stalled_seconds: float = STALLED_SECONDS
    faults: FaultPoints = field(default_factory=NoFaults)

    @property
    def analysis_version(self) -> int:
        from cleveragents.context.analysis import ANALYSIS_VERSION

        return ANALYSIS_VERSION if self.version is None else self.version


@dataclass
class IndexBuild:
    """One build of the index, by the holder of its lock. Not thread-safe."""

    builder: IndexBuilder
    ground: ResolvedPlace
    connection: sqlite3.Connection
    patience: IndexDeadline
    progress: IndexProgress | None = None
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    room: Callable[[], bool] = lambda: True
    full: bool = False

    def fill(self, entries: Sequence[FileEntry], total: int) -> None:
        """Index these contents. The others of the `total` contents are already indexed. Raises `Cancelled`
        and the errors of SQLite.
        """
        done = total - len(entries)
        self._tell(done, total)
        # Closed explicitly: an error would keep the generator, and its processes, alive.
        with closing(self._batches(self._sized(entries))) as batches:
            for batch in batches:
                self._keep(batch)
                done += len(batch.digests) + len(batch.changed) + len(batch.missing)
                self._tell(done, total)
                compact(self.connection, self.patience, self.builder.faults, wholly=False)
                if not self.room():
                    self.full = True
                    return
        # A full merge is worth its cost only if most of the index is new.
        if self.builder.alone < len(entries) and total <= 2 * len(entries):
            compact(self.connection, self.patience, self.builder.faults, wholly=True)

    @property
    def notes(self) -> list[str]:
        """Notes on contents that could not be indexed."""
        return [
            *(["not all files are indexed: the index has reached its maximum size"] if self.full else []),
            *left_out(self.changed, "because they changed while they were read"),
            *left_out(self.missing, "because the repository does not have their contents"),
        ]

    def _batches(self, entries: Sequence[FileEntry]) -> Generator[IndexBatch, None, None]:
        if len(entries) <= self.builder.alone:
            yield from self._alone(self._orders(entries, _SMALL_BATCH_FILES))
            return
        orders = list(self._orders(entries, self.builder.batch_files))
        with (
            suppress(WorkerPoolUnusable),
            WorkerPool(self.builder.analyse, self.builder.workers or process_count()) as pool,
        ):
            yield from pool.batches(orders, self.patience)
            return
        # Processes cannot be used here: this one indexes the rest.
        yield from self._alone(self._orders(self._unkept(entries), _SMALL_BATCH_FILES))

    def _alone(self, orders: Iterator[AnalysisRequest]) -> Iterator[IndexBatch]:
        analyse = analysis_named(self.builder.analyse)
        numbers = TermNumbers()
        for order in orders:
            if self.patience.is_over:
                return
            yield filled(order, analyse, numbers, lambda: self.patience.is_over)

    def _unkept(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        kept = {bytes(row[0]) for row in self.connection.execute("SELECT digest FROM content")}
        return [entry for entry in entries if entry.digest not in kept]

    def _orders(self, entries: Sequence[FileEntry], most: int) -> Iterator[AnalysisRequest]:
        chosen: list[FileEntry] = []
        size = 0
        for entry in entries:
            if chosen and (len(chosen) == most or size + entry.size > _BATCH_BYTES):
                yield AnalysisRequest(self.ground.root, chosen, self.ground.place.git_dir)
                chosen, size = [], 0
            chosen.append(entry)
            size += entry.size if entry.size <= MOST_BYTES else 0
        if chosen:
            yield AnalysisRequest(self.ground.root, chosen, self.ground.place.git_dir)

    def _keep(self, batch: IndexBatch) -> None:
        self.changed += batch.changed
        self.missing += batch.missing
        if not batch.digests:
            return
        self.builder.faults.reach("index.batch.before_commit")
        # On a file system without locks, another process may have added them; the result is the same.
        with suppress(sqlite3.IntegrityError), transaction(self.connection):
            add_contents(self.connection, batch.segment, batch.digests, batch.analyses)
            self.builder.faults.reach("index.batch.in_transaction")
        self.builder.faults.reach("index.batch.after_commit")

    def _sized(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Return the entries with their sizes. Sizes that only git knows are missing if git does not
        answer.
        """
        unsized = [entry for entry in entries if not entry.on_disk and not entry.size]
        if not unsized:
            return list(entries)
        feed = b"".join(entry.digest.hex().encode("ascii") + b"\n" for entry in unsized)
        try:
            told = run_git(
                "cat-file",
                "--batch-check=%(objectname) %(objectsize)",
                environment=self.ground.git.environment,
                directory=self.ground.git.directory,
                feed=feed,
                seconds_left=git_seconds(self.patience),
            )
        except GitFailed:
            self.missing += [entry.path for entry in unsized]
            return [entry for entry in entries if entry.on_disk or entry.size]
        sizes = {}
        for line in os.fsdecode(told).splitlines():
            name, _, size = line.partition(" ")
            sizes[name] = int(size) if size.isdigit() else 0
        return [entry._replace(size=entry.size or sizes.get(entry.digest.hex(), 0)) for entry in entries]

    def _tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def compact(
    connection: sqlite3.Connection, patience: IndexDeadline, faults: FaultPoints, *, wholly: bool
) -> None:
    """Merge segments where it is worthwhile, or all with `wholly`, until the time is over."""
    while not patience.is_over:
        segments = [one for one in catalogue(connection) if one.postings < LARGEST // 2]
        group = _within(segments) if wholly else _next_group(segments)
        if len(group) < 2:
            return
        merge(connection, group, faults)


def merge(connection: sqlite3.Connection, group: Sequence[SegmentInfo], faults: FaultPoints) -> None:
    """Replace these segments by a single one."""
    import numpy as np

    whole = merged([(read_segment(connection, one), np.ones(len(one.head.sizes), np.bool_)) for one in group])
    with transaction(connection):
        add_segment(connection, whole)
        faults.reach("index.merge.in_transaction")
        remove_segments(connection, [one.number for one in group])


def _next_group(segments: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    tiers: dict[int, list[SegmentInfo]] = defaultdict(list)
    for one in segments:
        tiers[(max(one.postings, 1) // _SMALLEST).bit_length() // 3].append(one)
    full = [tier for tier in tiers.values() if len(tier) >= _FAN_IN]
    return _within(full[0]) if full else []


def _within(segments: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    """Return as many of the smallest segments as can be merged without exceeding the maximum size."""
    chosen: list[SegmentInfo] = []
    total = 0
    for one in sorted(segments, key=lambda one: one.postings):
        total += one.postings
        if total > LARGEST and len(chosen) > 1:
            break
        chosen.append(one)
    return chosen


def is_mostly_unused(connection: sqlite3.Connection, in_use: NDArray[np.int64]) -> bool:
    """Return whether there are many contents and most of them are in no view. `in_use` are contents that
    count as a view.
    """
    total = int(connection.execute("SELECT count(*) FROM content").fetchone()[0])
    return total >= _WORTH_IT and len(_used(connection, in_use)) * 2 < total


def drop_unused(connection: sqlite3.Connection, in_use: NDArray[np.int64]) -> None:
    """Drop the contents that are in no view, and free their space."""
    import numpy as np

    used = _used(connection, in_use)
    for segment in catalogue(connection):
        kept = np.isin(segment.head.rows, used)
        if not kept.all():
            _thin_out(connection, segment, kept)
    connection.execute("PRAGMA incremental_vacuum").fetchall()
    # Passive: a snapshot may stay open for long.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def forget_places(connection: sqlite3.Connection, gone: Iterable[Path]) -> int:
    """Forget the views of these directories and everything below them, and of all directories that no longer
    exist.
    """
    named = [os.fsencode(path) for path in gone]
    places = [
        (place,)
        for place, root in connection.execute("SELECT place, root FROM view").fetchall()
        if not Path(os.fsdecode(root)).is_dir()
        or any(root == one or root.startswith(one + b"/") for one in named)
    ]
    with transaction(connection):
        connection.executemany("DELETE FROM view WHERE place = ?", places)
        connection.execute("DELETE FROM known_file WHERE place NOT IN (SELECT place FROM view)")
    return len(places)


def forget_views(connection: sqlite3.Connection, here: bytes) -> None:
    """Forget all views. Views that are still in use are stored again when they are next read.

    Also forget the known files of all places except `here`, the current place.
    """
    with transaction(connection):
        connection.execute("DELETE FROM view")
        connection.execute("DELETE FROM known_file WHERE place <> ?", (here,))


def _used(connection: sqlite3.Connection, in_use: NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    views = [
        array_of(unsealed(rows), "<i8") for (rows,) in connection.execute("SELECT rows FROM view").fetchall()
    ]
    found: NDArray[np.int64] = np.unique(np.concatenate([in_use, *views]))
    return found[found > 0]


def _thin_out(connection: sqlite3.Connection, segment: SegmentInfo, kept: NDArray[np.bool_]) -> None:
    rest = merged([(read_segment(connection, segment), kept)]) if kept.any() else None
    with transaction(connection):
        if rest is not None:
            add_segment(connection, rest)
        remove_segments(connection, [segment.number])
        connection.executemany(
            "DELETE FROM content WHERE row = ?", ((row,) for row in segment.head.rows[~kept].tolist())
        )


@dataclass(frozen=True, slots=True)
class BuildTurn:
    """Whether this process may fill the index. If not, also the id of the process that fills it, if known,
    and whether that process is `stalled`.
    """

    ours: bool
    pid: int | None = None
    stalled: bool = False

    @property
    def who(self) -> str:
        """A description of the other process."""
        return "another process" if self.pid is None else f"another process (pid {self.pid})"

    def __bool__(self) -> bool:
        return self.ours


@contextmanager
def build_turn(
    path: Path,
    patience: IndexDeadline,
    needless: Callable[[], bool],
    *,
    grown: Callable[[], int] = int,
    stalled_seconds: float = STALLED_SECONDS,
) -> Iterator[BuildTurn]:
    """Try to become the process that fills the index.

    If another process fills it, wait until that process is done, the time is over, `needless` returns True
    because nothing is left to fill, or the result of `grown` has not changed for `stalled_seconds`. Raises
    `Cancelled` and `OSError`.
    """
    looked = moved = time.monotonic()
    held = _try(path)
    size = grown() if held is None else 0
    stalled = False
    try:
        while held is None and not stalled and not patience.is_over:
            now = time.monotonic()
            if now - looked >= _LOOK_SECONDS:
                looked = now
                if needless():
                    break
                before, size = size, grown()
                moved = moved if size == before else now
                stalled = now - moved >= stalled_seconds
            time.sleep(patience.seconds(_POLL_SECONDS))
            held = _try(path)
        yield BuildTurn(True) if held is not None else BuildTurn(False, _holder(path), stalled)
    finally:
        if held is not None:
            _say(held, b"")
            os.close(held)


def _holder(path: Path) -> int | None:
    try:
        words = path.read_bytes()[:20].strip()
    except OSError:
        words = b""
    return int(words) if words.isdigit() else None


def _try(path: Path) -> int | None:
    """Return a descriptor that holds the lock; None if another process has it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    held = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # guard: no other process uses a file that was removed meanwhile
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            held = True
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        if not held:
            os.close(descriptor)
    if not held:
        return None
    _say(descriptor, b"%d\n" % os.getpid())
    return descriptor


def _say(descriptor: int, words: bytes) -> None:
    # On a full disk the id is not written, but the lock holds.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, words, 0)
