"""An index that is damaged, locked, full, outdated or read-only: the answer still comes."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.build.batch import AnalysisRequest, filled
from cleveragents.context.index.build.segment import TermNumbers
from cleveragents.context.index.index_file import IndexFile
from cleveragents.context.index.sqlite_code_index import Bounds
from cleveragents.context.index.view import FileEntry, blob_digest
from cleveragents.context.model.code import Field
from cleveragents.core.errors import Cancelled, Closed
from cleveragents.testing.clock import RaiseAt
from tests.index_bench import COUNTED, Bench, Tree, analyse, found_in
from tests.processes import children


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv(COUNTED, str(made.counts))
    return made


@pytest.fixture
def tree(bench: Bench) -> Tree:
    found = bench.repository().write({f"m{n}.py": f"def name{n}\ncommon word{n}\n" for n in range(40)})
    found.commit()
    bench.paths(found)
    bench.analysed()
    return found


def answers(bench: Bench, tree: Tree) -> tuple[str, ...]:
    """Return the notes of a snapshot with correct answers."""
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete
        assert len(found_in(snapshot, "common")) == 40
        assert found_in(snapshot, "name7", Field.NAME) == {"m7.py": [(1, 1)]}
        return snapshot.status.notes


def settle(bench: Bench) -> bytes:
    """Return the complete file, as it is after the last connection has closed."""
    with closing(sqlite3.connect(bench.file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return bench.file.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:8192],
        lambda data: data[: len(data) // 2],
        lambda data: os.urandom(len(data)),
        lambda data: data[:100] + os.urandom(len(data) - 100),
        lambda data: data[:16384] + os.urandom(len(data) - 16384),
        lambda data: b"not a database",
    ],
    ids=["empty", "header", "page", "half", "noise", "noise after header", "noise after two pages", "text"],
)
def test_a_damaged_index_is_rebuilt_and_noted(
    bench: Bench, tree: Tree, damage: Callable[[bytes], bytes]
) -> None:
    bench.file.write_bytes(damage(settle(bench)))
    (note,) = answers(bench, tree)
    assert note.startswith("the index was rebuilt: it was ")
    assert len(bench.analysed()) == 40
    assert answers(bench, tree) == ()
    assert bench.analysed() == []


def test_damage_found_during_a_query_ends_the_snapshot_and_rebuilds_the_index(
    bench: Bench, tree: Tree
) -> None:
    for table in ("block", "dictionary", "content"):
        bench.paths(tree)
        with closing(sqlite3.connect(bench.file)) as connection, connection:
            column = "analysis" if table == "content" else "data"
            connection.execute(f"UPDATE {table} SET {column} = substr({column}, 2)")
        with bench.open(tree) as snapshot:
            with pytest.raises(Closed, match="damaged"):
                if table == "content":
                    snapshot.analyses([0])
                else:
                    snapshot.postings(Field.BODY, ["common"])
            assert len(snapshot.files) == 40
        assert answers(bench, tree) == ()
        assert len(bench.analysed()) == 40


def test_damage_to_what_is_read_first_is_noticed_at_once(bench: Bench, tree: Tree) -> None:
    with closing(sqlite3.connect(bench.file)) as connection, connection:
        connection.execute("UPDATE segment SET catalogue = substr(catalogue, 2)")
    (note,) = answers(bench, tree)
    assert note == "the index was rebuilt: it was damaged (a part of it has changed)"
    assert len(bench.analysed()) == 40
    with closing(sqlite3.connect(bench.file)) as connection, connection:
        connection.execute("DROP TABLE block")
    with bench.open(tree) as snapshot, pytest.raises(Closed):
        snapshot.postings(Field.BODY, ["common"])
    assert answers(bench, tree) == ()


def test_an_index_of_another_version_is_rebuilt(bench: Bench, tree: Tree) -> None:
    with bench.index(version=2).open(CodePlace(tree.root)) as snapshot:
        assert snapshot.status.notes == ("the index was rebuilt: it was from another version",)
    assert len(bench.analysed()) == 40


def test_an_index_that_cannot_be_written_is_used_from_memory(bench: Bench, tree: Tree) -> None:
    """Permissions do not stop root, so a file takes the place of the directory."""
    elsewhere = bench.directory / "file"
    elsewhere.write_text("")
    blocked = Bench(bench.directory, {})
    blocked_index = blocked.index()
    object.__setattr__(blocked_index, "_directory", elsewhere / "state" / "indexes")
    with blocked_index.open(CodePlace(tree.root)) as snapshot:
        (note,) = snapshot.status.notes
        assert note == "the index is not stored: Not a directory"
        assert len(found_in(snapshot, "common")) == 40
    assert len(bench.analysed()) == 40


class _Full(sqlite3.OperationalError):
    sqlite_errorcode = sqlite3.SQLITE_FULL


def test_a_full_disk_leaves_the_stored_index_usable(bench: Bench, tree: Tree) -> None:
    settle(bench)
    tree.write({"new.py": "common news"})
    faults = RaiseAt("index.batch.in_transaction", lambda: _Full("database or disk is full"))
    with bench.index(faults=faults).open(CodePlace(tree.root)) as snapshot:
        assert snapshot.status.complete
        assert snapshot.status.notes == ("the index is not stored: database or disk is full",)
        assert len(found_in(snapshot, "common")) == 41
    assert bench.analysed() == ["new.py", "new.py"]
    with bench.open(tree) as snapshot:
        assert snapshot.status.notes == ()
    assert bench.analysed() == ["new.py"]


def test_a_permanently_full_disk_is_an_error(bench: Bench, tree: Tree) -> None:
    class Always:
        def reach(self, name: str) -> None:
            if name == "index.batch.in_transaction":
                raise _Full("database or disk is full")

    tree.write({"new.py": "news"})
    with pytest.raises(_Full), bench.index(faults=Always()).open(CodePlace(tree.root)):
        pass


def test_an_inaccessible_index_starts_empty_in_memory(bench: Bench, tree: Tree) -> None:
    file = IndexFile(bench.file, 1, tree.root, busy_seconds=0.0)
    with held(bench.file.with_suffix(".door")), closing(file.open()) as opened:
        assert not opened.kept
        assert opened.connection.execute("SELECT count(*) FROM content").fetchone()[0] == 40
    other = IndexFile(bench.file, 2, tree.root)
    data = settle(bench)
    for content in (data, b"nothing that SQLite wrote", data[:8192]):
        bench.file.write_bytes(content)
        with closing(other.in_memory("why")) as opened:
            assert opened.notes == ["why"]
            assert opened.connection.execute("SELECT count(*) FROM content").fetchone()[0] == 0
    bench.file.unlink()
    with closing(other.in_memory("why")) as opened:
        assert not opened.kept


def test_contents_of_a_repository_that_is_gone_are_missing(bench: Bench) -> None:
    entry = FileEntry("a.py", blob_digest(b"alpha"), 5, False)
    for place in (bench.directory, bench.directory / "gone"):
        batch = filled(AnalysisRequest(place, [entry]), analyse, TermNumbers())
        assert (batch.missing, batch.digests) == (["a.py"], [])


def test_another_error_of_sqlite_is_not_hidden(bench: Bench, tree: Tree) -> None:
    tree.write({"new.py": "news"})
    faults = RaiseAt("index.batch.in_transaction", lambda: sqlite3.ProgrammingError("a mistake of ours"))
    with pytest.raises(sqlite3.ProgrammingError), bench.index(faults=faults).open(CodePlace(tree.root)):
        pass


def test_a_locked_index_is_replaced_by_one_in_memory(bench: Bench, tree: Tree) -> None:
    settle(bench)
    with closing(sqlite3.connect(bench.file, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("INSERT INTO fact VALUES ('a', 'b')")
        file = IndexFile(bench.file, 1, tree.root, busy_seconds=0.05)
        opened = file.open()
        with closing(opened):
            assert opened.notes == ["the index is not stored: database is locked"]
            assert not opened.kept
            assert opened.connection.execute("SELECT count(*) FROM content").fetchone()[0] == 40


@contextmanager
def written_to(bench: Bench) -> Iterator[None]:
    """Another connection writes to the index for the duration of the block."""
    with closing(sqlite3.connect(bench.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def test_a_complete_index_is_used_while_another_process_writes(bench: Bench, tree: Tree) -> None:
    with written_to(bench), ExitStack() as stack, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(lambda: stack.enter_context(bench.open(tree, "HEAD", seconds=60.0)))
        # A caller that waits until the new view can be stored would wait longer than that.
        snapshot = asked.result(timeout=25)
        assert snapshot.status.complete
        assert snapshot.status.notes == ()
        assert len(found_in(snapshot, "common")) == 40


def test_an_index_locked_by_a_writer_is_used_in_its_current_state(bench: Bench, tree: Tree) -> None:
    tree.write({"new.py": "common news"})
    with written_to(bench), ExitStack() as stack, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(lambda: stack.enter_context(bench.open(tree, seconds=0.5)))
        snapshot = asked.result(timeout=25)
        assert snapshot.status.notes == ("out of time: 40 of 41 files are indexed",)
        assert len(found_in(snapshot, "common")) == 40
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete


@contextmanager
def held(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_during_a_build_the_existing_index_is_used_after_the_deadline(bench: Bench, tree: Tree) -> None:
    tree.write({"new.py": "news"})
    told: list[tuple[int, int]] = []
    with held(bench.file.with_suffix(".build")):
        with bench.open(tree, seconds=0.5, progress=lambda *now: told.append(now)) as snapshot:
            assert (snapshot.status.files, snapshot.status.indexed) == (41, 40)
            assert snapshot.status.notes == ("out of time: 40 of 41 files are indexed",)
            assert found_in(snapshot, "news") == {}
            assert snapshot.text("new.py") == "news"
            document = next(file.document for file in snapshot.files if file.path == "new.py")
            assert snapshot.chunks.first_chunk[document] == snapshot.chunks.first_chunk[document + 1]
            assert snapshot.analyses([document]) == {}
        assert set(told) == {(40, 41)}
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete


def test_a_waiting_process_continues_when_the_work_is_done(bench: Bench, tree: Tree) -> None:
    """The other process keeps the lock, as if it had much more to do; its work is done here under another
    lock.
    """
    tree.write({"new.py": "news"})
    lock = bench.file.with_suffix(".build")
    aside = lock.with_suffix(".aside")
    with held(lock):
        done: list[bool] = []

        def progress(now: int, total: int) -> None:
            if not done:
                done.append(True)
                lock.rename(aside)
                bench.paths(tree)
                aside.rename(lock)

        with bench.open(tree, progress=progress) as snapshot:
            assert snapshot.status.complete
    assert bench.analysed() == ["new.py"]


def test_opening_ends_when_it_is_cancelled(bench: Bench, tree: Tree) -> None:
    class Signal:
        is_cancelled = False

    signal = Signal()

    def progress(done: int, total: int) -> None:
        signal.is_cancelled = done > 100

    tree.write({f"n{n}.py": f"more {n}" for n in range(100)})
    with pytest.raises(Cancelled), bench.open(tree, progress=progress, cancelled=signal):
        pass
    kept = len(bench.analysed())
    assert 0 < kept < 100
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete
    assert len(bench.analysed()) == 100 - kept


def test_work_done_before_the_deadline_is_kept(bench: Bench, tree: Tree) -> None:
    tree.write({f"n{n}.py": f"more {n}" for n in range(100)})
    with bench.open(tree, seconds=0.0) as snapshot:
        assert (snapshot.status.files, snapshot.status.indexed) == (140, 40)
    assert bench.analysed() == []


def test_with_little_time_no_processes_are_started(bench: Bench, tree: Tree) -> None:
    tree.write({f"n{n}.py": f"more {n}" for n in range(300)})
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(len(children()))

    index = bench.index(batch_files=4)
    with index.open(CodePlace(tree.root), seconds=2.5, progress=progress):
        assert set(seen) == {0}
    tree.write({f"m{n}.py": f"even more {n}" for n in range(300)})
    with index.open(CodePlace(tree.root), seconds=600.0, progress=progress):
        assert set(seen) > {0}


def test_a_file_that_breaks_the_analysis_is_left_out_alone(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "bad.py": "RAISE"})
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete
        document = snapshot.files[1].document
        assert snapshot.analyses([document])[document].opaque == "its analysis failed: ValueError"
        assert found_in(snapshot, "alpha") == {"a.py": [(1, 1)]}


def test_a_file_that_changes_while_it_is_read_is_left_out_with_a_note(bench: Bench) -> None:
    tree = bench.directory_tree().write({f"{n}.py": f"word{n}" for n in range(3)})

    def progress(done: int, total: int) -> None:
        tree.write({"1.py": "other"})
        (tree.root / "2.py").unlink(missing_ok=True)

    with bench.open(tree, progress=progress) as snapshot:
        assert (snapshot.status.files, snapshot.status.indexed) == (3, 1)
        assert snapshot.status.notes == ("2 left out, because they changed while they were read: 1.py, 2.py",)
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete


def test_a_full_index_takes_no_more_and_drops_unused_contents(bench: Bench) -> None:
    tree = bench.repository().write({f"{n}.py": f"word{n} " * 50 for n in range(100)})
    with bench.index(bounds=Bounds(bytes=1)).open(CodePlace(tree.root)) as snapshot:
        assert 0 < snapshot.status.indexed < 100
        assert snapshot.status.notes == ("not all files are indexed: the index has reached its maximum size",)
    bench.paths(tree)
    for path in tree.root.glob("*.py"):
        path.unlink()
    tree.write({"one.py": "only"})
    with bench.index(bounds=Bounds(bytes=1)).open(CodePlace(tree.root)) as snapshot:
        assert snapshot.status.indexed == 1
    with closing(sqlite3.connect(bench.file)) as connection:
        assert connection.execute("SELECT count(*) FROM content").fetchone()[0] == 1


def test_known_files_are_forgotten_with_their_view(bench: Bench, tree: Tree) -> None:
    later = partial(int, time.time_ns() + 10**10)

    def known() -> dict[str, int]:
        with closing(sqlite3.connect(bench.file)) as connection:
            rows = connection.execute("SELECT place, count(*) FROM known_file GROUP BY place").fetchall()
            return {Path(os.fsdecode(place)).name: count for place, count in rows}

    for name in ("one", "two"):
        copy = bench.directory_tree(name).write({f"{n}.py": f"{name} {n}" for n in range(3)})
        with bench.index(now_ns=later).open(CodePlace(copy.root, home=tree.root)):
            pass
    assert known() == {"one@": 3, "two@": 3}
    copy.write({"new.py": "new"})
    with bench.index(now_ns=later, bounds=Bounds(bytes=1)).open(CodePlace(copy.root, home=tree.root)):
        pass
    # The known files of the current place are still valid.
    assert known() == {"two@": 4}
    with closing(sqlite3.connect(bench.file)) as connection, connection:
        connection.execute("DELETE FROM view")
    bench.index().prune()
    assert known() == {}


def test_contents_in_no_recent_view_are_dropped(bench: Bench) -> None:
    tree = bench.directory_tree().write({f"{n}.py": f"word{n}" for n in range(1200)})
    with bench.index(alone=5000).open(CodePlace(tree.root)) as before:
        for path in tree.root.glob("*.py"):
            if not path.name.startswith("1"):
                path.unlink()
        tree.write({"new.py": "news"})
        bench.analysed()
        with bench.open(tree) as snapshot:
            assert snapshot.status.complete
        assert bench.analysed() == ["new.py"]
        with closing(sqlite3.connect(bench.file)) as connection:
            # The last stored view contains all of them; the next build drops them.
            assert connection.execute("SELECT count(*) FROM content").fetchone()[0] == 1201
        tree.write({"newer.py": "more news"})
        with bench.open(tree) as snapshot:
            assert found_in(snapshot, "word1199") == {"1199.py": [(1, 1)]}
            assert found_in(snapshot, "word999") == {}
        with closing(sqlite3.connect(bench.file)) as connection:
            assert connection.execute("SELECT count(*) FROM content").fetchone()[0] == len(snapshot.files)
        # A connection that stayed open still sees all of it.
        assert found_in(before, "word999") == {"999.py": [(1, 1)]}
    tree.write({"2.py": "word2"})
    bench.analysed()
    bench.paths(tree)
    assert bench.analysed() == ["2.py"]


def test_pruning_does_not_mind_files_that_vanish_meanwhile(bench: Bench, tree: Tree) -> None:
    # A dangling link is found like any file, and is missing when it is read.
    (bench.indexes / "other.db-shm").symlink_to("nowhere")
    assert bench.index().prune() == 0


def test_pruning_forgets_sandboxes_and_repositories_that_are_gone(bench: Bench, tree: Tree) -> None:
    copy = bench.directory_tree("sandbox").write({f"s{n}.py": f"sandbox {n}" for n in range(30)})
    with bench.index().open(CodePlace(copy.root, home=tree.root)):
        pass
    other = bench.directory_tree("other").write({"o.py": "other"})
    bench.paths(other)
    assert len(list(bench.indexes.glob("*.db"))) == 2
    assert bench.index().prune() == 0
    for path in sorted(copy.root.iterdir()):
        path.unlink()
    copy.root.rmdir()
    with held(next(bench.indexes.glob("*.build"))):
        bench.index().prune()
    bench.index().prune()
    bench.index().prune([other.root])
    with closing(sqlite3.connect(bench.file)) as connection:
        assert connection.execute("SELECT count(*) FROM content").fetchone()[0] == 40
        assert connection.execute("SELECT count(*) FROM view").fetchone()[0] == 1
    bench.analysed()
    assert answers(bench, tree) == ()
    assert bench.analysed() == []
    bench.file.write_bytes(b"nothing")
    assert bench.index().prune() > 0
    assert list(bench.indexes.glob("*.db")) == []
