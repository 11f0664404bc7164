"""Recovery in cases that a crash alone does not cause, and rare failures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, update

from cleveragents.apply import commit as commit_module
from cleveragents.apply.applier import TreeApplier
from cleveragents.apply.exchange import DirectoryHandle
from cleveragents.apply.journal import JournalEntry
from cleveragents.apply.lock import try_resource_lock
from cleveragents.apply.ports import CommitRequest
from cleveragents.apply.user_git import UserGit
from cleveragents.core.errors import ApplyBusy, ApplyConflict, ApplyRefused, IllegalPlanMove
from cleveragents.core.faults import NoFaults
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.tables import applies
from cleveragents.testing.clock import RaiseAt
from tests.apply_bench import Edit, Link, World, world_at

Build = Callable[..., World]

FILES: dict[str, Edit] = {"a": b"1\n2\n3\n", "b": b"x\n"}
EDITS: dict[str, Edit] = {"a": b"1\ntwo\n3\n", "b": None, "c": b"new\n"}


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Return a function that creates a world with these files."""
    with ExitStack() as opened:

        def make(files: Mapping[str, Edit] = FILES, *, name: str = "home", repository: bool = True) -> World:
            return opened.enter_context(world_at(tmp_path / name, files, repository=repository))

        yield make


def leave_prepared(world: World, commit: CommitRequest | None = None) -> str:
    """Move everything without recording it, as when the database fails at the last step."""

    def dies(connection: Connection, entry: JournalEntry, done: bool) -> None:
        raise RuntimeError("dies")

    dying = TreeApplier(world.database, UlidSource(), conclusion=dies)
    with (
        pytest.raises(RuntimeError, match="dies"),
        dying.prepare("p", world.sandboxes["p"], world.trees["p"]) as preparation,
    ):
        preparation.apply(commit)
    with world.database.read() as connection:
        query = select(applies.c.id).where(applies.c.state == "prepared")
        return str(connection.execute(query).scalar_one())


def test_recovers_without_the_kept_files(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    leave_prepared(world)
    shutil.rmtree(world.resource / ".git/cleveragents")
    after = world.files()
    (recovered,) = world.applier.recover()
    assert (recovered.completed, recovered.left_alone) == (False, ("a", "b", "c"))
    assert world.files() == after
    assert world.applier.recover() == []


def test_a_failing_recovery_does_not_block_the_others(build: Build) -> None:
    stuck, other = build(name="stuck"), build(name="other")
    for world in (stuck, other):
        world.plan("p", EDITS)
    other.database = stuck.database
    leave_prepared(stuck, CommitRequest("words"))
    with stuck.database.read() as connection:
        journal = connection.execute(select(applies.c.journal)).scalar_one()
    away = journal.replace('"git_directory":"', '"git_directory":"/nowhere')
    stuck.database.write(lambda connection: connection.execute(update(applies).values(journal=away)).rowcount)
    leave_prepared_in(other, stuck)
    recovered = stuck.applier.recover()
    assert [found.completed for found in recovered] == [True]
    with stuck.database.read() as connection:
        states = [row.state for row in connection.execute(select(applies.c.state).order_by(applies.c.number))]
    assert states == ["prepared", "done"]


def leave_prepared_in(world: World, owner: World) -> None:
    def dies(connection: Connection, entry: JournalEntry, done: bool) -> None:
        raise RuntimeError("dies")

    dying = TreeApplier(owner.database, UlidSource(), conclusion=dies)
    prepared = dying.prepare("p", world.sandboxes["p"], world.trees["p"])
    with pytest.raises(RuntimeError), prepared as preparation:
        preparation.apply()


STRAGGLER = "import sys; sys.stdin.read()"


def start_straggler(apply_id: str) -> subprocess.Popen[bytes]:
    """Start a process that looks like the git that moves the branch, and runs until its stdin is closed."""
    command = [sys.executable, "-c", STRAGGLER, "update-ref", "-m", f"cleveragents: apply {apply_id}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def test_waits_for_a_git_that_outlived_its_parent(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    straggler = start_straggler(leave_prepared(world, CommitRequest("words")))
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(world.applier.recover()))
    thread.start()
    assert found == []
    straggler.communicate(timeout=60)
    thread.join(60)
    assert len(found) == 1


def test_does_not_recover_while_git_still_runs(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "_STRAGGLER_PATIENCE_SECONDS", 0.05)
    world = build()
    world.plan("p", EDITS)
    straggler = start_straggler(leave_prepared(world, CommitRequest("words")))
    try:
        assert world.applier.recover() == []
        with pytest.raises(ApplyBusy):
            world.apply("p")
    finally:
        straggler.communicate(timeout=60)
    assert len(world.applier.recover()) == 1


def test_an_apply_ignores_interrupted_applies_of_other_resources(build: Build) -> None:
    here, there = build(name="here"), build(name="there")
    for world in (here, there):
        world.plan("p", EDITS)
    leave_prepared_in(there, here)
    here.apply("p")
    (recovered,) = here.applier.recover()
    assert recovered.completed


def test_detects_a_moved_branch_after_further_commits(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    apply_id = leave_prepared(world, CommitRequest("words"))
    (world.resource / ".git/index.lock").unlink()
    moved = world.git("rev-parse", "HEAD")
    world.git("commit", "-q", "--amend", "-m", "amended by the user, who is impatient")
    user = UserGit(world.resource / ".git", world.resource)
    assert user.has_moved("refs/heads/main", moved, apply_id), "its log says so"
    assert not user.has_moved("refs/heads/main", moved, "01ANOTHER")
    assert not user.has_moved("refs/heads/none", moved, apply_id)
    first = world.git("rev-parse", "HEAD^")
    assert user.has_moved("refs/heads/main", first, "01ANOTHER"), "it went on from there"
    (recovered,) = world.applier.recover()
    assert recovered.completed
    assert world.git("log", "-1", "--format=%s") == "amended by the user, who is impatient"
    assert world.git("status", "--porcelain") == ""


def test_an_empty_apply_is_recorded(build: Build) -> None:
    apply_if_allowed: list[bool] = []
    world = build()
    world.plan("p", {})
    world.applier = TreeApplier(
        world.database,
        UlidSource(),
        conclusion=lambda _connection, _entry, done: apply_if_allowed.append(done),
    )
    world.apply("p")
    assert apply_if_allowed == [True]


@pytest.mark.parametrize("change", ["gone", "a link", "a pipe"])
def test_a_file_replaced_by_another_kind_is_left_alone(build: Build, change: str) -> None:
    world = build()
    world.plan("p", EDITS)
    with world.prepare("p") as preparation:
        (world.resource / "a").unlink()
        if change == "a link":
            world.write({"a": Link("b")})
        elif change == "a pipe":
            os.mkfifo(world.resource / "a")
        with pytest.raises(ApplyConflict) as caught:
            preparation.apply()
    assert caught.value.paths == ("a",)
    assert (world.resource / "b").exists()
    assert not (world.resource / ".git/cleveragents").exists()


def test_refuses_a_missing_resource(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    shutil.rmtree(world.resource)
    with pytest.raises(ApplyRefused, match="no longer a directory"):
        world.apply("p")


def test_applies_to_a_former_repository_as_a_directory(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    shutil.rmtree(world.resource / ".git")
    with pytest.raises(ApplyRefused, match="not a git repository"):
        world.apply("p", CommitRequest("words"))
    world.apply("p")
    assert (world.resource / "a").read_bytes() == EDITS["a"]
    assert not (world.resource / "b").exists()


def test_commits_with_full_durability(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    applied = world.with_faults(NoFaults(), "full").apply("p", CommitRequest("words"))
    assert applied.commit == world.git("rev-parse", "HEAD")
    failing = world.with_faults(RaiseAt("undo.move.after", lambda: OSError("no")), "full")
    after = world.files()
    with pytest.raises(ApplyRefused):
        failing.undo("p")
    assert world.files() == after


def test_large_files_are_distinguished_by_their_last_byte(tmp_path: Path) -> None:
    content = bytes(3 << 20)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(content[:-1] + b"x")
    said = subprocess.run(
        ["git", "hash-object", "--no-filters", "a"], cwd=tmp_path, capture_output=True, check=True, text=True
    ).stdout.strip()
    with DirectoryHandle(tmp_path) as folder:
        first, second = folder.look("a", said), folder.look("b", said)
    assert first.blob == said
    assert second.blob != said
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("wanted", ["apply", "undo"])
def test_refuses_a_read_only_directory_and_changes_nothing(build: Build, wanted: str) -> None:
    world = build({"a": b"1\n", "shut/x": b"x\n"})
    world.plan("p", {"a": b"2\n", "shut/x": b"y\n"})
    act = world.apply
    if wanted == "undo":
        act("p")
        act = world.undo
    before = world.files()
    with read_only(world.resource / "shut"), pytest.raises(ApplyRefused) as refused:
        act("p")
    assert world.files() == before
    assert not (world.resource / ".git/cleveragents").exists()
    why = "(you may not write to its directory|the file or its directory is immutable, or belongs to another)"
    assert re.match(f"cannot write shut/x: {why}", refused.value.reason)
    again, *others = refused.value.remedies
    assert (again.action, again.text) == (f"plan.{wanted}", f"Make it writable, then {wanted} again")
    left_out = [("plan.review", {"reject": "shut/x"})] if wanted == "apply" else []
    assert [(remedy.action, remedy.options) for remedy in others] == left_out
    act("p")


def read_only(directory: Path) -> ExitStack:
    """Make the directory immutable for the block; root obeys only the file system."""
    stack = ExitStack()
    if os.geteuid() != 0:
        directory.chmod(0o555)
        stack.callback(directory.chmod, 0o755)
        return stack
    chattr = shutil.which("chattr")
    if (
        chattr is None
        or subprocess.run([chattr, "+i", directory], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs chattr +i, because root may write anywhere")
    stack.callback(subprocess.run, [chattr, "-i", str(directory)], check=True)
    return stack


def test_a_signature_program_of_the_repository_does_not_run(build: Build, tmp_path: Path) -> None:
    world = build()
    world.plan("p", EDITS)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    raw = f"tree {world.git('rev-parse', 'HEAD^{tree}')}\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n"
    (tmp_path / "signed").write_text(f"{raw}{signature}\nsigned\n")
    signed = world.git("hash-object", "-t", "commit", "-w", str(tmp_path / "signed"))
    other = world.git("commit-tree", "-m", "other", "HEAD^{tree}")
    world.git("config", "log.showSignature", "true")
    world.git("config", "gpg.program", str(program))
    world.git("update-ref", "refs/heads/main", signed)
    assert not UserGit(world.resource / ".git", world.resource).has_moved("refs/heads/main", other, "mark")
    assert not (tmp_path / "ran").exists()


def test_only_our_staging_directories_count_as_an_interrupted_apply(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    for name in ("notes/old", "notes/new", "01KAAAAAAAAAAAAAAAAAAAAAAA/old"):
        (world.resource / f".cleveragents-{name}").mkdir(parents=True)
    (world.resource / ".cleveragents-01KBBBBBBBBBBBBBBBBBBBBBBB").write_text("a file")
    with world.prepare("p") as preparation:
        assert not preparation.conflicts
    (world.resource / ".cleveragents-01KAAAAAAAAAAAAAAAAAAAAAAA/new").mkdir()
    with pytest.raises(ApplyRefused, match="01KAAAAAAAAAAAAAAAAAAAAAAA holds the only copies"):
        world.apply("p")


@pytest.mark.parametrize("how", ["moved away", "unmounted", "without its git directory"])
def test_an_unreachable_apply_is_ended_when_it_is_back(build: Build, how: str) -> None:
    world = build()
    world.plan("p", EDITS)
    leave_prepared(world)
    part = world.resource / ".git" if how == "without its git directory" else world.resource
    away = world.home / "away"
    part.rename(away)
    if how == "unmounted":
        part.mkdir()
    assert world.applier.recover() == []
    assert world.applier.undecided() == {"p"}
    if how != "moved away":
        with pytest.raises(ApplyRefused, match="out of reach"):
            world.apply("p")
    if how == "unmounted":
        part.rmdir()
    away.rename(part)
    (recovered,) = world.applier.recover()
    assert recovered.completed
    assert world.applier.undecided() == frozenset()


def test_refuses_an_apply_after_one_that_cannot_be_ended(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    staging = world.resource / ".git/cleveragents" / leave_prepared(world)
    (staging / "new").rename(staging / "elsewhere")
    with pytest.raises(ApplyRefused, match="cannot end the interrupted apply of plan p"):
        world.apply("p")
    assert world.applier.undecided() == {"p"}


def test_a_refused_conclusion_does_not_block_the_others(build: Build) -> None:
    stuck, other = build(name="stuck"), build(name="other")
    for world in (stuck, other):
        world.plan("p", EDITS)
    leave_prepared(stuck)
    leave_prepared_in(other, stuck)

    def refuse(connection: Connection, entry: JournalEntry, done: bool) -> None:
        if entry.resource == str(stuck.resource):
            raise IllegalPlanMove("p", "one", "another")

    (recovered,) = TreeApplier(stuck.database, UlidSource(), conclusion=refuse).recover()
    assert recovered.completed
    assert stuck.applier.undecided() == {"p"}


@pytest.mark.parametrize("there", [True, False])
def test_a_given_up_apply_keeps_its_files_and_holds_no_lock(build: Build, there: bool) -> None:
    world = build()
    world.plan("p", EDITS)
    world.plan("q", {})
    leave_prepared(world, CommitRequest("words"))
    assert world.applier.give_up("q") == []
    after = world.files()
    if not there:
        world.resource.rename(world.home / "away")
    assert world.applier.give_up("p") == [str(world.resource)]
    assert world.applier.undecided() == frozenset()
    if not there:
        (world.home / "away").rename(world.resource)
    assert world.files() == after
    assert (world.resource / ".git/index.lock").exists() is not there
    assert world.applier.recover() == []


def test_a_running_apply_is_not_given_up(build: Build) -> None:
    world = build()
    world.plan("p", EDITS)
    leave_prepared(world)
    with try_resource_lock(world.resource), pytest.raises(ApplyBusy):
        world.applier.give_up("p")
    assert world.applier.undecided() == {"p"}
