"""A repository, plans that were made of it, and what its user sees: for the suites about apply."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cleveragents.application.ports.applies import Applied, CommitRequest
from cleveragents.application.ports.faults import FaultPoints
from cleveragents.infrastructure.apply.applier import TreeApplier
from cleveragents.infrastructure.git.plumbing import PrivateRepository
from cleveragents.infrastructure.identifiers import UlidSource
from cleveragents.infrastructure.persistence.database import Database, open_database

__all__ = ["Edit", "Link", "Program", "SmallSandbox", "World", "git", "snapshot", "world_at"]

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


@dataclass(frozen=True)
class Link:
    """A symbolic link to be made."""

    target: str


@dataclass(frozen=True)
class Program:
    """An executable file to be written."""

    content: bytes


Edit = bytes | Link | Program | None


def git(directory: Path, *arguments: str, check: bool = True) -> str:
    """git as a user runs it, without anything of this machine's user."""
    home = {"HOME": str(directory.parent), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env={**home, **IDENTITY}, capture_output=True, check=False
    )
    assert done.returncode == 0 or not check, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def write(root: Path, edits: Mapping[str, Edit]) -> None:
    """Makes each path be that; None takes it away."""
    for path, edit in edits.items():
        if edit is None:
            (root / path).unlink()
            _prune(root, (root / path).parent)
    for path, edit in edits.items():
        if edit is None:
            continue
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
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
    """Every file and directory with its kind and bytes; of `.git` only if asked for."""
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


class SmallSandbox:
    """A base and what a plan made of it, in a store of its own beside the resource."""

    def __init__(self, plan_id: str, resource: Path, directory: Path) -> None:
        self.plan_id = plan_id
        self.resource = resource
        self.directory = directory
        self.root = directory / "tree"
        self.repository = PrivateRepository(directory / "engine")
        found = resource / ".git"
        self.git_directory: Path | None = None
        self.common_directory: Path | None = None
        if found.exists():
            self.git_directory = Path(git(resource, "rev-parse", "--absolute-git-dir"))
            self.common_directory = (resource / git(resource, "rev-parse", "--git-common-dir")).resolve()
        if not directory.exists():
            self._make()
        self.base = (directory / "base").read_text()

    def _make(self) -> None:
        self.root.mkdir(parents=True)
        engine = self.repository.directory
        subprocess.run(["git", "init", "-q", "--bare", engine], check=True)
        if self.common_directory is not None:
            alternates = engine / "objects" / "info" / "alternates"
            alternates.write_text(f"{self.common_directory / 'objects'}\n")
            for name in ("core.autocrlf", "core.eol", "core.filemode"):
                value = git(self.resource, "config", "--get", name, check=False)
                if value:
                    subprocess.run(["git", "--git-dir", engine, "config", name, value], check=True)
        base = self.repository.capture(self.resource, engine / "index")
        self.repository.git("read-tree", base, index=engine / "index")
        self.repository.git("checkout-index", "--all", work_tree=self.root, index=engine / "index")
        (self.directory / "base").write_text(base)

    def tree_of(self, edits: Mapping[str, Edit]) -> str:
        """The plan's result: the base with these edits. Ignored files count, too, as a tool's would."""
        write(self.root, edits)
        index = self.repository.directory / "index"
        self.repository.capture(self.root, index)
        present = [path for path in edits if os.path.lexists(self.root / path)]
        feed = b"".join(os.fsencode(path) + b"\0" for path in present)
        self.repository.git(
            "update-index", "--add", "-z", "--stdin", work_tree=self.root, index=index, feed=feed
        )
        return self.repository.text("write-tree", index=index)


@dataclass
class World:
    """A resource, a database, and any number of plans."""

    home: Path
    resource: Path
    database: Database
    applier: TreeApplier
    sandboxes: dict[str, SmallSandbox] = field(default_factory=dict)
    trees: dict[str, str] = field(default_factory=dict)

    def plan(self, plan_id: str, edits: Mapping[str, Edit]) -> None:
        """A plan that starts now and does that."""
        self.sandboxes[plan_id] = SmallSandbox(plan_id, self.resource, self.home / "sandboxes" / plan_id)
        self.trees[plan_id] = self.sandboxes[plan_id].tree_of(edits)

    def prepare(self, plan_id: str):  # type: ignore[no-untyped-def]
        return self.applier.prepare(plan_id, self.sandboxes[plan_id], self.trees[plan_id])

    def apply(self, plan_id: str, commit: CommitRequest | None = None) -> Applied:
        with self.prepare(plan_id) as preparation:
            return preparation.apply(commit)

    def undo(self, plan_id: str, commit: CommitRequest | None = None) -> Applied:
        with self.applier.prepare_undo(plan_id, self.sandboxes[plan_id]) as preparation:
            return preparation.apply(commit)

    def write(self, edits: Mapping[str, Edit]) -> None:
        """What the user does to the files."""
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
    """A resource with these files, committed if it is a repository."""
    resource = home / "project"
    resource.mkdir(parents=True)
    if repository:
        git(resource, "init", "-q", "-b", "main")
        git(resource, "config", "user.name", "Ada")
        git(resource, "config", "user.email", "ada@example.org")
    write(resource, files)
    if repository:
        git(resource, "add", "-A")
        git(resource, "commit", "-q", "--allow-empty", "-m", "first")
    with open_database(f"sqlite:///{home}/state.db") as database:
        yield World(home, resource, database, TreeApplier(database, UlidSource()))
    shutil.rmtree(home / "sandboxes", ignore_errors=True)
