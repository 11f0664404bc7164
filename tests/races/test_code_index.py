"""Several processes and threads on one index: each content is analysed once, and all see the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cleveragents.domain.code import Field
from cleveragents.errors import Closed
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
    """Four processes that have all seen that the index is empty before any of them fills it."""
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


def test_an_index_that_is_filled_without_a_lock_is_caught_doing_it_over_and_over(bench: Bench) -> None:
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
                # All that is indexed says `common`: a snapshot that mixes two states would not find as many.
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


def test_any_thread_may_ask_and_one_that_asks_too_late_is_told_so(bench: Bench) -> None:
    tree = bench.repository().write({f"m{n}.py": f"common word{n}\ndef name{n}" for n in range(40)})
    with bench.open(tree) as snapshot, ThreadPoolExecutor(4) as threads:
        found = [threads.submit(found_in, snapshot, "common") for _ in range(12)]
        names = [threads.submit(found_in, snapshot, f"name{n}", Field.NAME) for n in range(12)]
        assert all(one.result() == found[0].result() for one in found)
        assert [list(one.result()) for one in names] == [[f"m{n}.py"] for n in range(12)]
    with ThreadPoolExecutor(1) as threads, pytest.raises(Closed):
        threads.submit(snapshot.analyses, [0]).result()
