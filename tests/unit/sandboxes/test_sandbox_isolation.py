"""Nothing that happens inside a sandbox reaches the user's repository."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from tests.sandbox_resources import commit_all, fingerprint, git, make_repository, write


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    """Create a repository with everything that a command could damage: branches, a stash, hooks, staged
    edits.
    """
    made = make_repository(tmp_path / "resource", {"a": "1\n", "b": "1\n", "c": "1\n"})
    git(made, "branch", "other")
    write(made, {"a": "stashed\n"})
    git(made, "stash", "-q")
    write(made, {"a": "2\n"})
    commit_all(made, "second")
    git(made, "config", "user.email", "ada@example.org")
    git(made, "config", "alias.x", "status")
    write(made, {".git/hooks/pre-commit": "#!/bin/sh\nexit 1\n", "b": "staged\n"})
    (made / ".git/hooks/pre-commit").chmod(0o755)
    git(made, "add", "b")
    write(made, {"c": "edited\n", "untracked": "u\n"})
    return made


@pytest.fixture
def sandbox(resource: Path, tmp_path: Path) -> Sandbox:
    return PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")


def stash(root: Path) -> None:
    """kent-tokyo/chematic#218: refs/stash is shared between worktrees."""
    write(root, {"a": "mine\n"})
    git(root, "stash", "-q")
    assert git(root, "stash", "list").count(b"\n") == 1
    git(root, "stash", "drop", "-q")


def configure(root: Path) -> None:
    git(root, "config", "core.hooksPath", "/evil")
    git(root, "config", "--unset", "core.hooksPath")
    git(root, "config", "alias.x", "!echo evil")


def move_branches(root: Path) -> None:
    git(root, "branch", "-f", "other", "HEAD")
    git(root, "branch", "-D", "other")
    git(root, "branch", "-m", "renamed")
    git(root, "tag", "v1")


def commit_and_amend(root: Path) -> None:
    """mattpocock/skills#429: `--amend` hit another session's commit."""
    git(root, "commit", "-q", "--allow-empty", "-am", "mine")
    git(root, "commit", "-q", "--allow-empty", "--amend", "-m", "amended")


def reset_and_clean(root: Path) -> None:
    """cline/cline#13550: `reset --hard` dropped the user's commits."""
    git(root, "reset", "-q", "--hard", "HEAD~1")
    git(root, "clean", "-fdxq")


def collect_garbage(root: Path) -> None:
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    git(root, "repack", "-q", "-a", "-d", "-f")


def hook(root: Path) -> None:
    path = root / ".git" / "hooks" / "post-commit"
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\ntouch ../hook-ran\n")
    path.chmod(0o755)
    git(root, "commit", "-q", "--allow-empty", "-m", "with a hook")
    assert (root.parent / "hook-ran").exists()


def worktree(root: Path) -> None:
    git(root, "worktree", "add", "-q", "../linked")
    git(root, "worktree", "remove", "../linked")


def fill_the_store(root: Path) -> None:
    """openai/codex#29388: 102 GB of orphan objects in the user's repository."""
    for number in range(20):
        write(root, {"large": f"{number}\n" * 1000})
        git(root, "add", "large")


DEEDS = [
    stash,
    configure,
    move_branches,
    commit_and_amend,
    reset_and_clean,
    collect_garbage,
    hook,
    worktree,
    fill_the_store,
]


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_the_users_repository_is_unchanged(
    resource: Path, sandbox: Sandbox, deed: Callable[[Path], None]
) -> None:
    before = fingerprint(resource)
    deed(sandbox.root)
    sandbox.scan()
    assert fingerprint(resource) == before


def test_our_view_is_independent_of_the_sandboxs_git_directory(resource: Path, sandbox: Sandbox) -> None:
    for deed in DEEDS:
        deed(sandbox.root)
    subprocess.run(["rm", "-rf", ".git"], cwd=sandbox.root, check=True)
    found = sandbox.scan()
    sandbox.restore({path: step.before for path, step in found.items()})
    assert sandbox.scan() == {}
    assert (sandbox.root / "c").read_text() == "edited\n"
    git(resource, "fsck", "--strict")


def test_a_sandbox_leaves_no_object_in_the_users_store(resource: Path, tmp_path: Path) -> None:
    """openai/codex#29388 again: uncommitted files become objects, and only in our store."""
    before = fingerprint(resource / ".git" / "objects")
    sandbox = PrivateClone().create(SandboxRequest("plan-2", resource), tmp_path / "second")
    for number in range(5):
        write(sandbox.root, {"large": f"{number}\n" * 1000})
        sandbox.scan()
        sandbox.state_of("large")
    assert fingerprint(resource / ".git" / "objects") == before
    PrivateClone().remove("plan-2", resource, tmp_path / "second")
    assert fingerprint(resource / ".git" / "objects") == before
    assert b"plan-2" not in git(resource, "for-each-ref")


def test_creating_a_sandbox_runs_no_configured_program(resource: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = f"touch {ran}; cat"
    for name in ("filter.x.clean", "filter.x.smudge", "core.fsmonitor", "diff.external"):
        git(resource, "config", name, program)
    write(
        resource,
        {".gitattributes": "* filter=x\n", ".git/hooks/reference-transaction": f"#!/bin/sh\n{program}\n"},
    )
    (resource / ".git/hooks/reference-transaction").chmod(0o755)
    sandbox = PrivateClone().create(SandboxRequest("plan-2", resource), tmp_path / "second")
    assert any("filters" in note for note in sandbox.notes)
    write(sandbox.root, {"a": "changed\n"})
    sandbox.scan()
    PrivateClone().remove("plan-2", resource, tmp_path / "second")
    assert not ran.exists()


def test_a_remote_and_its_password_are_not_in_the_sandbox(resource: Path, tmp_path: Path) -> None:
    git(resource, "remote", "add", "origin", "https://user:secret@example.org/x.git")
    sandbox = PrivateClone().create(SandboxRequest("plan-2", resource), tmp_path / "second")
    assert b"secret" not in (sandbox.root / ".git" / "config").read_bytes()
    assert git(sandbox.root, "remote") == b""
