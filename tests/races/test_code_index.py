"""Several processes and threads on one index: each content is analysed once, and all see the same."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from cleveragents.context.index.build.builder import drop_unused
from cleveragents.context.index.index_file import IndexFile, OpenedIndex
from cleveragents.context.index.snapshot import DistinctContents, SqliteCodeSnapshot
from cleveragents.context.index.sqlite_code_index import IndexOpener
from cleveragents.context.index.view import IndexView
from cleveragents.context.model.code import Field
from cleveragents.core.errors import Closed
from tests.index_bench import COUNTED, Bench, Tree, found_in

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.index_builder"]
PROCESSES = 4
BUILDER = {"analyse": "tests.index_bench:analyse", "version": 1, "batch_files": 4}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv(COUNTED, str(made.counts))
    return made


@contextmanager
def processes(
    bench: Bench, tree: Tree, orders: list[dict[str, Any]]
) -> Iterator[list[subprocess.Popen[str]]]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with ExitStack() as stack:
        running = []
        for order in orders:
            process = stack.enter_context(
                subprocess.Popen(
                    PROGRAM,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            running.append(process)
            told = {"indexes": str(bench.indexes), "root": str(tree.root), "builder": BUILDER, **order}
            tell(process, json.dumps(told))
        yield running


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def at_once(bench: Bench, index: str) -> list[dict[str, Any]]:
    """Start four processes that have all seen an empty index before any of them fills it."""
    tree = bench.repository().write({f"m{n}.py": f"common word{n}" for n in range(30)})
    tree.commit()
    with processes(bench, tree, [{"gate": True, "index": index}] * PROCESSES) as running:
        for process in running:
            assert heard(process) == {"at": "index.build.before"}
        for process in running:
            tell(process, "go")
        told = [heard(process) for process in running]
        assert [process.wait(60) for process in running] == [0] * PROCESSES
    return told


def test_of_four_processes_that_find_an_empty_index_one_fills_it_and_all_see_all_of_it(bench: Bench) -> None:
    told = at_once(bench, "ours")
    everything = {"files": 30, "indexed": 30, "notes": [], "found": 30, "own": True}
    assert told == [everything] * PROCESSES
    assert len(bench.analysed()) == 30


def test_an_index_filled_without_a_lock_repeats_work_and_is_caught(bench: Bench) -> None:
    at_once(bench, "naive")
    assert len(bench.analysed()) > 30


def test_processes_that_change_files_and_look_find_what_they_wrote_and_no_content_is_done_twice(
    bench: Bench,
) -> None:
    tree = bench.repository().write({f"m{n}.py": f"common word{n}" for n in range(20)})
    tree.commit()
    rounds = 4
    orders = [{"name": f"p{n}", "rounds": rounds} for n in range(PROCESSES)]
    with processes(bench, tree, orders) as running:
        for process in running:
            for _ in range(rounds):
                told = heard(process)
                assert told["own"]
                # All indexed files contain `common`: a snapshot that mixes two states would find a different
                # number.
                assert told["found"] == told["indexed"] >= 20
        assert [process.wait(60) for process in running] == [0] * PROCESSES
    done = bench.analysed()
    assert len(done) == len(set(done) & {f"m{n}.py" for n in range(20)}) + PROCESSES * rounds
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete
        assert len(found_in(snapshot, "common")) == 20 + PROCESSES


def test_a_snapshot_stays_as_it_is_while_the_index_is_filled_merged_and_replaced(bench: Bench) -> None:
    tree = bench.repository().write({f"m{n}.py": f"common word{n}" for n in range(10)})
    tree.commit()
    with bench.open(tree) as snapshot:
        before = (found_in(snapshot, "common"), snapshot.chunks.lengths.tolist())
        for number in range(20):
            tree.write({"m0.py": f"changed {number}"})
            bench.paths(tree)
        assert (found_in(snapshot, "common"), snapshot.chunks.lengths.tolist()) == before
        with bench.index(version=2).open(snapshot.place):
            pass
        assert (found_in(snapshot, "common"), snapshot.chunks.lengths.tolist()) == before


def test_any_thread_may_ask_and_a_late_one_gets_closed(bench: Bench) -> None:
    tree = bench.repository().write({f"m{n}.py": f"common word{n}\ndef name{n}" for n in range(40)})
    with bench.open(tree) as snapshot, ThreadPoolExecutor(4) as threads:
        found = [threads.submit(found_in, snapshot, "common") for _ in range(12)]
        names = [threads.submit(found_in, snapshot, f"name{n}", Field.NAME) for n in range(12)]
        assert all(one.result() == found[0].result() for one in found)
        assert [list(one.result()) for one in names] == [[f"m{n}.py"] for n in range(12)]
    with ThreadPoolExecutor(1) as threads, pytest.raises(Closed):
        threads.submit(snapshot.analyses, [0]).result()


class Watched:
    """A connection that detects when it is used, or closed, while it is in use."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real
        self._busy = threading.Lock()
        self.entered = threading.Event()
        self.disturbed = threading.Event()
        self._first = True

    def execute(self, *words: Any) -> sqlite3.Cursor:
        if not self._busy.acquire(blocking=False):
            self.disturbed.set()
            return self._real.execute(*words)
        try:
            if self._first:
                self._first = False
                self.entered.set()
                # Long enough for a thread that is not locked out; a thread that is costs no more than this.
                self.disturbed.wait(0.3)
            return self._real.execute(*words)
        finally:
            self._busy.release()

    def close(self) -> None:
        if self._busy.locked():
            self.disturbed.set()
        else:
            self._real.close()


@pytest.mark.parametrize("how", ["postings", "close"])
def test_the_connection_is_used_by_one_thread_at_a_time(bench: Bench, how: str) -> None:
    tree = bench.repository().write({"a.py": "common word"})
    with bench.open(tree) as snapshot, ThreadPoolExecutor(2) as threads:
        assert isinstance(snapshot, SqliteCodeSnapshot)
        watched = Watched(snapshot._connection)
        snapshot._connection = cast(sqlite3.Connection, watched)
        first = threads.submit(snapshot.postings, Field.BODY, ["common"])
        assert watched.entered.wait(30)
        if how == "close":
            threads.submit(snapshot.close).result()
            with suppress(Closed):  # if it had more to read
                first.result()
        else:
            threads.submit(snapshot.postings, Field.BODY, ["word"]).result()
            assert list(first.result()) == ["common"]
        assert not watched.disturbed.is_set()


def test_contents_dropped_by_another_process_are_added_again(bench: Bench) -> None:
    tree = bench.repository().write({f"m{n}.py": f"common word{n}" for n in range(5)})

    class Robbed(IndexOpener):
        robbed = False

        def _fill(self, opened: OpenedIndex, view: IndexView, contents: DistinctContents) -> list[str]:
            notes = super()._fill(opened, view, contents)
            if not self.robbed:
                self.robbed = True
                drop_unused(opened.connection, np.empty(0, np.int64))
            return notes

    index = bench.index()
    index.opening = Robbed
    with index.open(bench.place(tree)) as snapshot:
        assert snapshot.status.complete
        assert len(found_in(snapshot, "common")) == 5
    assert len(bench.analysed()) == 10


def test_a_process_that_waits_to_replace_an_index_uses_the_new_one(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "common word"})
    bench.paths(tree)
    path = bench.file
    old = path.read_bytes()
    with bench.index(version=2).open(bench.place(tree)):
        pass
    new = path.read_bytes()
    path.write_bytes(old)
    looked = threading.Event()

    class Watching(IndexFile):
        def _problem(self, connection: sqlite3.Connection) -> str:
            told = super()._problem(connection)
            looked.set()
            return told

    door = os.open(path.with_suffix(".door"), os.O_RDWR)
    with ThreadPoolExecutor(1) as threads:
        fcntl.flock(door, fcntl.LOCK_SH)
        opening = threads.submit(Watching(path, 2, tree.root).open)
        assert looked.wait(30)
        path.unlink()
        path.write_bytes(new)
        os.close(door)
        with closing(opening.result()) as opened:
            assert opened.notes == []
            assert opened.connection.execute("SELECT count(*) FROM content").fetchone()[0] == 1
