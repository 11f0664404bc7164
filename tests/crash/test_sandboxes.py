"""Sandboxes of killed processes, and of many concurrent ones: nothing broken, nothing stale."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cleveragents.core.errors import SandboxMissing
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.storage.database import open_database
from tests.fork_server import Forked
from tests.ready_database import ready_database
from tests.sandbox_resources import fingerprint, git, make_repository, write

PROGRAM = "tests.crash.programs.sandbox_maker"
ROOT = Path(__file__).parents[2]
CREATING = ["before", "after-ref", "after-checkout", "after"]
REMOVING = ["before", "after-ref", "after"]


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "resource", {f"d{n % 7}/f{n}": f"{n}\n" for n in range(60)})
    write(made, {"d0/f0": "staged\n"})
    git(made, "add", "d0/f0")
    write(made, {"d1/f1": "edited\n", "untracked": "u\n"})
    return made


def start(tmp_path: Path, resource: Path, prefix: str, count: int, point: str = "-") -> subprocess.Popen[str]:
    url = ready_database(tmp_path / "store.db")
    words = [url, str(tmp_path / "sandboxes"), str(resource), prefix, str(count), point]
    return Forked(
        [sys.executable, "-m", PROGRAM, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def run(tmp_path: Path, resource: Path, point: str) -> list[str]:
    """Return the output before the process was killed at that point."""
    with start(tmp_path, resource, "plan", 1, point) as process:
        said, _ = process.communicate("go\n", timeout=240)
    assert process.returncode == -signal.SIGKILL
    return said.splitlines()


def check_nothing_is_left(tmp_path: Path, resource: Path, before: dict[str, str]) -> None:
    assert list((tmp_path / "sandboxes").iterdir()) == []
    git(resource, "fsck", "--strict")
    after = fingerprint(resource)
    after.pop(".git/refs/cleveragents", None)
    assert after == before


@pytest.mark.parametrize("point", [f"create.{p}" for p in CREATING] + [f"remove.{p}" for p in REMOVING])
def test_a_killed_creation_is_repeated_completely(tmp_path: Path, resource: Path, point: str) -> None:
    """anthropics/claude-code#47266: an interrupted creation left orphan branches and locks."""
    before = fingerprint(resource)
    run(tmp_path, resource, f"sandbox.{point}")
    with open_database(f"sqlite:///{tmp_path}/store.db") as database:
        registry = SandboxRegistry(database, tmp_path / "sandboxes")
        with pytest.raises(SandboxMissing):
            registry.open("plan-0")
        sandbox = registry.create(SandboxRequest("plan-0", resource))
        assert sandbox.scan() == {}
        assert (sandbox.root / "d0/f0").read_text() == "staged\n"
        assert (sandbox.root / "d1/f1").read_text() == "edited\n"
        assert (sandbox.root / "untracked").exists()
        git(sandbox.root, "fsck")
        registry.remove("plan-0")
    check_nothing_is_left(tmp_path, resource, before)


@pytest.mark.parametrize("point", [f"create.{p}" for p in CREATING] + [f"remove.{p}" for p in REMOVING])
def test_orphans_of_a_killed_creation_are_found_and_removed(
    tmp_path: Path, resource: Path, point: str
) -> None:
    before = fingerprint(resource)
    run(tmp_path, resource, f"sandbox.{point}")
    with open_database(f"sqlite:///{tmp_path}/store.db") as database:
        registry = SandboxRegistry(database, tmp_path / "sandboxes")
        assert [(left.kind, left.plan_id) for left in registry.leftovers([resource])] == [("row", "plan-0")]
        assert [left.plan_id for left in registry.remove_orphans()] == ["plan-0"]
        assert registry.leftovers([resource]) == []
        assert registry.remove_orphans() == []
        assert registry.rows() == []
    check_nothing_is_left(tmp_path, resource, before)


def test_eight_processes_create_and_remove_64_sandboxes(tmp_path: Path, resource: Path) -> None:
    """anthropics/claude-code#34645, Intrect-io/OpenSwarm#685: `could not lock config file` when worktrees are
    added concurrently; 27 of 40 creations failed.
    """
    before = fingerprint(resource)
    running = [start(tmp_path, resource, f"p{number}", 8) for number in range(8)]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=240)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0] * 8, said
    assert sum(lines.count("made ") for lines in said) == 64
    assert sum(lines.count("removed ") for lines in said) == 64
    check_nothing_is_left(tmp_path, resource, before)
    assert git(resource, "for-each-ref", "refs/cleveragents") == b""
