"""Applying 1,000 files, compared with `git apply` of the same patch to the same files.

`git apply` checks no other file, keeps no journal and can be interrupted half way. Aims: at most 4 times its
time for an apply that survives kill -9 (`normal`), and at most 15 times for one that survives a power cut
(`full`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.ratio import seconds_of
from cleveragents.apply.applier import TreeApplier
from cleveragents.core.identifiers import UlidSource
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.storage.database import open_database

__all__ = ["ApplyManyFiles"]

FILES = 1000
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")


def git(directory: Path, *arguments: str, feed: bytes | None = None) -> bytes:
    """Run git and return its output."""
    command = ["git", *IDENTITY, *arguments]
    return subprocess.run(command, cwd=directory, input=feed, check=True, capture_output=True).stdout


def content(number: int, word: bytes) -> bytes:
    """Return a small source file with the word in one line."""
    lines = [b"line %d of file %d\n" % (line, number) for line in range(40)]
    lines[20] = word + b"\n"
    return b"".join(lines)


class ApplyManyFiles:
    """Both start from the same clean files each time; restoring them is not counted."""

    params = ("normal", "full")
    param_names = ("durability",)
    timeout = 300
    rounds = 7

    def setup(self, durability: str) -> None:
        self._folder = TemporaryDirectory()
        home = Path(self._folder.name)
        self._resource = home / "project"
        for number in range(FILES):
            path = self._resource / f"package{number % 25}" / f"module{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(number, b"before"))
        git(self._resource, "init", "-q")
        git(self._resource, "add", "-A")
        git(self._resource, "commit", "-q", "-m", "first")
        self._database = open_database(f"sqlite:///{home}/state.db", durability=durability)
        self._sandbox = PrivateClone().create(SandboxRequest("plan", self._resource), home / "sandbox")
        for number in range(FILES):
            path = self._sandbox.root / f"package{number % 25}" / f"module{number}.py"
            path.write_bytes(content(number, b"after"))
        changes = self._sandbox.scan()
        assert len(changes) == FILES
        self._tree = self._sandbox.tree({path: change.after for path, change in changes.items()})
        self._patch = self._sandbox.diff(self._tree, options=("--binary",))
        self._applier = TreeApplier(self._database, UlidSource(), durability=durability)

    def teardown(self, durability: str) -> None:
        self._database.close()
        self._folder.cleanup()

    def track_apply_ratio(self, durability: str) -> float:
        """Aims: 4 and 15, see above."""
        self._timed(self._ours)
        self._timed(self._floor)
        return median(self._pair(swap=number % 2 == 1) for number in range(self.rounds))

    track_apply_ratio.unit = "ratio"

    def _pair(self, *, swap: bool) -> float:
        if swap:
            below = self._timed(self._floor)
            return self._timed(self._ours) / below
        above = self._timed(self._ours)
        return above / self._timed(self._floor)

    def _timed(self, work: Callable[[], None]) -> float:
        took = seconds_of(work)
        assert git(self._resource, "diff", "--shortstat").split()[0] == b"%d" % FILES
        git(self._resource, "checkout", "-q", "--", ".")
        git(self._resource, "status")
        return took

    def _ours(self) -> None:
        with self._applier.prepare("plan", self._sandbox, self._tree) as preparation:
            preparation.apply()

    def _floor(self) -> None:
        git(self._resource, "apply", "-", feed=self._patch)
