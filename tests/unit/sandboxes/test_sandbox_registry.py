"""Sandboxes in the database: found by every process, created once, and only orphans of dead processes are
removed.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from cleveragents.core.errors import GitFailed, QuotaExceeded, SandboxBusy, SandboxMissing, SandboxRefused
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.lock import locked
from cleveragents.sandboxes.orphans import SandboxOrphan, find_orphans, remove_orphans
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.sandboxes.rows import SandboxRow
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.tables import outbox
from cleveragents.testing.clock import FakeClock, RaiseAt, RecordFaultPoints
from tests.ready_database import ready_database
from tests.sandbox_resources import git, make_repository, write


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(ready_database(tmp_path / "store.db")) as opened:
        yield opened


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "resource", {"a": "1\n"})


@pytest.fixture
def registry(database: Database, tmp_path: Path) -> SandboxRegistry:
    return SandboxRegistry(database, tmp_path / "sandboxes")


def events(database: Database) -> list[tuple[str, str]]:
    with database.read() as connection:
        found = connection.execute(select(outbox.c.event_type, outbox.c.subject).order_by(outbox.c.number))
        return [(kind, subject) for kind, subject in found]


def pins(resource: Path) -> bytes:
    return git(resource, "for-each-ref", "--format=%(refname)", "refs/cleveragents")


def test_a_sandbox_is_created_found_removed_and_logged(
    registry: SandboxRegistry, database: Database, resource: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    sandbox = registry.create(SandboxRequest("plan-1", resource), progress=told.append)
    assert told == [f"making a sandbox of {resource}"]
    assert sandbox.root.parent.stat().st_mode & 0o077 == 0, "others on the machine could read it"
    elsewhere = SandboxRegistry(database, tmp_path / "sandboxes")
    assert elsewhere.open("plan-1").root == sandbox.root
    (row,) = registry.rows()
    assert (row.plan_id, row.strategy, row.state, row.resource) == (
        "plan-1",
        "private_clone",
        "ready",
        resource,
    )
    for _ in range(2):
        registry.remove("plan-1")
    assert registry.rows() == []
    assert list(registry.directory.iterdir()) == []
    assert pins(resource) == b""
    with pytest.raises(SandboxMissing):
        registry.open("plan-1")
    assert events(database) == [("sandbox.created", "plan-1"), ("sandbox.removed", "plan-1")]


def test_creating_again_returns_the_same_sandbox(registry: SandboxRegistry, resource: Path) -> None:
    write(registry.create(SandboxRequest("plan-1", resource)).root, {"a": "work\n"})
    again = registry.create(SandboxRequest("plan-1", resource))
    assert set(again.scan()) == {"a"}


def test_a_plain_directory_gets_the_other_strategy(registry: SandboxRegistry, tmp_path: Path) -> None:
    write(tmp_path / "plain", {"a": "1\n"})
    registry.create(SandboxRequest("plan-1", tmp_path / "plain"))
    assert registry.rows()[0].strategy == "directory_copy"
    registry.remove("plan-1")


@pytest.mark.parametrize("plan_id", ["../evil", "a/b", "", ".", "x y", "-d"])
def test_refuses_a_plan_id_with_a_path(registry: SandboxRegistry, resource: Path, plan_id: str) -> None:
    with pytest.raises(SandboxRefused, match="invalid plan id"):
        registry.create(SandboxRequest(plan_id, resource))


def test_a_failed_creation_leaves_nothing(
    registry: SandboxRegistry, database: Database, resource: Path, tmp_path: Path
) -> None:
    with pytest.raises(SandboxRefused, match="no such directory"):
        registry.create(SandboxRequest("plan-1", tmp_path / "missing"))
    name = git(resource, "rev-parse", "HEAD:a").decode().strip()
    (resource / ".git" / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(GitFailed):
        registry.create(SandboxRequest("plan-1", resource, from_head=True))
    assert registry.rows() == []
    assert not list(registry.directory.glob("*"))
    assert pins(resource) == b""
    assert events(database) == []


def test_refuses_a_read_only_repository_and_leaves_nothing(registry: SandboxRegistry, resource: Path) -> None:
    write(resource / ".git/refs", {"cleveragents": "blocks the directory for every user\n"})
    with pytest.raises(SandboxRefused, match="cannot write the ref of the plan's base in"):
        registry.create(SandboxRequest("plan-1", resource))
    assert registry.rows() == []
    assert list(registry.directory.iterdir()) == []


def test_a_sandbox_stays_registered_if_its_pin_cannot_be_removed(
    registry: SandboxRegistry, resource: Path
) -> None:
    registry.create(SandboxRequest("plan-1", resource))
    git(resource, "pack-refs", "--all")
    lock = resource / ".git/packed-refs.new"
    lock.mkdir()
    with pytest.raises(SandboxRefused, match="cannot remove the ref of plan plan-1"):
        registry.remove("plan-1")
    assert [row.plan_id for row in registry.rows()] == ["plan-1"]
    lock.rmdir()
    registry.remove("plan-1")
    assert (pins(resource), registry.rows()) == (b"", [])


def test_the_quota_is_checked_before_creation(database: Database, resource: Path, tmp_path: Path) -> None:
    """anthropics/claude-code#63087: 27 forgotten worktrees took 80 GB."""
    write(resource, {"large": "x" * 100_000})
    registry = SandboxRegistry(database, tmp_path / "sandboxes", quota_bytes=150_000)
    registry.create(SandboxRequest("plan-1", resource))
    registry.create(SandboxRequest("plan-2", resource))
    with pytest.raises(QuotaExceeded) as caught:
        registry.create(SandboxRequest("plan-3", resource))
    assert caught.value.used_bytes >= 200_000
    registry.remove("plan-1")
    registry.create(SandboxRequest("plan-3", resource))


def test_measuring_includes_new_files(registry: SandboxRegistry, resource: Path) -> None:
    sandbox = registry.create(SandboxRequest("plan-1", resource))
    small = registry.used_bytes()
    write(sandbox.root, {"large.bin": os.urandom(1_000_000)})
    assert registry.measure("plan-1") > small + 1_000_000
    assert registry.used_bytes() > small + 1_000_000
    with pytest.raises(SandboxMissing):
        registry.measure("plan-2")


def test_refuses_to_remove_a_sandbox_in_use(registry: SandboxRegistry, resource: Path) -> None:
    """openai/codex#24703: a cleanup removed another live agent's worktree."""
    sandbox = registry.create(SandboxRequest("plan-1", resource))
    with sandbox.writing():
        with pytest.raises(SandboxBusy):
            registry.remove("plan-1")
        assert (sandbox.root / "a").exists()
        assert registry.remove_orphans() == []
    registry.remove("plan-1")


def test_refuses_to_create_a_sandbox_that_another_process_creates(
    registry: SandboxRegistry, resource: Path
) -> None:
    place = SandboxLayout(registry.directory / "plan-1")
    place.directory.mkdir(parents=True)
    place.lock.touch()
    with locked(place.lock, "plan-1"), pytest.raises(SandboxBusy):
        registry.create(SandboxRequest("plan-1", resource))


def test_waiting_for_a_removed_sandbox_raises(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    came: list[type] = []

    def wait() -> None:
        try:
            with locked(lock, "plan-1", timeout_seconds=30):
                came.append(object)
        except SandboxMissing:
            came.append(SandboxMissing)

    with locked(lock, "plan-1"):
        waiting = [threading.Thread(target=wait) for _ in range(2)]
        for thread in waiting:
            thread.start()
        while _holders(lock) < 3:
            threading.Event().wait(0.001)
        # Like a peer that removes and recreates it.
        lock.unlink()
    waiting[0].join(30)
    lock.touch()
    waiting[1].join(30)
    assert came == [SandboxMissing] * 2


def _holders(path: Path) -> int:
    """Return how many descriptors of the file this process has."""
    links = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return links.count(str(path))


class MeanwhilePeer:
    """A strategy with an action of a peer while it is chosen, as may happen at any moment."""

    name = PrivateClone.name

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed = deed
        self._inner = PrivateClone()

    def suits(self, resource: Path) -> bool:
        self._deed()
        return True

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_a_sandbox_created_by_a_peer_is_reused(
    registry: SandboxRegistry, database: Database, resource: Path
) -> None:
    def peer() -> None:
        write(registry.create(SandboxRequest("plan-1", resource)).root, {"a": "the peer's work\n"})

    late = SandboxRegistry(database, registry.directory, strategies=[MeanwhilePeer(peer)])
    assert set(late.create(SandboxRequest("plan-1", resource)).scan()) == {"a"}
    assert events(database) == [("sandbox.created", "plan-1")]


class MovingRows:
    """A registry with an action during a read of the rows."""

    def __init__(self, directory: Path, *looks: Callable[[], list[SandboxRow]]) -> None:
        self.directory = directory
        self._looks = iter(looks)

    def rows(self) -> list[SandboxRow]:
        return next(self._looks)()

    def taken_over(self) -> frozenset[str]:
        return frozenset()

    def remove(self, plan_id: str) -> None:
        raise AssertionError("not a row")


def test_a_remnant_that_became_a_sandbox_is_not_removed(tmp_path: Path) -> None:
    write(tmp_path / "sandboxes" / "plan-1", {"tree/a": "1\n", "lock": ""})
    now = later(hours=2).now()
    row = SandboxRow("plan-1", "private_clone", tmp_path, "making", tmp_path, 0, now)
    rows = MovingRows(tmp_path / "sandboxes", list, lambda: [row])
    assert remove_orphans(rows, now) == []
    assert (tmp_path / "sandboxes/plan-1/tree/a").exists()


@pytest.mark.parametrize("held", [{"lock": ""}, {"tree/a": "1\n"}, {"sandbox.json": "{}"}])
def test_a_sandbox_removed_during_the_search_is_no_orphan(tmp_path: Path, held: dict[str, str]) -> None:
    gone = tmp_path / "sandboxes" / "plan-1"
    write(gone, held)

    def remove() -> list[SandboxRow]:
        shutil.rmtree(gone)
        return []

    rows = MovingRows(tmp_path / "sandboxes", remove)
    assert find_orphans(rows, later(hours=2).now()) == []


def test_a_remnant_removed_by_another_is_not_reported(tmp_path: Path) -> None:
    for name in ("plan-1", "plan-2"):
        write(tmp_path / "sandboxes" / name, {"tree/a": "1\n"})

    def remove() -> list[SandboxRow]:
        shutil.rmtree(tmp_path / "sandboxes" / "plan-2")
        return []

    rows = MovingRows(tmp_path / "sandboxes", list, remove)
    assert [left.plan_id for left in remove_orphans(rows, later(hours=2).now())] == ["plan-1"]


def test_fault_points_are_announced_in_order(database: Database, resource: Path, tmp_path: Path) -> None:
    points = RecordFaultPoints()
    registry = SandboxRegistry(database, tmp_path / "sandboxes", faults=points)
    registry.create(SandboxRequest("plan-1", resource))
    registry.remove("plan-1")
    assert points.reached == [
        "sandbox.create.before",
        "sandbox.create.after-ref",
        "sandbox.create.after-checkout",
        "sandbox.create.after",
        "sandbox.remove.before",
        "sandbox.remove.after-ref",
        "sandbox.remove.after",
    ]


@pytest.mark.parametrize("point", ["before", "after-ref", "after-checkout", "after"])
def test_an_error_during_creation_leaves_nothing(
    database: Database, resource: Path, tmp_path: Path, point: str
) -> None:
    faults = RaiseAt(f"sandbox.create.{point}", lambda: OSError("no space left on device"))
    registry = SandboxRegistry(database, tmp_path / "sandboxes", faults=faults)
    with pytest.raises(OSError, match="no space"):
        registry.create(SandboxRequest("plan-1", resource))
    assert registry.rows() == []
    assert list(registry.directory.iterdir()) == []
    assert pins(resource) == b""
    assert registry.create(SandboxRequest("plan-1", resource)).scan() == {}


@pytest.mark.parametrize("point", ["before", "after-ref", "after"])
def test_the_next_removal_finishes_an_interrupted_one(
    database: Database, resource: Path, tmp_path: Path, point: str
) -> None:
    SandboxRegistry(database, tmp_path / "sandboxes").create(SandboxRequest("plan-1", resource))
    faults = RaiseAt(f"sandbox.remove.{point}", lambda: OSError("interrupted"))
    registry = SandboxRegistry(database, tmp_path / "sandboxes", faults=faults)
    with pytest.raises(OSError, match="interrupted"):
        registry.remove("plan-1")
    with pytest.raises(SandboxMissing):
        registry.open("plan-1")
    (left,) = registry.leftovers()
    assert (left.kind, left.removable) == ("row", True)
    with locked(
        SandboxLayout(registry.directory / "plan-1").lock, "plan-1"
    ):  # by the process that is about to finish it
        assert registry.leftovers() == []
        assert registry.remove_orphans() == []
    assert registry.remove_orphans() == [left]
    assert registry.rows() == []
    assert list(registry.directory.iterdir()) == []
    assert pins(resource) == b""
    assert events(database)[-1] == ("sandbox.removed", "plan-1")


def names(found: object) -> list[tuple[str, str, bool]]:
    assert isinstance(found, list)
    return [(left.kind, left.plan_id, left.removable) for left in found if isinstance(left, SandboxOrphan)]


def later(hours: float) -> FakeClock:
    return FakeClock(datetime.now(UTC) + timedelta(hours=hours))


def test_a_ready_sandbox_is_no_orphan(registry: SandboxRegistry, resource: Path) -> None:
    assert registry.leftovers() == []
    registry.create(SandboxRequest("plan-1", resource))
    assert registry.leftovers([resource]) == []
    assert registry.remove_orphans() == []


def test_a_sandbox_that_lost_its_facts_keeps_its_files(registry: SandboxRegistry, resource: Path) -> None:
    sandbox = registry.create(SandboxRequest("damaged", resource))
    (sandbox.root / "work.txt").write_text("nowhere else")
    (registry.directory / "damaged" / "sandbox.json").unlink()
    assert names(registry.leftovers()) == [("row", "damaged", False)]
    assert registry.remove_orphans() == []
    assert (sandbox.root / "work.txt").read_text() == "nowhere else"


def test_a_row_without_a_directory_is_removed_with_its_pin(registry: SandboxRegistry, resource: Path) -> None:
    sandbox = registry.create(SandboxRequest("plan-1", resource))
    sandbox.root.parent.rename(registry.directory.parent / "elsewhere")
    with pytest.raises(SandboxMissing):
        registry.create(SandboxRequest("plan-1", resource))
    assert names(registry.remove_orphans()) == [("row", "plan-1", True)]
    assert registry.rows() == []
    assert pins(resource) == b""


def test_a_complete_sandbox_without_a_row_is_reported_and_never_removed(
    database: Database, resource: Path, tmp_path: Path
) -> None:
    """openai/codex#24703 and anthropics/claude-code#48927: it may belong to others, be in use,
    or hold work.
    """
    with open_database(ready_database(tmp_path / "other.db")) as other:
        theirs = SandboxRegistry(other, tmp_path / "sandboxes").create(SandboxRequest("plan-1", resource))
        registry = SandboxRegistry(database, tmp_path / "sandboxes", clock=later(hours=1000))
        found = registry.leftovers([resource, tmp_path / "plain"])
        assert names(found) == [("directory", "plan-1", False), ("pin", "plan-1", False)]
        assert all(left.advice for left in found)
        assert registry.remove_orphans() == []
        assert (theirs.root / "a").exists()
        assert theirs.scan() == {}


def test_a_remnant_without_a_row_is_removed_when_it_is_old_and_unlocked(
    database: Database, tmp_path: Path
) -> None:
    place = SandboxLayout(tmp_path / "sandboxes" / "plan-1")
    write(place.directory, {"lock": "", "tree/a": "1\n", "engine/HEAD": ""})
    (tmp_path / "sandboxes" / "plan-2").mkdir()
    young = SandboxRegistry(database, tmp_path / "sandboxes")
    assert young.leftovers() == []
    registry = SandboxRegistry(database, tmp_path / "sandboxes", clock=later(hours=2))
    with locked(place.lock, "plan-1"):
        assert names(registry.remove_orphans()) == [("directory", "plan-2", True)]
    assert names(registry.remove_orphans()) == [("directory", "plan-1", True)]
    assert list(registry.directory.iterdir()) == []


def test_other_directories_are_never_removed(database: Database, tmp_path: Path) -> None:
    write(tmp_path / "sandboxes", {"precious/thesis.tex": "years of work\n", "file": "x"})
    (tmp_path / "sandboxes" / "link").symlink_to(tmp_path)
    registry = SandboxRegistry(database, tmp_path / "sandboxes", clock=later(hours=1000))
    assert names(registry.leftovers()) == [("directory", "precious", False)]
    assert registry.remove_orphans() == []
    assert (tmp_path / "sandboxes/precious/thesis.tex").exists()


def test_a_resource_whose_name_is_not_unicode(database: Database, tmp_path: Path) -> None:
    write(tmp_path / os.fsdecode(b"r\xff"), {"a": "1\n"})
    registry = SandboxRegistry(database, tmp_path / "sandboxes")
    registry.create(SandboxRequest("plan-1", tmp_path / os.fsdecode(b"r\xff")))
    assert registry.open("plan-1").scan() == {}
    registry.remove("plan-1")
