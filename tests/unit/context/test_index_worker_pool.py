"""Worker processes: as many as configured, no orphans, and none that a bad file can stop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.build.batch import AnalysisRequest
from cleveragents.context.index.build.worker_pool import WorkerPool, WorkerPoolUnusable
from cleveragents.context.index.place import IndexDeadline
from cleveragents.context.index.view import FileEntry, blob_digest
from cleveragents.context.model.code import Field
from cleveragents.core.errors import Cancelled
from tests.conditions import wait_until
from tests.index_bench import COUNTED, Bench, Tree, found_in
from tests.processes import children

ANALYSE = "tests.index_bench:analyse"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path, {"alone": 3, "batch_files": 4})
    monkeypatch.setenv(COUNTED, str(made.counts))
    return made


def test_worker_processes_find_the_same_as_this_one(bench: Bench) -> None:
    files = {f"{n}.py": "\n".join(f"def f{n}_{m}\nword{m} same" for m in range(n % 5)) for n in range(21)}
    tree = bench.repository().write({**files, "image.bin": b"\0", "RAISE.py": "RAISE"})
    tree.commit()
    tree.write({"3.py": "dirty same"})
    told: list[tuple[int, int]] = []
    with bench.open(tree, progress=lambda *now: told.append(now)) as snapshot:
        assert snapshot.status.complete
        assert snapshot.status.notes == ()
        assert told[0][0] == 0
        assert told[-1] == (told[0][1], told[0][1])
        alone = Bench(bench.directory / "alone")
        alone.directory.mkdir()
        with alone.open(tree) as other:
            for term in ("same", "word1", "dirty", "f4_1"):
                for field in (Field.BODY, Field.NAME):
                    assert found_in(snapshot, term, field) == found_in(other, term, field)
    # An empty file exists five times and is analysed once.
    assert len(bench.analysed()) == 2 * told[0][1]


def test_a_file_that_kills_the_process_is_excluded_permanently(bench: Bench) -> None:
    tree = bench.repository().write({f"{n}.py": f"word{n} same" for n in range(12)})
    tree.write({"5.py": "KILL"})
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete
        assert len(found_in(snapshot, "same")) == 11
        document = next(file.document for file in snapshot.files if file.path == "5.py")
        assert snapshot.analyses([document])[document].opaque == "its analysis does not end"
    assert bench.analysed().count("5.py") == 2
    bench.paths(tree)
    assert bench.analysed() == []


def orders(tree: Tree, texts: list[str]) -> list[AnalysisRequest]:
    tree.write({f"{n}.py": text for n, text in enumerate(texts)})
    entries = [
        FileEntry(f"{n}.py", blob_digest(text.encode()), len(text), True) for n, text in enumerate(texts)
    ]
    return [AnalysisRequest(tree.root, entries[at : at + 2]) for at in range(0, len(entries), 2)]


def test_a_process_that_does_not_answer_in_time_is_replaced(bench: Bench) -> None:
    wanted = orders(bench.directory_tree(), ["one", "two"])
    with WorkerPool("tests.unit.context.test_index_worker_pool:never", 1, batch_seconds=0.0) as pool:
        batches = list(pool.batches(wanted, IndexDeadline()))
    assert sorted(digest for batch in batches for digest in batch.digests) == sorted(
        entry.digest for entry in wanted[0].entries
    )


def never(path: str, data: bytes) -> None:
    """An analysis that never ends."""
    sys.stdin.read()
    while True:
        pass


def test_a_process_that_does_not_read_blocks_no_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = bench.directory / "deaf"
    deaf.write_text("#!/bin/sh\nexec sleep 600\n")
    deaf.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(deaf))
    entries = [FileEntry(f"{n}" * 500, bytes(32), 1 << 40, n % 2 == 0) for n in range(10)]
    entries.append(FileEntry("\U0001f600" * 100_000, bytes(32), 1 << 40, False))
    with WorkerPool(ANALYSE, 1) as pool:
        assert (
            list(
                pool.batches(
                    [AnalysisRequest(bench.directory, entries * 100)] * 3, IndexDeadline.of(0.3, None)
                )
            )
            == []
        )
    assert children(recursive=True) == []


def test_orders_that_no_pipe_holds_are_done_in_parts(bench: Bench) -> None:
    names = [f"{n}-{'x' * 200}.py" for n in range(200)]
    tree = bench.directory_tree().write(dict.fromkeys(names, "same"))
    entries = [FileEntry(name, blob_digest(b"same"), 4, True) for name in names]
    with WorkerPool(ANALYSE, 1) as pool:
        batches = list(
            pool.batches(
                [AnalysisRequest(tree.root, entries), AnalysisRequest(tree.root, [])], IndexDeadline()
            )
        )
    assert len(batches) > 2
    assert sum(len(batch.digests) for batch in batches) == 200


def test_child_processes_end_with_their_process(bench: Bench) -> None:
    wanted = orders(bench.directory_tree(), ["one", "two"])

    class Started:
        @property
        def is_cancelled(self) -> bool:
            return bench.counts.exists() and bench.counts.read_text().endswith("\n")

    pool = WorkerPool("tests.unit.context.test_index_worker_pool:in_company", 1)
    with pytest.raises(Cancelled), pool:
        list(pool.batches(wanted, IndexDeadline(time.monotonic() + 60, Started())))
    grandchild = int(bench.counts.read_text())
    wait_until(lambda: not _runs(grandchild))


def in_company(path: str, data: bytes) -> None:
    """An analysis that waits for a child process."""
    with subprocess.Popen(["sleep", "600"]) as process:
        Path(os.environ[COUNTED]).write_text(f"{process.pid}\n")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_leaving_the_crew_ends_its_processes_whatever_they_do(bench: Bench) -> None:
    wanted = orders(bench.directory_tree(), ["one", "two", "three", "four"])
    before = len(children(recursive=True))
    with WorkerPool("tests.unit.context.test_index_worker_pool:never", 2) as pool:
        batches = pool.batches(wanted, IndexDeadline.of(0.3, None))
        assert list(batches) == []
        assert len(children(recursive=True)) == before + 2
    assert len(children(recursive=True)) == before


def test_where_no_process_can_be_started_the_work_is_done_without(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("/nowhere/python", "/bin/false"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(WorkerPoolUnusable), WorkerPool(ANALYSE, 1) as pool:
            list(pool.batches([AnalysisRequest(bench.directory, [])], IndexDeadline()))
        tree = bench.directory_tree(Path(program).name).write({f"{n}.py": f"same {n}" for n in range(10)})
        with bench.index().open(CodePlace(tree.root)) as snapshot:
            assert len(found_in(snapshot, "same")) == 10
