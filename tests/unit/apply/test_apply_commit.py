"""Apply with a commit: only the plan's changes, only its index entries, only this branch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from cleveragents.apply import commit as commit_module
from cleveragents.apply.ports import CommitRequest
from cleveragents.core.errors import ApplyRefused
from cleveragents.testing.clock import RaiseAt
from tests.apply_bench import Edit, Program, World, git, world_at

Build = Callable[..., World]

LINES = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"
ONE = b"one" + LINES[1:]
NINE = LINES[:-2] + b"nine\n"
BOTH = ONE[:-2] + b"nine\n"
ASKED = CommitRequest("Say it in words")


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove every identity but the repository's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in list(os.environ):
        if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER")) or name == "EMAIL":
            monkeypatch.delenv(name)


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Return a function that creates a world with these files."""
    with ExitStack() as opened:

        def make(files: Mapping[str, Edit], *, repository: bool = True) -> World:
            return opened.enter_context(world_at(tmp_path / "home", files, repository=repository))

        yield make


def refused(world: World, match: str) -> None:
    """Assert that the apply is refused and touches no file, index or ref."""
    before = (world.files(), _index(world), world.git("for-each-ref"))
    with pytest.raises(ApplyRefused, match=match):
        world.apply("p", ASKED)
    assert (world.files(), _index(world), world.git("for-each-ref")) == before
    assert not (world.resource / ".git/cleveragents").exists()


def test_the_commit_has_the_plans_changes_and_trailer(build: Build) -> None:
    world = build({"a": LINES, "b/c": b"x\n", "run": b"#!\n"})
    world.plan("p", {"a": ONE, "b/c": None, "b": b"file\n", "run": Program(b"#!\n"), "new": b"y\n"})
    old = world.git("rev-parse", "HEAD")
    applied = world.apply("p", ASKED)
    assert applied.commit == world.git("rev-parse", "refs/heads/main")
    assert world.git("rev-parse", "HEAD^") == old
    assert world.git("log", "-1", "--format=%B") == "Say it in words\n\nCleverAgents-Plan: p"
    assert world.git("log", "-1", "--format=%an <%ae> %cn") == "Ada <ada@example.org> Ada"
    assert world.git("status", "--porcelain") == ""
    assert world.git("reflog", "-1", "--format=%gs").startswith("cleveragents: apply ")
    assert world.git("fsck") == ""


def test_the_trailer_joins_existing_trailers(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    world.apply("p", CommitRequest("Title\n\nSigned-off-by: Ada <ada@example.org>\n"))
    trailers = world.git("log", "-1", "--format=%(trailers:only)")
    assert trailers == "Signed-off-by: Ada <ada@example.org>\nCleverAgents-Plan: p"


def test_an_empty_message_names_the_plan(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    world.apply("p", CommitRequest("  \n"))
    assert world.git("log", "-1", "--format=%s") == "Apply plan p"


def test_uncommitted_edits_stay_out_of_the_commit(build: Build) -> None:
    """bdfinst/agentic-dev-team#1571: foreign files ended up in commits."""
    world = build({"a": LINES, "b": b"x\n"})
    world.write({"a": NINE, "untracked": b"mine\n"})
    world.plan("p", {"a": BOTH})
    world.write({"b": b"edited\n"})
    world.git("add", "b")
    world.apply("p", ASKED)
    assert world.git("show", "--format=", "--name-only", "HEAD") == "a"
    assert git(world.resource, "show", "HEAD:a").encode() + b"\n" == ONE
    assert (world.resource / "a").read_bytes() == BOTH
    assert world.git("diff", "--cached", "--name-only") == "b", "what was staged is staged"
    assert world.git("ls-files", "--others") == "untracked"


def test_only_the_entries_of_applied_paths_change_in_the_index(build: Build) -> None:
    world = build({"a": LINES, "b": b"x\n", "c": b"y\n"})
    world.write({"b": b"edited\n"})
    world.git("update-index", "--assume-unchanged", "c")
    world.plan("p", {"a": ONE})
    before = world.git("ls-files", "-s", "-v", "--debug", "b", "c")
    world.apply("p", ASKED)
    assert world.git("ls-files", "-s", "-v", "--debug", "b", "c") == before


def test_an_undo_with_a_commit_reverts(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE, "new": b"x\n"})
    world.apply("p", ASKED)
    world.write({"b": b"later\n"})
    world.git("add", "b")
    world.git("commit", "-q", "-m", "later")
    undone = world.undo("p", CommitRequest("Take it out"))
    assert undone.commit == world.git("rev-parse", "HEAD")
    assert world.git("diff", "--name-only", "HEAD~3", "HEAD") == "b"
    assert world.git("status", "--porcelain") == ""


def test_an_undo_without_a_commit_leaves_the_branch(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    world.apply("p", ASKED)
    head, index = world.git("rev-parse", "HEAD"), _index(world)
    world.undo("p")
    assert (world.resource / "a").read_bytes() == LINES
    assert (world.git("rev-parse", "HEAD"), _index(world)) == (head, index)


def test_refuses_staged_edits_of_an_applied_path(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    world.write({"a": NINE})
    world.git("add", "a")
    refused(world, "you have staged changes to a")


def test_refuses_a_plan_on_uncommitted_changes_with_a_remedy(build: Build) -> None:
    world = build({"a": LINES})
    world.write({"b": b"untracked\n"})
    world.plan("p", {"b": b"edited\n"})
    refused(world, r"the result depends on your uncommitted changes \(b\); commit them first")


@pytest.mark.parametrize("name", ["MERGE_HEAD", "REVERT_HEAD", "CHERRY_PICK_HEAD", "rebase-merge"])
def test_refuses_to_commit_during_a_merge_or_rebase(build: Build, name: str) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    (world.resource / ".git" / name).write_text(world.git("rev-parse", "HEAD"))
    refused(world, "is in progress; finish it first")


def test_refuses_to_commit_without_an_identity(build: Build) -> None:
    world = build({"a": LINES})
    world.git("config", "--unset", "user.name")
    world.git("config", "--unset", "user.email")
    world.plan("p", {"a": ONE})
    refused(world, "set user.name and user.email")


def test_an_identity_in_the_environment_is_sufficient(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    world = build({"a": LINES})
    world.git("config", "--unset", "user.name")
    world.git("config", "--unset", "user.email")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Grace")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "grace@example.org")
    world.plan("p", {"a": ONE})
    world.apply("p", ASKED)
    assert world.git("log", "-1", "--format=%an") == "Grace"


def test_refuses_to_commit_in_a_plain_directory(build: Build) -> None:
    world = build({"a": LINES}, repository=False)
    world.plan("p", {"a": ONE})
    with pytest.raises(ApplyRefused, match="not a git repository"):
        world.apply("p", ASKED)
    assert (world.resource / "a").read_bytes() == LINES


def test_refuses_while_the_index_stays_locked(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "_INDEX_PATIENCE_SECONDS", 0.05)
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    lock = world.resource / ".git/index.lock"
    lock.write_bytes(b"")
    refused(world, "another git command holds index.lock")
    assert lock.exists(), "another's lock stays"
    lock.unlink()
    world.apply("p", ASKED)
    assert not lock.exists()


def test_refuses_to_commit_filtered_files(build: Build) -> None:
    world = build({"a": LINES, ".gitattributes": b"*.bin filter=lfs\n"})
    world.plan("p", {"big.bin": b"x\n"})
    refused(world, "big.bin uses a filter")


def test_hooks_do_not_run(build: Build, tmp_path: Path) -> None:
    world = build({"a": LINES})
    for hook in ("pre-commit", "post-commit", "commit-msg", "reference-transaction", "post-index-change"):
        program = world.resource / ".git/hooks" / hook
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{hook}\n")
        program.chmod(0o755)
    world.plan("p", {"a": ONE})
    world.apply("p", ASKED)
    world.undo("p", ASKED)
    assert not list(tmp_path.glob("ran-*"))


def test_a_detached_head_moves_without_a_branch(build: Build) -> None:
    world = build({"a": LINES})
    world.git("checkout", "-q", "--detach")
    main = world.git("rev-parse", "main")
    world.plan("p", {"a": ONE})
    applied = world.apply("p", ASKED)
    assert world.git("rev-parse", "HEAD") == applied.commit
    assert world.git("rev-parse", "main") == main
    assert world.git("status", "--porcelain") == ""


def test_a_plan_can_make_the_first_commit(build: Build, tmp_path: Path) -> None:
    world = build({"a": LINES})
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q", "-b", "main")
    git(fresh, "config", "user.name", "Ada")
    git(fresh, "config", "user.email", "ada@example.org")
    world.resource = fresh
    world.plan("p", {"new": b"x\n"})
    for point in ("apply.index.after", "apply.ref.after"):
        with pytest.raises(ApplyRefused):
            world.with_faults(RaiseAt(point, lambda: OSError("no"))).apply("p", ASKED)
        assert not (fresh / ".git/index").exists()
        assert not (fresh / "new").exists()
        assert git(fresh, "rev-parse", "-q", "--verify", "HEAD", check=False) == ""
    applied = world.apply("p", ASKED)
    assert git(fresh, "rev-list", "HEAD") == applied.commit
    assert git(fresh, "status", "--porcelain") == ""


def test_changes_already_in_head_are_not_committed_again(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    world.write({"a": ONE})
    world.git("commit", "-q", "-a", "-m", "the same by hand")
    head = world.git("rev-parse", "HEAD")
    applied = world.apply("p", ASKED)
    assert (applied.commit, dict(applied.changes)) == (None, {})
    assert world.git("rev-parse", "HEAD") == head


def test_applied_changes_can_be_committed_later(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    world.apply("p")
    applied = world.apply("p", ASKED)
    assert dict(applied.changes) == {}
    assert applied.commit == world.git("rev-parse", "HEAD")
    assert world.git("status", "--porcelain") == ""


def test_many_files_are_transferred_as_one_pack(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {f"n{n}": b"%d\n" % n for n in range(120)})
    world.apply("p", ASKED)
    assert len(list(world.resource.glob(".git/objects/pack/*.pack"))) == 1
    assert world.git("status", "--porcelain") == ""
    world.sandboxes["p"].repository.git("gc", "--prune=now", "-q")
    assert world.git("fsck") == ""


def test_a_concurrent_branch_move_undoes_everything(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    head = world.git("rev-parse", "HEAD")
    other = world.git("commit-tree", "-p", head, "-m", "other", f"{head}^{{tree}}")

    class Moves:
        def reach(self, name: str) -> None:
            if name == "apply.ref.before":
                world.git("update-ref", "refs/heads/main", other)

    index = _index(world)
    with pytest.raises(ApplyRefused, match=r"cannot move refs/heads/main: .* expected"):
        world.with_faults(Moves()).apply("p", ASKED)
    assert world.git("rev-parse", "HEAD") == other
    assert (world.resource / "a").read_bytes() == LINES
    assert _index(world) == index


def test_a_concurrent_index_change_undoes_everything(build: Build) -> None:
    world = build({"a": LINES, "b": b"x\n"})
    world.plan("p", {"a": ONE})

    class Stages:
        def reach(self, name: str) -> None:
            if name == "apply.index.before":
                (world.resource / ".git/index").write_bytes(b"somebody else's")

    with pytest.raises(ApplyRefused, match="index changed during the apply"):
        world.with_faults(Stages()).apply("p", ASKED)
    assert _index(world) == b"somebody else's"
    assert (world.resource / "a").read_bytes() == LINES


STEPS = [
    f"apply.{step}.{moment}"
    for step in ("stage", "journal", "move", "index", "ref")
    for moment in ("before", "after")
]


@pytest.mark.parametrize("point", [*STEPS, "apply.done.before"])
def test_a_failure_at_any_step_undoes_everything(build: Build, point: str) -> None:
    world = build({"a": LINES, "b": b"x\n"})
    world.plan("p", {"a": ONE, "b": None, "c/d": b"new\n"})
    before = (world.files(), _index(world), world.git("rev-parse", "HEAD"))
    with pytest.raises((ApplyRefused, OSError), match="No space left"):
        faults = RaiseAt(point, lambda: OSError(28, "No space left on device"))
        world.with_faults(faults).apply("p", ASKED)
    assert (world.files(), _index(world), world.git("rev-parse", "HEAD")) == before
    assert not (world.resource / ".git/cleveragents").exists()
    assert not (world.resource / ".git/index.lock").exists()
    world.apply("p", ASKED)


def _index(world: World) -> bytes:
    index = world.resource / ".git" / "index"
    return index.read_bytes() if index.exists() else b""


def test_refuses_an_unsigned_commit_where_signing_is_required(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": ONE})
    world.git("config", "commit.gpgSign", "true")
    refused(world, "only your own git can sign")
    world.git("config", "commit.gpgSign", "false")
    assert world.apply("p", ASKED).commit
