"""A repository, plans made from it, and the user's view of it: for the suites about apply."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cleveragents.apply.applier import TreeApplier
from cleveragents.apply.ports import Applied, CommitRequest, Preparation
from cleveragents.core.change import FileState
from cleveragents.core.faults import FaultPoints
from cleveragents.core.identifiers import UlidSource
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.storage.database import Database, open_database
from tests.ready_database import ready_database
from tests.ready_repository import made_once

__all__ = [
    "Edit",
    "Link",
    "Program",
    "Submodule",
    "World",
    "git",
    "new_sandbox",
    "open_sandbox",
    "snapshot",
    "world_at",
]

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


@dataclass(frozen=True)
class Link:
    """A symbolic link to create."""

    target: str


@dataclass(frozen=True)
class Program:
    """An executable file to write."""

    content: bytes


@dataclass(frozen=True)
class Submodule:
    """A submodule that is not checked out: an empty directory."""

    commit: str = "1" * 40


Edit = bytes | Link | Program | Submodule | None


def git(directory: Path, *arguments: str, check: bool = True, **variables: str) -> str:
    """Run git as a user does, without the configuration of this machine's user."""
    home = {"HOME": str(directory.parent), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    environment = {**home, **IDENTITY, **variables}
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0 or not check, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def write(root: Path, edits: Mapping[str, Edit]) -> None:
    """Write each path; None deletes it."""
    for path, edit in edits.items():
        if edit is None:
            if (root / path).is_dir() and not (root / path).is_symlink():
                (root / path).rmdir()
            else:
                (root / path).unlink()
            _prune(root, (root / path).parent)
    for path, edit in edits.items():
        if edit is None:
            continue
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(edit, Submodule):
            file.mkdir(exist_ok=True)
            continue
        if file.is_symlink() or isinstance(edit, Link):
            file.unlink(missing_ok=True)
        if isinstance(edit, Link):
            file.symlink_to(edit.target)
        else:
            file.write_bytes(edit.content if isinstance(edit, Program) else edit)
            file.chmod(0o755 if isinstance(edit, Program) else 0o644)


def _prune(root: Path, directory: Path) -> None:
    while directory != root and not any(directory.iterdir()):
        directory.rmdir()
        directory = directory.parent


def snapshot(root: Path, *, with_git: bool = False) -> dict[str, tuple[str, bytes]]:
    """Return every file and directory with its kind and bytes; `.git` only on request."""
    found: dict[str, tuple[str, bytes]] = {}
    for folder, folders, files in os.walk(root):
        if not with_git:
            folders[:] = [name for name in folders if name != ".git"]
        for name in (*folders, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            key = os.path.relpath(path, root)
            if stat.S_ISLNK(mode):
                found[key] = ("link", os.fsencode(path.readlink()))
            elif stat.S_ISDIR(mode):
                found[key] = ("directory", b"")
            elif stat.S_ISREG(mode):
                found[key] = (f"file {stat.S_IMODE(mode):o}", path.read_bytes())
            else:
                found[key] = ("other", b"")
    return found


def new_sandbox(resource: Path, plan_id: str, directory: Path) -> Sandbox:
    """Return a new sandbox of the appropriate strategy."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    strategy = next(each for each in (PrivateClone(), DirectoryCopy()) if each.suits(resource))
    return strategy.create(SandboxRequest(plan_id, resource), directory)


def open_sandbox(resource: Path, plan_id: str, directory: Path) -> Sandbox:
    """Return the existing sandbox at this place."""
    return PrivateClone().open(plan_id, resource, directory)


@dataclass
class World:
    """A resource, a database, and any number of plans."""

    home: Path
    resource: Path
    database: Database
    applier: TreeApplier
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    trees: dict[str, str] = field(default_factory=dict)

    def plan(self, plan_id: str, edits: Mapping[str, Edit]) -> None:
        """Return a plan that starts now and makes these changes."""
        sandbox = new_sandbox(self.resource, plan_id, self.home / "sandboxes" / plan_id)
        write(sandbox.root, edits)
        states: dict[str, FileState | None] = {path: change.after for path, change in sandbox.scan().items()}
        # Includes ignored files, as a tool that writes one would record them.
        states |= {path: sandbox.state_of(path) for path in edits}
        self.sandboxes[plan_id] = sandbox
        self.trees[plan_id] = sandbox.tree(states)

    def prepare(self, plan_id: str) -> AbstractContextManager[Preparation]:
        return self.applier.prepare(plan_id, self.sandboxes[plan_id], self.trees[plan_id])

    def apply(self, plan_id: str, commit: CommitRequest | None = None) -> Applied:
        with self.prepare(plan_id) as preparation:
            return preparation.apply(commit)

    def undo(self, plan_id: str, commit: CommitRequest | None = None) -> Applied:
        with self.applier.prepare_undo(plan_id, self.sandboxes[plan_id]) as preparation:
            return preparation.apply(commit)

    def write(self, edits: Mapping[str, Edit]) -> None:
        """Change files as the user does."""
        write(self.resource, edits)

    def git(self, *arguments: str) -> str:
        return git(self.resource, *arguments)

    def files(self) -> dict[str, tuple[str, bytes]]:
        return snapshot(self.resource)

    def with_faults(self, faults: FaultPoints, durability: str = "normal") -> World:
        applier = TreeApplier(self.database, UlidSource(), faults=faults, durability=durability)
        return World(self.home, self.resource, self.database, applier, self.sandboxes, self.trees)


@contextmanager
def world_at(home: Path, files: Mapping[str, Edit], *, repository: bool = True) -> Iterator[World]:
    """Return a resource with these files, committed if it is a repository."""
    resource = home / "project"
    if repository:
        key = ("world_at", *files.items())
        made_once(resource, key, lambda root: _repository(root, files), lambda: _refresh(resource))
    else:
        resource.mkdir(parents=True)
        write(resource, files)
    with open_database(ready_database(home / "state.db")) as database:
        yield World(home, resource, database, TreeApplier(database, UlidSource()))
    shutil.rmtree(home / "sandboxes", ignore_errors=True)


def _repository(root: Path, files: Mapping[str, Edit]) -> None:
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Ada")
    git(root, "config", "user.email", "ada@example.org")
    write(root, files)
    git(root, "add", "-A")
    for path, edit in files.items():
        if isinstance(edit, Submodule):
            git(root, "update-index", "--add", "--cacheinfo", f"160000,{edit.commit},{path}")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")


def _refresh(root: Path) -> None:
    git(root, "update-index", "-q", "--refresh")
