"""Making sandboxes, compared with `git worktree add`.

Aims: one sandbox costs at most 1.3 times as much as a bare worktree, including its registration in the
database and the search for uncommitted files. 32 parallel ones are faster than 32 sequential worktrees, which
must be added one after the other (under one flock, or `git worktree add` fails on its own lock).
"""

from __future__ import annotations

import subprocess
import threading
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.ratio import ratio
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.storage.database import open_database

__all__ = ["MakeSandboxes", "UseSandbox"]

AT_ONCE = 32


def run(directory: Path, *words: str) -> None:
    subprocess.run(words, cwd=directory, check=True, capture_output=True)


def fill(repository: Path, files: int) -> None:
    """Create a repository with `files` small files, all committed and packed."""
    repository.mkdir()
    for number in range(files):
        path = repository / f"d{number % 50}" / f"s{number % 7}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# line {number}\n" * (20 + number % 60))
    author = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "one"), ("gc", "-q")):
        run(repository, "git", *words)


class MakeSandboxes:
    """Below 1 is faster than worktrees."""

    params = (200, 2000)
    param_names = ("files",)
    timeout = 600

    def setup(self, files: int) -> None:
        self._folder = TemporaryDirectory()
        self._home = Path(self._folder.name)
        self._repository = self._home / "repository"
        fill(self._repository, files)
        self._database = open_database(f"sqlite:///{self._home}/store.db")
        self._registry = SandboxRegistry(self._database, self._home / "sandboxes")
        self._numbers = count()

    def teardown(self, files: int) -> None:
        self._database.close()
        self._folder.cleanup()

    def track_one_ratio(self, files: int) -> float:
        """One sandbox compared with one worktree."""
        return ratio(self._sandbox, self._worktree, rounds=15)

    def track_many_at_once_ratio(self, files: int) -> float:
        """32 parallel sandboxes compared with 32 worktrees under one flock."""
        return ratio(
            lambda: self._at_once(self._sandbox), lambda: self._at_once(self._locked_worktree), rounds=3
        )

    def track_remove_ratio(self, files: int) -> float:
        """Removing a sandbox, compared with `git worktree remove`."""
        return ratio(self._remove_sandbox, self._remove_worktree, rounds=9) if self._prepare() else 0.0

    track_one_ratio.unit = "ratio"
    track_many_at_once_ratio.unit = "ratio"
    track_remove_ratio.unit = "ratio"

    def _sandbox(self) -> None:
        self._registry.create(SandboxRequest(f"plan-{next(self._numbers)}", self._repository))

    def _worktree(self) -> None:
        path = self._home / f"worktree-{next(self._numbers)}"
        run(self._repository, "git", "worktree", "add", "--detach", str(path))

    def _locked_worktree(self) -> None:
        path = self._home / f"worktree-{next(self._numbers)}"
        lock = str(self._home / "lock")
        run(self._repository, "flock", lock, "git", "worktree", "add", "--detach", str(path))

    def _prepare(self) -> bool:
        for _ in range(10):
            self._sandbox()
            self._worktree()
        self._made = [row.plan_id for row in self._registry.rows()]
        self._added = sorted(self._home.glob("worktree-*"))
        return True

    def _remove_sandbox(self) -> None:
        self._registry.remove(self._made.pop())

    def _remove_worktree(self) -> None:
        run(self._repository, "git", "worktree", "remove", str(self._added.pop()))

    def _at_once(self, work: object) -> None:
        assert callable(work)
        threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class UseSandbox:
    """The overhead of a tool call, compared with the equivalent git command."""

    params = (200, 2000)
    param_names = ("files",)
    timeout = 600

    def setup(self, files: int) -> None:
        self._folder = TemporaryDirectory()
        home = Path(self._folder.name)
        fill(home / "repository", files)
        self._database = open_database(f"sqlite:///{home}/store.db")
        registry = SandboxRegistry(self._database, home / "sandboxes")
        self._sandbox = registry.create(SandboxRequest("plan", home / "repository"))
        (self._sandbox.root / "d0/s0/f0.py").write_text("changed\n")

    def teardown(self, files: int) -> None:
        self._database.close()
        self._folder.cleanup()

    def track_scan_ratio(self, files: int) -> float:
        """`scan` compared with `git status`."""
        root = self._sandbox.root
        return ratio(self._sandbox.scan, lambda: run(root, "git", "status", "--porcelain"))

    def track_state_of_ratio(self, files: int) -> float:
        """`state_of` compared with `git hash-object -w`, whose main cost is its process."""
        root = self._sandbox.root
        return ratio(
            lambda: self._sandbox.state_of("d0/s0/f0.py"),
            lambda: run(root, "git", "hash-object", "-w", "d0/s0/f0.py"),
        )

    track_scan_ratio.unit = "ratio"
    track_state_of_ratio.unit = "ratio"
