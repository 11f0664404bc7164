"""A backup is complete although work continues, and a restored state continues where it was."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.storage.backup import back_up
from tests.cli_bench import COMMAND, Agents, command_line, paint_shop, use_home


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(paint_shop(tmp_path / "shop"))
    return tmp_path


@pytest.fixture
def agents(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    with command_line(monkeypatch, capfd) as run:
        yield run


def made(agents: Agents, name: str) -> str:
    """Return a plan whose result is ready to be applied."""
    ended = agents(*COMMAND[:-1], "--review", "--", "sh", "-c", f"echo {name} > {name}.txt")
    assert ended.code == 0, ended.err
    return ended.id


def test_a_restored_backup_can_be_verified_applied_and_undone(place: Path, agents: Agents) -> None:
    plan = made(agents, "before")
    assert agents("backup", str(place / "copy")).code == 0
    later = made(agents, "later")
    state = place / "state"
    shutil.rmtree(state)
    shutil.copytree(place / "copy", state, symlinks=True)
    assert "verified" in agents("events", "verify").out
    assert later not in agents("plan", "list").out
    assert agents("plan", "apply", plan).code == 0
    assert (place / "shop" / "before.txt").read_text() == "before\n"
    assert agents("plan", "undo", plan).code == 0
    assert not (place / "shop" / "before.txt").exists()
    assert "verified" in agents("events", "verify").out


def test_a_log_that_grows_while_it_is_copied_is_whole(place: Path, agents: Agents) -> None:
    made(agents, "first")
    stop = threading.Event()
    copies = iter(range(100))

    def copy() -> None:
        while not stop.is_set():
            _copied(place, f"copy-{next(copies)}")

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        for number in range(3):
            made(agents, f"more-{number}")
    finally:
        stop.set()
        copying.join()
    found = sorted(place.glob("copy-*"))
    assert found
    state = place / "state"
    for one in (found[0], found[-1]):
        shutil.rmtree(state)
        shutil.copytree(one, state, symlinks=True)
        assert "verified" in agents("events", "verify").out


def _copied(place: Path, name: str) -> None:
    state = place / "state"
    back_up(state, f"sqlite:///{state / 'state.db'}", place / name, lambda line: None)


def test_skips_a_directory_that_disappears_during_the_copy(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes = place / "state" / "sandboxes"
    for name in ("one", "other"):
        (sandboxes / name).mkdir(parents=True)
        (sandboxes / name / "file").touch()
    keep_times, copied = os.utime, list[int]()

    def keep_and_remove(descriptor: int, *, ns: tuple[int, int]) -> None:
        keep_times(descriptor, ns=ns)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            copied.append(descriptor)
            for name in (
                "one",
                "other",
            ):  # its own directory, whose listing is being copied, and one that was listed
                shutil.rmtree(sandboxes / name)

    monkeypatch.setattr(os, "utime", keep_and_remove)
    ended = back_up(place / "state", "postgresql://elsewhere", place / "copy", lambda line: None)
    assert len(copied) == 1
    assert len(list((place / "copy" / "sandboxes").glob("*/file"))) == 1
    assert ended.sandboxes == 1


def test_reports_files_of_a_sandbox_that_cannot_be_copied(place: Path, agents: Agents) -> None:
    plan = made(agents, "one")
    tree = place / "state" / "sandboxes" / plan / "tree"
    os.mkfifo(tree / "pipe")
    ended = agents("backup", str(place / "copy"), "--format", "json")
    assert ended.code == 0
    assert f"left out 1 entry, which cannot be copied: sandboxes/{plan}/tree/pipe" in ended.err
    assert json.loads(ended.out)["left_out"] == [f"sandboxes/{plan}/tree/pipe"]
    assert (place / "copy" / "sandboxes" / plan / "tree" / "one.txt").is_file()


def test_fails_if_an_existing_file_cannot_be_copied(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "state" / "sandboxes" / "one").mkdir(parents=True)
    (place / "state" / "sandboxes" / "one" / "file").touch()

    def full(descriptor: int, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "utime", full)
    with pytest.raises(OSError, match="No space left"):
        back_up(place / "state", "postgresql://elsewhere", place / "copy", lambda line: None)
    assert not (place / "copy").exists()


def test_replaces_no_backup_and_ignores_an_incomplete_one(place: Path, agents: Agents) -> None:
    made(agents, "one")
    (place / "copy").mkdir()
    refused = agents("backup", str(place / "copy"))
    assert refused.code == 2
    assert "already exists; name a new directory" in refused.err
    inside = agents("backup", str(place / "state" / "copy"))
    assert inside.code == 2
    assert "name a directory outside it" in inside.err
    (place / "other.partial").mkdir()
    (place / "other.partial" / "half").touch()
    assert agents("backup", str(place / "other")).code == 0
    assert not (place / "other" / "half").exists()


def test_a_backup_is_private(place: Path, agents: Agents) -> None:
    made(agents, "one")
    agents("backup", str(place / "copy"))
    assert stat.S_IMODE((place / "copy").stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "copy" / "state.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((place / "copy" / "audit.key").stat().st_mode) == 0o600


def test_does_not_copy_a_database_outside_the_state_directory(place: Path, agents: Agents) -> None:
    made(agents, "one")
    elsewhere = ("--set", "database.url=postgresql://agents@db.example/agents")
    ended = agents(*elsewhere, "backup", str(place / "copy"), "--format", "json")
    assert ended.code == 0
    assert "pg_dump" in ended.err
    assert '"database": null' in ended.out
    assert not (place / "copy" / "state.db").exists()
