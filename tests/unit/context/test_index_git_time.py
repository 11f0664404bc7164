"""A repository that makes git wait for ever, with a pipe in place of a file, does not block the index."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.place import IndexDeadline, git_seconds, ground_of
from cleveragents.context.search.git_history import GitCommitHistory
from cleveragents.core.errors import Cancelled, GitFailed, SandboxRefused, SourceMissing
from cleveragents.git.blob_reader import BlobReader
from cleveragents.git.plumbing import RunningGit, run_git, user_environment, within
from cleveragents.sandboxes.resources import find_resource
from tests.conditions import wait_until
from tests.index_bench import COUNTED, Bench, Tree, found_in
from tests.processes import children

LISTED = ("ls-files", "--others", "--exclude-standard")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv(COUNTED, str(made.counts))
    return made


@pytest.fixture
def tree(bench: Bench) -> Tree:
    """Return a repository in which git never finishes listing untracked files."""
    made = bench.repository().write({"a.py": "alpha", "b.py": "beta"})
    made.commit("first")
    os.mkfifo(made.root / ".gitignore")
    return made


@pytest.fixture
def stuck(bench: Bench) -> Tree:
    """Return a repository in which git never finishes reading its configuration."""
    made = bench.repository("stuck").write({"a.py": "alpha"})
    made.commit("first")
    os.mkfifo(made.root / "pipe")
    with (made.root / ".git/config").open("a") as stream:
        stream.write("[include]\n\tpath = ../pipe\n")
    return made


class Signal:
    """A cancel signal that is set when it is checked for the third time, while git runs."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def is_cancelled(self) -> bool:
        self.asked += 1
        return self.asked > 2


def test_git_is_ended_and_gone_when_its_time_is_up(tree: Tree) -> None:
    with pytest.raises(GitFailed, match=r"ls-files failed: no answer within \d+ s"):
        run_git(*LISTED, environment=user_environment(), directory=tree.root, seconds_left=within(0.3))
    assert children() == []


def test_git_is_ended_and_gone_when_its_caller_gives_up(tree: Tree) -> None:
    patience = IndexDeadline(None, Signal())
    with pytest.raises(Cancelled):
        run_git(
            *LISTED, environment=user_environment(), directory=tree.root, seconds_left=git_seconds(patience)
        )
    assert children() == []


def test_git_that_is_not_asked_for_its_answer_is_gone_after_the_block(tree: Tree) -> None:
    environment = user_environment()
    with RunningGit(
        *LISTED, environment=environment, directory=tree.root, seconds_left=within(60)
    ) as running:
        assert len(children()) == 1
    assert children() == []
    assert not running.late


ABANDONED = """
import sys, threading, time
from pathlib import Path
from cleveragents.git.plumbing import RunningGit, user_environment, within
started = threading.Event()
def wait():
    arguments = ("ls-files", "--others", "--exclude-standard")
    left, directory = within(600), Path(sys.argv[1])
    settings = {"environment": user_environment(), "directory": directory, "seconds_left": left}
    with RunningGit(*arguments, **settings) as git:
        print(git._process.pid, flush=True)
        started.set()
        git.finish()
threading.Thread(target=wait, daemon=True).start()
started.wait(60)
"""


def test_git_is_gone_when_we_end_before_the_thread_that_waits_for_it(tree: Tree) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ABANDONED, str(tree.root)], stdout=subprocess.PIPE, check=True
    )
    pid = int(ran.stdout)
    wait_until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_input_and_output_of_git_are_complete_in_time(tree: Tree) -> None:
    name = tree.git("rev-parse", "HEAD:a.py")
    told = run_git(
        "cat-file",
        "--batch-check=%(objectname)",
        environment=user_environment(),
        directory=tree.root,
        feed=f"{name}\n".encode() * 20_000,
        seconds_left=within(60),
    )
    assert told == f"{name}\n".encode() * 20_000


def test_git_that_does_not_read_what_it_is_fed_is_ended(stuck: Tree) -> None:
    with pytest.raises(GitFailed, match="no answer within"):
        run_git(
            "cat-file",
            "--batch-check",
            environment=user_environment(),
            directory=stuck.root,
            feed=b"0" * (1 << 20),
            seconds_left=within(0.3),
        )
    assert children() == []


def test_git_gets_a_last_second_and_never_more_than_the_maximum() -> None:
    assert 0 < git_seconds(IndexDeadline.of(0.0, None))() <= 1
    assert 1 < git_seconds(IndexDeadline.of(20.0, None))() <= 10
    assert 20 < git_seconds(IndexDeadline.of(None, None), 30.0)() <= 30
    assert git_seconds(IndexDeadline.of(None, None), 0.0)() <= 0


def test_a_repository_that_hangs_git_is_read_without_git(bench: Bench, stuck: Tree) -> None:
    with bench.open(stuck, seconds=1.0) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py"]
        assert snapshot.status.notes[0].startswith("read without git: no answer within ")
    assert children() == []


def test_no_commit_is_found_where_git_does_not_answer(bench: Bench, stuck: Tree) -> None:
    with pytest.raises(SourceMissing, match=r"HEAD of .*: no answer within \d+ s"):
        ground_of(CodePlace(stuck.root, "HEAD"), IndexDeadline.of(0.0, None))
    history = GitCommitHistory(bench.indexes, version=1, seconds=0.0)
    assert list(history.commits(CodePlace(stuck.root), limit=5)) == []
    assert children() == []


def test_a_reader_with_a_hung_git_returns_nothing_and_starts_another(tree: Tree) -> None:
    name = tree.git("rev-parse", "HEAD:a.py")
    with closing(BlobReader(tree.root, answer_seconds=60.0)) as reader:
        assert reader.read("0" * 40) is None
        (process,) = children()
        process.suspend()
        reader._answer_seconds = 0.5
        assert reader.read(name) is None
        assert children() == []
        reader._answer_seconds = 60.0
        assert reader.read(name) == b"alpha"
    assert children() == []


def test_contents_that_git_does_not_return_in_time_are_missing(bench: Bench) -> None:
    tree = bench.repository("holes").write({"a.py": "alpha"})
    first = tree.commit("first")
    name = tree.git("rev-parse", "HEAD:a.py")
    stored = tree.root / ".git/objects" / name[:2] / name[2:]
    stored.unlink()
    os.mkfifo(stored)
    with bench.open(tree, first, seconds=0.5) as snapshot:
        assert snapshot.status.indexed == 0
        assert found_in(snapshot, "alpha") == {}
    assert children() == []


def test_tracked_files_are_found_if_git_hangs_on_untracked_ones(bench: Bench, tree: Tree) -> None:
    tree.write({"new.py": "news"})
    with bench.open(tree, seconds=1.0) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py", "b.py"]
        (note, *_) = snapshot.status.notes
        assert note.startswith("files that git does not track are left out: git ls-files: no answer within")
    assert children() == []


def test_a_failed_list_of_untracked_files_is_not_a_late_one(bench: Bench, tree: Tree) -> None:
    (tree.root / ".gitignore").unlink()
    tree.git("config", "core.excludesFile", "~nobody-of-that-name/x")
    with bench.open(tree) as snapshot:
        assert snapshot.status.notes[0].startswith("read without git: ")


def test_where_git_does_not_answer_no_root_is_found(stuck: Tree) -> None:
    with pytest.raises(SandboxRefused, match="no answer within"):
        find_resource(stuck.root, seconds=0.3)
    assert children() == []
