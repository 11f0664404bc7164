"""A process that dies while it fills the index: at most its last batch is lost, and nothing stale remains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cleveragents.testing.clock import RecordFaultPoints
from tests.fork_server import Forked
from tests.index_bench import COUNTED, Bench, Tree, found_in
from tests.processes import PidPipe, wait_gone

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.index_builder"]
BUILDER = {"analyse": "tests.index_bench:analyse", "version": 1, "batch_files": 4, "workers": 2}
FILES = 320


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv(COUNTED, str(made.counts))
    return made


@pytest.fixture
def tree(bench: Bench) -> Tree:
    return bench.directory_tree().write({f"m{n}.py": f"common word{n}" for n in range(FILES)})


def start(bench: Bench, tree: Tree, **order: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = Forked(
        PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    told = {"indexes": str(bench.indexes), "root": str(tree.root), "builder": BUILDER, **order}
    process.stdin.write(json.dumps(told) + "\n")
    process.stdin.flush()
    return process


@pytest.mark.parametrize(
    ("point", "nth", "kept"),
    [
        ("index.batch.before_commit", 1, 0),
        ("index.batch.in_transaction", 3, 64),
        ("index.batch.after_commit", 2, 64),
        ("index.merge.in_transaction", 1, 256),
    ],
)
def test_committed_work_is_not_repeated_after_a_kill(
    bench: Bench, tree: Tree, point: str, nth: int, kept: int
) -> None:
    builder = {**BUILDER, "alone": 1000}
    with start(bench, tree, crash=point, nth=nth, builder=builder) as process:
        assert process.wait(240) == -signal.SIGKILL
    bench.analysed()
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete
        assert snapshot.status.notes == ()
        assert len(found_in(snapshot, "common")) == FILES
        assert snapshot.chunks.first_chunk[-1] == FILES
    assert len(bench.analysed()) == FILES - kept


def test_every_fault_point_of_a_build_is_covered(bench: Bench, tree: Tree) -> None:
    points = RecordFaultPoints()
    with bench.index(faults=points, alone=1000).open(bench.place(tree)):
        pass
    assert set(points.reached) == {
        "index.build.before",
        "index.batch.before_commit",
        "index.batch.in_transaction",
        "index.batch.after_commit",
        "index.merge.in_transaction",
    }


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_build(
    bench: Bench, tree: Tree, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = PidPipe(bench.directory)
    monkeypatch.setenv(COUNTED, str(pids.path))
    builder = {**BUILDER, "alone": 1, "analyse": "tests.index_bench:linger"}
    with start(bench, tree, builder=builder) as process:
        workers = pids.read(2)
        assert len(set(workers)) == 2
        process.send_signal(how)
        assert process.wait(240) != 0
        assert wait_gone(workers) == []
    pids.close()
