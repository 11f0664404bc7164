"""An apply is all or nothing, even if its process is killed with `kill -9` at any durable step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from cleveragents.apply.applier import TreeApplier
from cleveragents.apply.ports import Recovered
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.tables import applies, outbox
from tests.apply_bench import Link, Program, Submodule, World, git, snapshot, world_at, write
from tests.fork_server import Forked

BEFORE = {
    "changed.txt": b"one\ntwo\nthree\n",
    "deep/gone.txt": b"to be deleted\n",
    "deep/sub": Submodule(),
    "kind": b"a file that becomes a directory\n",
    "link": Link("changed.txt"),
    "untouched.txt": b"nobody's business\n",
}
EDITS = {
    "changed.txt": b"one\nTWO\nthree\n",
    "deep/gone.txt": None,
    "deep/sub": None,
    "kind": None,
    "kind/inside.txt": b"now a directory\n",
    "link": Link("untouched.txt"),
    "made/new.sh": Program(b"#!/bin/sh\n"),
}


class Walker:
    """The process that forks one child for each order."""

    def __init__(self) -> None:
        self._process = Forked(
            [sys.executable, "-m", "tests.crash.programs.apply_walker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, world: World, deed: str, point: str = "", nth: int = 1, durability: str = "normal") -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {
            "home": str(world.home),
            "plan": "p",
            "tree": world.trees["p"],
            "deed": deed,
            "point": point,
            "nth": nth,
            "durability": durability,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def points(self, world: World, deed: str) -> list[tuple[str, int]]:
        """Return every fault point that the action reaches, with its occurrence."""
        assert self.run(world, deed, "record") == "exit 0"
        reached = json.loads((world.home / "points.json").read_text())
        seen: Counter[str] = Counter()
        found = []
        for point in reached:
            seen[point] += 1
            found.append((point, seen[point]))
        return found

    def close(self) -> None:
        self._process.communicate(timeout=240)
        assert self._process.returncode == 0


@dataclass
class Scene:
    """A world that can be reset, and its state before and after."""

    world: World
    walker: Walker
    before: dict[str, tuple[str, bytes]]
    after: dict[str, tuple[str, bytes]]
    head: str

    def run(self, deed: str, point: str = "", nth: int = 1, durability: str = "normal") -> str:
        """Return the exit code of a process that was killed at this point."""
        return self.walker.run(self.world, deed, point, nth, durability)

    def points(self, deed: str) -> list[tuple[str, int]]:
        return self.walker.points(self.world, deed)

    def recover(self) -> list[Recovered]:
        """Recover like the next start."""
        return list(TreeApplier(self.world.database, UlidSource()).recover())

    def reset(self) -> None:
        """Restore the start, whatever happened."""
        git(self.world.resource, "update-ref", "refs/heads/main", self.head)
        for path in self.after.keys() - self.before.keys():
            if self.after[path][0] != "directory":
                with suppress(FileNotFoundError, NotADirectoryError):
                    (self.world.resource / path).unlink()
        for path in ("kind", "made"):
            if (self.world.resource / path).is_dir():
                (self.world.resource / path).rmdir()
        write(self.world.resource, BEFORE)
        git(self.world.resource, "read-tree", "HEAD")
        assert self.world.files() == self.before

    def ensure_complete(self) -> str:
        """Assert the state `before` or `after`, never anything else, and no orphans."""
        files = self.world.files()
        assert files in (self.before, self.after), "files of two states are mixed"
        names = snapshot(self.world.resource, with_git=True)
        assert not [name for name in names if "cleveragents/0" in name or ".cleveragents-" in name]
        assert not [name for name in names if name.endswith(".lock")]
        still_open = select(applies.c.id).where(applies.c.ended_at.is_(None))
        with self.world.database.read() as connection:
            assert connection.execute(still_open).all() == []
        return "before" if files == self.before else "after"

    def branch(self) -> str:
        return git(self.world.resource, "rev-parse", "refs/heads/main")

    def index(self) -> bytes:
        return (self.world.resource / ".git" / "index").read_bytes()


@pytest.fixture(scope="module")
def walker() -> Iterator[Walker]:
    walker = Walker()
    yield walker
    walker.close()


@pytest.fixture
def scene(tmp_path: Path, walker: Walker) -> Iterator[Scene]:
    with world_at(tmp_path, BEFORE) as world:
        world.plan("p", EDITS)
        expected = tmp_path / "expected"
        expected.mkdir()
        write(expected, BEFORE)
        write(expected, EDITS)
        yield Scene(world, walker, world.files(), snapshot(expected), world.git("rev-parse", "HEAD"))
        world.git("fsck", "--no-dangling")


def test_an_apply_killed_at_any_step_leaves_all_files_old_or_all_new(scene: Scene) -> None:
    points = scene.points("apply")
    assert scene.ensure_complete() == "after"
    scene.reset()
    assert len([point for point, _ in points if point == "apply.move.before"]) == len(EDITS)
    outcomes = {}
    for point, nth in points:
        index = scene.index()
        assert scene.run("apply", point, nth) == "signal 9", point
        scene.recover()
        outcomes[point, nth] = scene.ensure_complete()
        assert scene.index() == index, "the index is not ours to touch"
        assert scene.branch() == scene.head
        assert scene.recover() == [], "what is settled is settled"
        if nth == 1:
            scene.world.apply("p")
            assert scene.ensure_complete() == "after", "nothing is applied twice, or not at all"
        scene.reset()
    assert outcomes["apply.move.after", 1] == "before"
    assert outcomes["apply.move.after", len(EDITS)] == "after"
    assert outcomes["apply.done.after", 1] == "after"


def test_a_commit_killed_at_any_step_keeps_files_index_and_branch_consistent(scene: Scene) -> None:
    points = scene.points("commit")
    steps = {f"apply.{step}.{moment}" for step in ("index", "ref") for moment in ("before", "after")}
    assert steps <= dict(points).keys()
    scene.reset()
    outcomes = {}
    for point, nth in points:
        index = scene.index()
        assert scene.run("commit", point, nth) == "signal 9", point
        scene.recover()
        outcomes[point] = scene.ensure_complete()
        if outcomes[point] == "before":
            assert scene.branch() == scene.head
            assert scene.index() == index, "a commit that did not happen leaves the index as it was"
        else:
            assert git(scene.world.resource, "rev-parse", "HEAD^") == scene.head, "one commit, once"
            assert git(scene.world.resource, "status", "--porcelain") == ""
        scene.reset()
    assert outcomes["apply.ref.before"] == "before"
    assert outcomes["apply.ref.after"] == "after"


def test_an_undo_killed_at_any_step_leaves_all_files_old_or_all_new(scene: Scene) -> None:
    scene.world.apply("p")
    points = scene.points("undo")
    assert scene.ensure_complete() == "before"
    for point, nth in points:
        scene.world.apply("p")
        assert scene.run("undo", point, nth) == "signal 9", point
        scene.recover()
        if scene.ensure_complete() == "after":
            scene.world.undo("p")
        assert scene.ensure_complete() == "before"


def test_the_next_recovery_completes_a_killed_one(scene: Scene) -> None:
    middle = ("apply.move.after", len(EDITS) - 1)
    assert scene.run("apply", *middle) == "signal 9"
    points = scene.points("recover")
    assert scene.ensure_complete() == "before"
    assert ("recover.move.before", 1) in points
    for point, nth in points:
        assert scene.run("apply", *middle) == "signal 9"
        assert scene.run("recover", point, nth) == "signal 9", point
        scene.recover()
        assert scene.ensure_complete() == "before"


def test_the_next_recovery_completes_a_killed_undo_of_a_commit(scene: Scene) -> None:
    assert scene.run("commit", "apply.ref.before") == "signal 9"
    points = scene.points("recover")
    for point, nth in points:
        index = scene.index()
        assert scene.run("commit", "apply.ref.before") == "signal 9"
        assert scene.run("recover", point, nth) == "signal 9", point
        scene.recover()
        assert scene.ensure_complete() == "before"
        assert scene.index() == index
        assert scene.branch() == scene.head


def test_edits_between_crash_and_recovery_are_kept(scene: Scene) -> None:
    resource = scene.world.resource
    # After four moves: the deletions, `changed.txt` and `kind/inside.txt` were moved, `made/new.sh` was not.
    assert scene.run("apply", "apply.move.after", 4) == "signal 9"
    assert (resource / "changed.txt").read_bytes() == b"one\nTWO\nthree\n"
    (resource / "changed.txt").write_bytes(b"one\nTWO\nthree\nand mine\n")
    (resource / "untouched.txt").write_bytes(b"mine, too\n")
    (recovered,) = scene.recover()
    assert recovered.plan_id == "p"
    assert not recovered.completed
    assert recovered.left_alone == ("changed.txt",)
    mine = {
        "changed.txt": ("file 644", b"one\nTWO\nthree\nand mine\n"),
        "untouched.txt": ("file 644", b"mine, too\n"),
    }
    assert scene.world.files() == scene.before | mine


def test_a_file_recreated_after_the_crash_is_not_overwritten(scene: Scene) -> None:
    resource = scene.world.resource
    assert scene.run("apply", "apply.move.after", 1) == "signal 9"
    assert not (resource / "deep/gone.txt").exists()
    write(resource, {"deep/gone.txt": b"I need it after all\n"})
    (recovered,) = scene.recover()
    assert recovered.left_alone == ("deep/gone.txt",)
    assert (resource / "deep/gone.txt").read_bytes() == b"I need it after all\n"


def test_concurrent_recoveries_recover_once(scene: Scene) -> None:
    assert scene.run("apply", "apply.move.after", 3) == "signal 9"
    programs = [
        Forked(
            [sys.executable, "-m", "tests.crash.programs.apply_recoverer", str(scene.world.home)],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    told = [int(program.communicate(timeout=240)[0]) for program in programs]
    assert sum(told) <= 1
    scene.recover()
    assert scene.ensure_complete() == "before"


def test_every_started_apply_ends_once_in_the_log(scene: Scene) -> None:
    for nth in (1, 3):
        assert scene.run("apply", "apply.move.after", nth) == "signal 9"
        scene.recover()
    scene.world.apply("p")
    with scene.world.database.read() as connection:
        rows = connection.execute(select(outbox.c.event_type, outbox.c.payload)).all()
    told = [(kind, json.loads(payload)) for kind, payload in rows if kind.startswith("apply.")]
    begun = [facts["apply_id"] for kind, facts in told if kind == "apply.started"]
    ended = {facts["apply_id"]: facts["done"] for kind, facts in told if kind == "apply.ended"}
    assert len(begun) == len(told) - len(ended) == 3
    assert [ended[apply_id] for apply_id in begun] == [False, False, True]


def test_full_durability_survives_the_same_kills(scene: Scene) -> None:
    for point, nth in (("apply.move.after", 2), ("apply.done.before", 1), ("apply.done.after", 1)):
        assert scene.run("apply", point, nth, durability="full") == "signal 9"
        scene.recover()
        if scene.ensure_complete() == "after":
            scene.reset()


def test_this_test_catches_files_written_one_by_one(scene: Scene) -> None:
    assert scene.run("naive", "apply.move.after", 2) == "signal 9"
    scene.recover()
    with pytest.raises(AssertionError, match="mixed"):
        scene.ensure_complete()
