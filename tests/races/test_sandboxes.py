"""Threads that create, remove and repair the same sandboxes: one wins, the others get an error."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleveragents.core.errors import CleverAgentsError, SandboxBusy, SandboxMissing
from cleveragents.core.faults import FaultPoints
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.storage.database import Database, open_database
from tests.ready_database import ready_database
from tests.sandbox_resources import git, make_repository


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(ready_database(tmp_path / "store.db")) as opened:
        yield opened


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "resource", {"a": "1\n", "d/b": "2\n"})


class PauseAt:
    """Stops the thread that reaches `name` until the test continues it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def reach(self, name: str) -> None:
        if name == self._name:
            self.reached.set()
            assert self.go_on.wait(30)


def registry_of(database: Database, tmp_path: Path, faults: FaultPoints | None = None) -> SandboxRegistry:
    return SandboxRegistry(database, tmp_path / "sandboxes", faults=faults)


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    came: list[object] = []

    def run() -> None:
        try:
            came.append(work())
        except CleverAgentsError as error:
            came.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, came


@pytest.mark.parametrize("point", ["before", "after-ref", "after-checkout", "after"])
def test_a_sandbox_being_created_is_locked_against_others(
    database: Database, resource: Path, tmp_path: Path, point: str
) -> None:
    """anthropics/claude-code#55724: 8 of 13 agents lost their work to a lock failure and a cleanup."""
    pause = PauseAt(f"sandbox.create.{point}")
    thread, came = in_thread(
        lambda: registry_of(database, tmp_path, pause).create(SandboxRequest("plan-1", resource))
    )
    assert pause.reached.wait(30)
    other = registry_of(database, tmp_path)
    with pytest.raises(SandboxBusy):
        other.create(SandboxRequest("plan-1", resource))
    with pytest.raises(SandboxBusy):
        other.remove("plan-1")
    with pytest.raises(SandboxMissing):
        other.open("plan-1")
    assert other.leftovers() == []
    assert other.remove_orphans() == []
    pause.go_on.set()
    thread.join(30)
    (sandbox,) = came
    assert not isinstance(sandbox, BaseException)
    assert other.open("plan-1").scan() == {}
    other.remove("plan-1")


@pytest.mark.parametrize("point", ["before", "after-ref", "after"])
def test_a_sandbox_being_removed_is_locked_against_others(
    database: Database, resource: Path, tmp_path: Path, point: str
) -> None:
    pause = PauseAt(f"sandbox.remove.{point}")
    registry = registry_of(database, tmp_path, pause)
    sandbox = registry.create(SandboxRequest("plan-1", resource))
    thread, came = in_thread(lambda: registry.remove("plan-1"))
    assert pause.reached.wait(30)
    other = registry_of(database, tmp_path)
    for attempt in (
        lambda: other.create(SandboxRequest("plan-1", resource)),
        lambda: other.remove("plan-1"),
        lambda: sandbox.writing().__enter__(),
    ):
        with pytest.raises(SandboxBusy):
            attempt()
    assert other.remove_orphans() == []
    pause.go_on.set()
    thread.join(30)
    assert came == [None]
    with pytest.raises(SandboxMissing), sandbox.writing():
        raise AssertionError("wrote in what was removed")
    assert registry.rows() == []


def test_concurrent_creators_of_a_sandbox_share_it_or_get_an_error(
    database: Database, resource: Path, tmp_path: Path
) -> None:
    registry = registry_of(database, tmp_path)
    ready = threading.Barrier(6)

    def make() -> Sandbox:
        ready.wait(30)
        return registry.create(SandboxRequest("plan-1", resource))

    working = [in_thread(make) for _ in range(6)]
    for thread, _ in working:
        thread.join(60)
    kinds = Counter(type(came[0]).__name__ for _, came in working)
    assert kinds["Sandbox"] >= 1
    assert set(kinds) <= {"Sandbox", "SandboxBusy"}
    assert registry.open("plan-1").scan() == {}


def test_repeated_creation_and_removal_leaves_a_complete_plan_or_none(
    database: Database, resource: Path, tmp_path: Path
) -> None:
    registry = registry_of(database, tmp_path)
    ready = threading.Barrier(4)
    broken: list[object] = []

    def make() -> None:
        ready.wait(30)
        for _ in range(12):
            try:
                sandbox = registry.create(SandboxRequest("plan-1", resource))
                with sandbox.writing(timeout_seconds=0):
                    # While we hold it, no one can remove it.
                    if sandbox.scan() != {} or not (sandbox.root / "d/b").exists():
                        broken.append("not whole")
            except (SandboxBusy, SandboxMissing):
                continue

    def remove() -> None:
        ready.wait(30)
        for _ in range(12):
            try:
                registry.remove("plan-1")
            except SandboxBusy:
                continue

    working = [in_thread(work) for work in (make, make, remove, remove)]
    for thread, came in working:
        thread.join(60)
        assert came == [None]
    assert broken == []
    registry.remove("plan-1")
    assert registry.rows() == []
    assert list(registry.directory.iterdir()) == []
    assert git(resource, "for-each-ref", "refs/cleveragents") == b""


def test_the_user_works_in_the_repository_while_sandboxes_come_and_go(
    database: Database, resource: Path, tmp_path: Path
) -> None:
    """Commits, branches, a stash and a gc of the user neither fail nor break a sandbox."""
    registry = registry_of(database, tmp_path)
    done = threading.Event()
    sandboxes: list[Sandbox] = []

    def make() -> None:
        number = 0
        while not done.is_set() or number < 4:
            number += 1
            sandboxes.append(registry.create(SandboxRequest(f"plan-{number}", resource)))

    thread, came = in_thread(make)
    try:
        for number in range(6):
            (resource / "a").write_text(f"{number}\n")
            git(resource, "commit", "-q", "-am", f"commit {number}")
            git(resource, "branch", "-f", "other")
            (resource / "a").write_text("to be stashed\n")
            git(resource, "stash", "-q")
            git(resource, "stash", "drop", "-q")
        git(resource, "gc", "-q", "--prune=now")
    finally:
        done.set()
        thread.join(60)
    assert came == [None]
    git(resource, "reflog", "expire", "--expire=now", "--all")
    git(resource, "gc", "-q", "--prune=now")
    for sandbox in sandboxes:
        (sandbox.root / "d/b").unlink()
        found = sandbox.scan()
        assert set(found) == {"d/b"}
        sandbox.restore({path: step.before for path, step in found.items()})
        sandbox.diff(sandbox.tree({"d/b": None}))
    git(resource, "fsck", "--strict")
