"""Waiting for another process that fills the index, and for how long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.build.batch import AnalysisRequest, filled
from cleveragents.context.index.build.builder import build_turn
from cleveragents.context.index.build.segment import TermNumbers
from cleveragents.context.index.place import IndexDeadline
from cleveragents.context.index.view import FileEntry, blob_digest
from cleveragents.core.errors import Cancelled
from tests.index_bench import COUNTED, Bench, Tree, analyse, found_in

HOLDER = """
import sys
from pathlib import Path
from cleveragents.context.index.build.builder import build_turn
from cleveragents.context.index.place import IndexDeadline
with build_turn(Path(sys.argv[1]), IndexDeadline(), lambda: False) as turn:
    print(turn.ours, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv(COUNTED, str(made.counts))
    return made


@pytest.fixture
def tree(bench: Bench) -> Tree:
    made = bench.repository().write({"a.py": "alpha", "b.py": "beta"})
    made.commit()
    bench.paths(made)
    return made.write({"new.py": "news", "same.py": "alpha"})


@contextmanager
def held_by_another(lock: Path) -> Iterator[int]:
    """A process that holds the lock and does nothing, like a suspended one."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        yield process.pid
        process.kill()


def test_a_stalled_builder_is_named_and_not_waited_for(bench: Bench, tree: Tree) -> None:
    impatient = bench.index(stalled_seconds=0.5)
    with (
        held_by_another(bench.file.with_suffix(".build")) as pid,
        impatient.open(CodePlace(tree.root)) as snapshot,
    ):
        assert snapshot.status.notes == (
            f"another process (pid {pid}) is indexing and makes no progress; 3 of 4 files are indexed",
        )
        assert sorted(found_in(snapshot, "alpha")) == ["a.py", "same.py"]
    with bench.open(tree) as snapshot:
        assert snapshot.status.complete
        assert snapshot.status.notes == ()


def test_a_builder_at_the_deadline_is_named(bench: Bench, tree: Tree) -> None:
    with (
        held_by_another(bench.file.with_suffix(".build")) as pid,
        bench.open(tree, seconds=0.5) as snapshot,
    ):
        assert snapshot.status.notes == (
            f"another process (pid {pid}) is indexing",
            "out of time: 3 of 4 files are indexed",
        )


class Clockwork:
    """A signal that is set as soon as a file was analysed."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @property
    def is_cancelled(self) -> bool:
        return self._bench.counts.exists()


def test_a_cancelled_build_waits_only_for_the_current_file(bench: Bench) -> None:
    tree = bench.directory_tree("plain").write({f"{n}.py": f"word{n}" for n in range(20)})
    with pytest.raises(Cancelled), bench.open(tree, cancelled=Clockwork(bench)):
        pass
    assert len(bench.analysed()) == 1


def test_analyses_finished_in_time_are_stored(bench: Bench) -> None:
    tree = bench.directory_tree("plain").write({f"{n}.py": f"word{n}" for n in range(3)})
    entries = [FileEntry(f"{n}.py", blob_digest(b"word%d" % n), 5, True) for n in range(3)]
    over = iter([False, True])
    batch = filled(AnalysisRequest(tree.root, entries), analyse, TermNumbers(), lambda: next(over))
    assert sorted(batch.digests) == sorted(entry.digest for entry in entries[:2])


def test_a_builder_that_makes_progress_is_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    told = iter(range(1_000))
    looks = iter([False] * 5)
    with (
        held_by_another(lock) as pid,
        build_turn(
            lock,
            IndexDeadline(),
            lambda: next(looks, True),
            grown=lambda: next(told),
            stalled_seconds=0.1,
        ) as turn,
    ):
        assert (turn.ours, turn.stalled) == (False, False)
        assert turn.who == f"another process (pid {pid})"
    with build_turn(lock, IndexDeadline(), lambda: True) as turn:
        assert turn.ours
        assert lock.read_bytes() == b"%d\n" % os.getpid()
    assert lock.read_bytes() == b""


@pytest.mark.parametrize("words", [b"", b"nonsense", None])
def test_a_lock_holder_without_a_pid_is_another_process(tmp_path: Path, words: bytes | None) -> None:
    lock = tmp_path / "lock"
    with held_by_another(lock):

        def gone() -> bool:
            if words is None:
                lock.unlink()
                lock.mkdir()
            return True

        if words is not None:
            lock.write_bytes(words)
        with build_turn(lock, IndexDeadline(), gone) as turn:
            assert turn.who == "another process"
