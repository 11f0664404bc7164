"""Recording changes on SQLite, compared with one transaction per record with the same durability.

The floor is direct SQL: pysqlite, WAL, one IMMEDIATE transaction for each record (look up, number, insert,
commit), and one connection behind a lock. Both guarantee that an acknowledged record survives kill -9, and
with `full` a power cut.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.ratio import ratio
from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import open_database
from cleveragents.testing.changeset_store import InMemoryChangesetStore

__all__ = ["RecordChange", "RecordChangeInMemory"]

ENTRY = ChangeEntry(ChangeKind.MODIFY, "src/module.py", "a" * 64, "b" * 64, tool_call_id="call-1")
BATCH = 32
COLUMNS = ("kind", "path", "before_hash", "after_hash", "tool_call_id")


class OneTransactionPerRecord:
    """The floor."""

    def __init__(self, path: Path, durability: str) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {durability}")

    def record(self, changeset_id: str, entry: ChangeEntry) -> int:
        return self.record_all([changeset_id], entry)[0]

    def record_all(self, changeset_ids: Sequence[str], entry: ChangeEntry) -> list[int]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            sequences = [self._append(changeset_id, entry) for changeset_id in changeset_ids]
            self._connection.execute("COMMIT")
        return sequences

    def _append(self, changeset_id: str, entry: ChangeEntry) -> int:
        execute = self._connection.execute
        ((closed, length),) = execute(
            "SELECT closed, (SELECT max(sequence) FROM change_entries WHERE changeset_id = id)"
            " FROM changesets WHERE id = ?",
            (changeset_id,),
        ).fetchall()
        assert not closed
        sequence = (length or 0) + 1
        execute(
            "INSERT INTO change_entries (changeset_id, sequence, kind, path, before_hash, after_hash,"
            " tool_call_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (changeset_id, sequence, *(getattr(entry, name) for name in COLUMNS)),
        )
        return int(sequence)

    def close(self) -> None:
        self._connection.close()


def at_once(threads: int, work: Callable[[int], object]) -> None:
    """Call `work(n)` on each of several threads and wait for them."""
    running = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


class RecordChange:
    """`record_change` with 1 and 8 threads, each in its own changeset; below 1 is faster than the floor."""

    params = ([1, 8], ["NORMAL", "FULL"])
    param_names = ("threads", "durability")
    timeout = 300
    records = 960

    def setup(self, threads: int, durability: str) -> None:
        self._folder = TemporaryDirectory()
        path = Path(self._folder.name) / "store.db"
        self._database = open_database(f"sqlite:///{path}", durability=durability.lower())
        self._context = PlanExecutionContext("plan", SqlChangesetStore(self._database, UlidSource()))
        self._handles = [self._context.start_changeset() for _ in range(threads)]
        self._floor = OneTransactionPerRecord(path, durability)

    def teardown(self, threads: int, durability: str) -> None:
        self._floor.close()
        self._database.close()
        self._folder.cleanup()

    def track_record_change_ratio(self, threads: int, durability: str) -> float:
        """Compared with direct pysqlite."""
        return self._beside(threads, self._floor.record)

    track_record_change_ratio.unit = "ratio"

    def track_shared_commit_ratio(self, threads: int, durability: str) -> float:
        """Compared with the same store, one record at a time: the gain of shared commits."""
        alone = threading.Lock()

        def record(handle: str, entry: ChangeEntry) -> None:
            with alone:
                self._context.record_change(entry, handle)

        return self._beside(threads, record)

    track_shared_commit_ratio.unit = "ratio"

    def track_perfect_sharing_ratio(self, threads: int, durability: str) -> float:
        """The floor of sharing: one thread writes as many records as there are threads, in
        one transaction.
        """
        rounds = range(self.records // threads)

        def share() -> None:
            for _ in rounds:
                self._floor.record_all(self._handles, ENTRY)

        def below() -> None:
            for _ in rounds:
                for handle in self._handles:
                    self._floor.record(handle, ENTRY)

        return ratio(share, below, rounds=5)

    track_perfect_sharing_ratio.unit = "ratio"

    def track_record_changes_ratio(self, threads: int, durability: str) -> float:
        """The changes of a command, 32 files at a time, compared with direct pysqlite."""
        each = range(self.records // threads)

        def ours(number: int) -> None:
            for _ in range(len(each) // BATCH):
                self._context.record_changes([ENTRY] * BATCH, self._handles[number])

        def below(number: int) -> None:
            for _ in range(len(each) // BATCH * BATCH):
                self._floor.record(self._handles[number], ENTRY)

        return ratio(lambda: at_once(threads, ours), lambda: at_once(threads, below))

    track_record_changes_ratio.unit = "ratio"

    def _beside(self, threads: int, floor: Callable[[str, ChangeEntry], object]) -> float:
        each = range(self.records // threads)

        def ours(number: int) -> None:
            for _ in each:
                self._context.record_change(ENTRY, self._handles[number])

        def below(number: int) -> None:
            for _ in each:
                floor(self._handles[number], ENTRY)

        return ratio(lambda: at_once(threads, ours), lambda: at_once(threads, below), rounds=5)


class RecordChangeInMemory:
    """The cost of finding the changeset in the context, compared with calling the store with its id."""

    records = 500

    def setup(self) -> None:
        self._store = InMemoryChangesetStore()
        self._context = PlanExecutionContext("plan", self._store)

    def track_addressing_ratio(self) -> float:
        handle = self._context.start_changeset()
        context, store = self._context, self._store
        return ratio(
            lambda: [context.record_change(ENTRY) for _ in range(self.records)],
            lambda: [store.record(handle, ENTRY) for _ in range(self.records)],
        )

    track_addressing_ratio.unit = "ratio"
