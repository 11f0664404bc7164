"""Ignored files created by steps: distinguished from copied ones, hidden for a while, and never lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cleveragents.core.errors import SandboxMissing, SandboxRefused
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from tests.sandbox_resources import fingerprint, make_repository, write

ROOT = Path(__file__).parents[3]
FILES = {"a": "a\n", "src/b": "b\n", ".gitignore": "*.log\n/build/\n/config/\n__pycache__/\n"}
KILLED = """
import os, signal, sys
from pathlib import Path
from cleveragents.core.faults import NoFaults
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.testing.clock import CrashAt
resource, directory, point = map(str, sys.argv[1:])
sandbox = PrivateClone(CrashAt(point)).open("plan-1", Path(resource), Path(directory))
with sandbox.writing(), sandbox.without_ignored():
    (sandbox.root / "build").mkdir()
    (sandbox.root / "build/junk").touch()
    (sandbox.root / "src/x.log").write_text("of a check")
    if point == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "r", FILES)
    write(made, {"config/.env": "SECRET=1\n", "config/other": "o\n"})
    return made


@pytest.fixture
def sandbox(resource: Path, tmp_path: Path) -> Sandbox:
    request = SandboxRequest("plan-1", resource, include=("config/.env",))
    return PrivateClone().create(request, tmp_path / "sandbox")


def beside(sandbox: Sandbox) -> set[str]:
    return {path.name for path in sandbox.root.parent.iterdir()}


def test_a_file_beside_a_copied_one_counts_as_new(sandbox: Sandbox) -> None:
    assert sandbox.unapplied().ignored == ()
    write(sandbox.root, {"config/deep/gen.py": "1", "build/x": "2", "src/__pycache__/b": "3", "x.log": "4"})
    (sandbox.root / "config/dangling").symlink_to("/nowhere")
    named = ("build/", "config/dangling", "config/deep/", "src/__pycache__/", "x.log")
    assert sandbox.unapplied().ignored == named
    with sandbox.writing():
        pass  # its index loses its extensions
    before = fingerprint(sandbox.root)
    with sandbox.writing(), sandbox.without_ignored() as entries:
        assert entries == named
        assert sandbox.unapplied().ignored == named, "concurrent readers see them, too"
        assert (sandbox.root / "config/.env").read_text() == "SECRET=1\n"
        assert sorted(path.name for path in (sandbox.root / "config").iterdir()) == [".env"]
        assert not (sandbox.root / "build").exists()
        assert sandbox.scan() == {}
    assert fingerprint(sandbox.root) == before
    assert beside(sandbox) == {"tree", "engine", "lock", "sandbox.json"}


def test_a_durable_sandbox_works_the_same(resource: Path, tmp_path: Path) -> None:
    request = SandboxRequest("plan-1", resource, include=("config/",))
    sandbox = PrivateClone(durable=True).create(request, tmp_path / "durable")
    write(sandbox.root, {"x.log": "a step's"})
    with sandbox.writing(), sandbox.without_ignored() as entries:
        assert entries == ("x.log",)
        assert (sandbox.root / "config/other").exists()
    assert (sandbox.root / "x.log").read_text() == "a step's"


def test_a_directory_with_only_ignored_files_is_one_entry(sandbox: Sandbox) -> None:
    write(sandbox.root, {"cache/.gitignore": "*\n", "cache/x": "1", "logs/a.log": "2", "logs/b.log": "3"})
    assert sandbox.unapplied().ignored == ("cache/", "logs/")


def test_ignored_files_created_meanwhile_are_removed(sandbox: Sandbox) -> None:
    write(sandbox.root, {"build/x": "a step's", "x.log": "a step's", "src/y.log": "a step's"})
    with sandbox.writing(), sandbox.without_ignored():
        write(
            sandbox.root, {"build/x": "another", "build/y": "another", "x.log/odd": "another", "z.log": "z"}
        )
        (sandbox.root / "build").chmod(0o500)
        (sandbox.root / "config/.env").unlink()
        write(sandbox.root, {"config/.env": "brought, and changed"})
    found = fingerprint(sandbox.root, but=(".git",))
    assert {"build/x", "x.log", "src/y.log", "config/.env"} <= found.keys()
    assert found.keys().isdisjoint({"build/y", "x.log/odd", "z.log"})
    assert (sandbox.root / "build/x").read_text() == (sandbox.root / "x.log").read_text() == "a step's"


def test_setup_files_stay_visible_but_later_ones_are_hidden(sandbox: Sandbox, resource: Path) -> None:
    write(sandbox.root, {"build/lib": "set up", "config/venv/bin": "set up"})
    sandbox.count_as_set_up()
    write(sandbox.root, {"gen.log": "a step's", "config/venv/new": "in what was set up"})
    again = PrivateClone().open("plan-1", resource, sandbox.root.parent)
    again.count_as_set_up()
    assert again.unapplied().ignored == ("gen.log",)
    with again.writing(), again.without_ignored():
        assert (again.root / "build/lib").exists()
        assert (again.root / "config/.env").exists()
        assert not (again.root / "gen.log").exists()


def test_a_recorded_file_that_a_rule_ignores_later_is_no_ignored_entry(sandbox: Sandbox) -> None:
    write(sandbox.root, {"build/kept.py": "recorded", "build/gen.py": "not", "one.log": "recorded"})
    recorded = ("build/kept.py", "one.log")
    assert sandbox.unapplied(recorded).ignored == ("build/gen.py",)
    with sandbox.writing(), sandbox.without_ignored(recorded):
        assert (sandbox.root / "build/kept.py").exists()
        assert (sandbox.root / "one.log").exists()
        assert not (sandbox.root / "build/gen.py").exists()


def test_an_entry_that_cannot_return_is_kept_beside_the_files(sandbox: Sandbox) -> None:
    write(sandbox.root, {"new/x.log": "a step's", "new/file": "1"})
    with sandbox.writing(), sandbox.without_ignored():
        (sandbox.root / "new/file").unlink()
        (sandbox.root / "new").rmdir()
        (sandbox.root / "new").write_text("in the way")
    [kept] = sandbox.root.parent.glob("aside-*")
    assert (kept / "0").read_text() == "a step's"
    assert "new/x.log" in (kept / "entries.json").read_text()
    with sandbox.writing(), sandbox.without_ignored() as entries:
        assert entries == ()


def test_refuses_if_ignored_files_cannot_be_hidden(sandbox: Sandbox) -> None:
    write(sandbox.root, {"x.log": "a step's"})
    with sandbox.writing():
        (sandbox.root.parent / "set-aside").mkdir()
        with pytest.raises(SandboxRefused, match="cannot hide ignored files"), sandbox.without_ignored():
            raise AssertionError("must not be read")
    assert (sandbox.root / "x.log").read_text() == "a step's"


def test_an_unlisted_entry_is_not_deleted(sandbox: Sandbox) -> None:
    """A power cut may leave one."""
    write(sandbox.root.parent, {"set-aside/0": "somebody's", "set-aside/entries.json": ""})
    with sandbox.writing():
        [kept] = sandbox.root.parent.glob("aside-*")
    assert (kept / "0").read_text() == "somebody's"


def test_a_sandbox_without_files_is_missing_and_keeps_hidden_entries(sandbox: Sandbox) -> None:
    write(sandbox.root.parent, {"set-aside/0": "somebody's", "set-aside/entries.json": '["x.log"]'})
    sandbox.root.rename(sandbox.root.with_name("elsewhere"))
    with sandbox.writing(), pytest.raises(SandboxMissing):
        sandbox.unapplied()
    assert (sandbox.root.parent / "set-aside/0").exists()


@pytest.mark.parametrize(
    "point", ["sandbox.aside.listed", "sandbox.aside.moved", "inside", "sandbox.aside.returned"]
)
def test_the_next_writer_after_a_kill_restores_hidden_files(
    sandbox: Sandbox, resource: Path, point: str
) -> None:
    write(sandbox.root, {"build/x": "1", "build/d/y": "2", "src/x.log": "3", "config/z.log": "4"})
    (sandbox.root / "build/d").chmod(0o500)
    before = fingerprint(sandbox.root)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(resource), str(sandbox.root.parent), point],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    named = ("build/", "config/z.log", "src/x.log")
    assert sandbox.unapplied().ignored == named
    with sandbox.writing():
        assert fingerprint(sandbox.root) == before
    assert beside(sandbox) == {"tree", "engine", "lock", "sandbox.json"}
    assert sandbox.unapplied().ignored == named
