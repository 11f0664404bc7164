"""Fills the index with the contents that it lacks, batch by batch: what is committed stays, whatever happens
after it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from cleveragents.context.code_index import IndexProgress
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.errors import GitFailed
from cleveragents.context.index.build.batch import Batch, Order, analysis_named, filled
from cleveragents.context.index.build.build_lock import STALLED_SECONDS
from cleveragents.context.index.build.compaction import compact
from cleveragents.context.index.build.crew import Crew, CrewUnusable, crew_size
from cleveragents.context.index.git_time import git_seconds
from cleveragents.context.index.index_file import transaction
from cleveragents.context.index.patience import Patience
from cleveragents.context.index.place import Ground
from cleveragents.context.index.build.segment import TermNumbers
from cleveragents.context.index.build.segment_rows import add_contents
from cleveragents.context.index.view import MOST_BYTES, Entry, left_out
from cleveragents.git.plumbing import run_git

__all__ = ["Builder", "Building"]

_BATCH_BYTES = 4 << 20
_SMALL_BATCH_FILES = 32


@dataclass(frozen=True, slots=True)
class Builder:
    """How to build. `analyse` names the function that looks into files, so that other processes find it, too;
    `version` changes with what it finds. More than `alone` contents are given to as many processes as there
    are `workers`, or processors, `batch_files` at a time. Another process that builds is waited for as long
    as it gets on, with breaks of less than `stalled_seconds`."""

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
class Building:
    """One filling of the index, by the one who holds its lock. Not thread-safe."""

    builder: Builder
    ground: Ground
    connection: sqlite3.Connection
    patience: Patience
    progress: IndexProgress | None = None
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    room: Callable[[], bool] = lambda: True
    full: bool = False

    def fill(self, entries: Sequence[Entry], total: int) -> None:
        """Indexes these contents, of `total` that are wanted. `Cancelled`, and what SQLite raises."""
        done = total - len(entries)
        self._tell(done, total)
        # Closed here and not when it is forgotten: an error would keep it, and its processes, alive.
        with closing(self._batches(self._sized(entries))) as batches:
            for batch in batches:
                self._keep(batch)
                done += len(batch.digests) + len(batch.changed) + len(batch.missing)
                self._tell(done, total)
                compact(self.connection, self.patience, self.builder.faults, wholly=False)
                if not self.room():
                    self.full = True
                    return
        # Merging all costs as much as all is worth: only if most of it is new.
        if self.builder.alone < len(entries) and total <= 2 * len(entries):
            compact(self.connection, self.patience, self.builder.faults, wholly=True)

    @property
    def notes(self) -> list[str]:
        """What could not be indexed."""
        return [
            *(["not all files are indexed: the index has reached its bound"] if self.full else []),
            *left_out(self.changed, "because they changed while they were read"),
            *left_out(self.missing, "because the repository does not have their contents"),
        ]

    def _batches(self, entries: Sequence[Entry]) -> Generator[Batch, None, None]:
        if len(entries) <= self.builder.alone:
            yield from self._alone(self._orders(entries, _SMALL_BATCH_FILES))
            return
        orders = list(self._orders(entries, self.builder.batch_files))
        with suppress(CrewUnusable), Crew(self.builder.analyse, self.builder.workers or crew_size()) as crew:
            yield from crew.batches(orders, self.patience)
            return
        # No processes here: those that are left are done by ourselves.
        yield from self._alone(self._orders(self._unkept(entries), _SMALL_BATCH_FILES))

    def _alone(self, orders: Iterator[Order]) -> Iterator[Batch]:
        analyse = analysis_named(self.builder.analyse)
        numbers = TermNumbers()
        for order in orders:
            if self.patience.is_over:
                return
            yield filled(order, analyse, numbers, lambda: self.patience.is_over)

    def _unkept(self, entries: Sequence[Entry]) -> list[Entry]:
        kept = {bytes(row[0]) for row in self.connection.execute("SELECT digest FROM content")}
        return [entry for entry in entries if entry.digest not in kept]

    def _orders(self, entries: Sequence[Entry], most: int) -> Iterator[Order]:
        chosen: list[Entry] = []
        size = 0
        for entry in entries:
            if chosen and (len(chosen) == most or size + entry.size > _BATCH_BYTES):
                yield Order(self.ground.root, chosen, self.ground.place.git_dir)
                chosen, size = [], 0
            chosen.append(entry)
            size += entry.size if entry.size <= MOST_BYTES else 0
        if chosen:
            yield Order(self.ground.root, chosen, self.ground.place.git_dir)

    def _keep(self, batch: Batch) -> None:
        self.changed += batch.changed
        self.missing += batch.missing
        if not batch.digests:
            return
        self.builder.faults.reach("index.batch.before_commit")
        # Somebody may have added them without holding the lock, where a file system has none: all the same.
        with suppress(sqlite3.IntegrityError), transaction(self.connection):
            add_contents(self.connection, batch.segment, batch.digests, batch.analyses)
            self.builder.faults.reach("index.batch.in_transaction")
        self.builder.faults.reach("index.batch.after_commit")

    def _sized(self, entries: Sequence[Entry]) -> list[Entry]:
        """With the sizes of those that only git knows; without them if it does not say."""
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
